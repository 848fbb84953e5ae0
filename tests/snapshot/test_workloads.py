"""Namespaces, Services and controllers: what selects the pods that belong together, and when readers have to look again."""

from __future__ import annotations

import pytest

from rayched.api.selectors import Operator, Requirement
from rayched.snapshot.referenced_labels import ReferencedLabels
from rayched.snapshot.workloads import Workloads
from rayched.v1.core_pb2 import Namespace, Node, Pod, ReplicationController, Service
from rayched.v1.workloads_pb2 import ReplicaSet, StatefulSet


def a_service(**selector: str) -> Service:
    service = Service()
    service.spec.selector.update(selector)
    return service


def a_replica_set(*keys: str, **labels: str) -> ReplicaSet:
    found = ReplicaSet()
    found.spec.selector.match_labels.update(labels)
    for key in keys:
        found.spec.selector.match_expressions.add(key=key, operator="Exists")
    return found


def a_pod(owner: tuple[str, str, str] | None = None, *, is_controller: bool = True, **labels: str) -> Pod:
    pod = Pod()
    pod.metadata.namespace = "here"
    pod.metadata.labels.update(labels)
    if owner is not None:
        api_version, kind, name = owner
        pod.metadata.owner_references.add(api_version="v1", kind="Machine", name="other", controller=False)
        pod.metadata.owner_references.add(api_version=api_version, kind=kind, name=name, controller=is_controller)
    return pod


def is_one_of(key: str, value: str) -> Requirement:
    return Requirement(key, Operator.IN, frozenset((value,)))


def exists(key: str) -> Requirement:
    return Requirement(key, Operator.EXISTS, frozenset())


@pytest.fixture
def around() -> Workloads:
    around = Workloads(ReferencedLabels())
    around.set_object("Service", "here", "web", a_service(app="web"))
    around.set_object("Service", "here", "canary", a_service(app="web", track="canary"))
    around.set_object("Service", "here", "headless", a_service())
    around.set_object("Service", "elsewhere", "web", a_service(tier="front"))
    around.set_object("ReplicaSet", "here", "web", a_replica_set("hash", app="web"))
    around.set_object("ReplicaSet", "here", "broken", broken())
    controller = ReplicationController()
    controller.spec.selector["old"] = "yes"
    around.set_object("ReplicationController", "here", "old", controller)
    stateful = StatefulSet()
    stateful.spec.selector.match_labels["db"] = "main"
    around.set_object("StatefulSet", "here", "db", stateful)
    return around


def broken() -> ReplicaSet:
    found = ReplicaSet()
    found.spec.selector.match_expressions.add(key="app", operator="Near")
    return found


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_pod(), []),
        (a_pod(app="db"), []),
        (a_pod(app="web"), [is_one_of("app", "web")]),
        (a_pod(app="web", track="canary"), [is_one_of("app", "web"), is_one_of("track", "canary")]),
        (a_pod(tier="front"), []),
        (a_pod(("apps/v1", "ReplicaSet", "web"), app="web"), [is_one_of("app", "web"), exists("hash")]),
        (a_pod(("apps/v1", "ReplicaSet", "web")), [is_one_of("app", "web"), exists("hash")]),
        (a_pod(("apps/v1", "ReplicaSet", "web"), is_controller=False), []),
        (a_pod(("apps/v1", "ReplicaSet", "nobody")), []),
        (a_pod(("apps/v1", "ReplicaSet", "broken")), []),
        (a_pod(("example.com/v1", "ReplicaSet", "web")), []),
        (a_pod(("v1", "ReplicationController", "old")), [is_one_of("old", "yes")]),
        (a_pod(("v1", "ReplicationController", "old"), app="web"), [is_one_of("app", "web"), is_one_of("old", "yes")]),
        (a_pod(("apps/v1", "StatefulSet", "db")), [is_one_of("db", "main")]),
    ],
)
def test_pods_that_belong_together_are_those_that_services_and_the_owner_select(
    around: Workloads, pod: Pod, expected: list[Requirement]
) -> None:
    assert list(around.siblings_of(pod)) == expected


def test_what_is_gone_selects_nothing(around: Workloads) -> None:
    for kind, name in (("Service", "web"), ("Service", "canary"), ("ReplicaSet", "web")):
        assert around.set_object(kind, "here", name, None)
        assert not around.set_object(kind, "here", name, None), "it was gone already"
    assert around.siblings_of(a_pod(("apps/v1", "ReplicaSet", "web"), app="web")) == ()
    assert not around.set_object("Service", "nowhere", "web", None)
    assert around.set_object("Service", "elsewhere", "web", None)


def test_revisions_tell_readers_of_which_kind_something_changed(around: Workloads) -> None:
    def grown(*change: object) -> tuple[bool, bool, bool]:
        before = around.namespaces_revision, around.workloads_revision
        changed = around.set_object(*change)  # type: ignore[arg-type]
        return changed, around.namespaces_revision > before[0], around.workloads_revision > before[1]

    namespace = Namespace()
    namespace.metadata.labels["team"] = "a"
    assert grown("Namespace", "", "here", namespace) == (True, True, False)
    assert grown("Namespace", "", "here", namespace) == (False, False, False), "the same again"
    assert around.labels_of("here") == {"team": "a"} and around.labels_of("nowhere") == {}
    assert grown("Service", "here", "web", a_service(app="web")) == (False, False, False)
    assert grown("Service", "here", "web", a_service(app="new")) == (True, False, True)
    assert grown("ReplicaSet", "here", "web", a_replica_set("hash", app="web")) == (False, False, False)
    assert grown("ReplicaSet", "here", "web", a_replica_set(app="web")) == (True, False, True)
    assert grown("Node", "", "n1", Node()) == (False, False, False), "nobody reads it here"
    assert grown("Namespace", "", "here", None) == (True, True, False)
    assert grown("Namespace", "", "here", None) == (False, False, False)
    assert around.labels_of("here") == {}


def test_namespaces_are_found_by_their_labels(around: Workloads) -> None:
    for name, team in (("a1", "a"), ("a2", "a"), ("b", "b")):
        namespace = Namespace()
        namespace.metadata.labels["team"] = team
        around.set_object("Namespace", "", name, namespace)
    assert around.namespaces_meeting((is_one_of("team", "a"),)) == {"a1", "a2"}
    assert around.namespaces_meeting(()) == {"a1", "a2", "b"} and around.namespaces_meeting(None) == set()


def test_what_selectors_mention_counts_from_then_on() -> None:
    mentioned = ReferencedLabels()
    around = Workloads(mentioned)
    labels = {"app": "web", "hash": "1", "old": "yes"}
    for kind, message, counting in (
        ("Service", a_service(app="web"), {"app": "web"}),
        ("ReplicaSet", a_replica_set("hash"), {"app": "web", "hash": "*"}),
        ("ReplicationController", ReplicationController(), {"app": "web", "hash": "*"}),
    ):
        around.set_object(kind, "here", "one", message)
        assert mentioned.among(labels) == counting
    controller = ReplicationController()
    controller.spec.selector["old"] = "yes"
    around.set_object("ReplicationController", "here", "one", controller)
    assert mentioned.among(labels) == {"app": "web", "hash": "*", "old": "yes"}
