"""What a submitter may say in an object: each rule alone, on pods, on templates, on what is new and on what was there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rayched.access.bindings import RoleBinding
from rayched.access.object_rules import (
    ObjectWorld,
    OwnerKey,
    label_faults,
    name_reporter,
    object_faults,
    owners_of,
)
from rayched.access.pod_points import points_of
from rayched.api.kinds import AnyObject
from rayched.v1 import access_pb2
from rayched.v1.core_pb2 import Event, Pod, PodSpec, ReplicationController
from rayched.v1.meta_pb2 import ObjectMeta
from rayched.v1.workloads_pb2 import Job, PodDisruptionBudget, PodGroup, PriorityClass, ReplicaSet, StatefulSet
from tests.access.matrix import binding

TEMPLATES = (ReplicaSet, StatefulSet, ReplicationController, Job)
OWNER = OwnerKey("team-a", "ReplicaSet", "web", "uid-1")


def a_class(name: str, value: int, *, is_default: bool = False) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value, global_default=is_default)


WORLD = ObjectWorld(
    {one.metadata.name: one for one in (a_class("low", -10), a_class("high", 1000), a_class("usual", 100, is_default=True))}
    | {"system-node-critical": a_class("system-node-critical", 2_000_001_000)},
    frozenset({OWNER}),
)
PLAIN = binding("submitter", "submitter", "team-a")

Change = Callable[[ObjectMeta, PodSpec], object]


FAULTS: dict[str, tuple[Change, str]] = {
    "B64 a node": (lambda meta, spec: setattr(spec, "node_name", "node-1"), "spec.nodeName"),
    "B65 a class above 0 without a list": (
        lambda meta, spec: setattr(spec, "priority_class_name", "high"),
        "spec.priorityClassName",
    ),
    "B65 a class that there is not": (
        lambda meta, spec: setattr(spec, "priority_class_name", "later"),
        "spec.priorityClassName",
    ),
    "B66 a class of the system": (
        lambda meta, spec: setattr(spec, "priority_class_name", "system-node-critical"),
        "spec.priorityClassName",
    ),
    "B67 another priority than the default": (lambda meta, spec: setattr(spec, "priority", 7), "spec.priority"),
    "B67 another priority than the class": (
        lambda meta, spec: (setattr(spec, "priority_class_name", "low"), setattr(spec, "priority", 1000)),
        "spec.priority",
    ),
    "B69 a label of kubernetes.io": (
        lambda meta, spec: meta.labels.update({"node-role.kubernetes.io/x": "1"}),
        'metadata.labels["node-role.kubernetes.io/x"]',
    ),
    "B69 a label of k8s.io": (lambda meta, spec: meta.labels.update({"k8s.io/x": "1"}), 'metadata.labels["k8s.io/x"]'),
    "B69 an annotation of kubernetes.io": (
        lambda meta, spec: meta.annotations.update({"scheduling.kubernetes.io/x": "1"}),
        'metadata.annotations["scheduling.kubernetes.io/x"]',
    ),
    "a toleration of what is restricted": (
        lambda meta, spec: spec.tolerations.add(key="node-restriction.kubernetes.io/team", operator="Exists"),
        "spec.tolerations[0]",
    ),
    "a toleration of the control plane": (
        lambda meta, spec: spec.tolerations.add(key="node-role.kubernetes.io/control-plane", effect="NoSchedule"),
        "spec.tolerations[0]",
    ),
    "a toleration of everything": (lambda meta, spec: spec.tolerations.add(operator="Exists"), "spec.tolerations[0]"),
    "a host port below 1024": (
        lambda meta, spec: spec.containers.add(name="c").ports.add(host_port=80),
        "spec.containers[0].ports[0].hostPort",
    ),
    "a host port of an init container": (
        lambda meta, spec: spec.init_containers.add(name="c").ports.add(host_port=1023),
        "spec.initContainers[0].ports[0].hostPort",
    ),
    "a port in the host's network": (
        lambda meta, spec: (
            setattr(spec, "host_network", True),
            spec.containers.add(name="c").ports.add(container_port=443),
        ),
        "spec.containers[0].ports[0].hostPort",
    ),
}

ALLOWED: dict[str, Change] = {
    "nothing": lambda meta, spec: None,
    "a class of a low value": lambda meta, spec: setattr(spec, "priority_class_name", "low"),
    "the default class": lambda meta, spec: setattr(spec, "priority_class_name", "usual"),
    "what the default class says": lambda meta, spec: setattr(spec, "priority", 100),
    "what the class says": lambda meta, spec: (
        setattr(spec, "priority_class_name", "low"),
        setattr(spec, "priority", -10),
    ),
    "any scheduler": lambda meta, spec: setattr(spec, "scheduler_name", "other"),
    "well-known labels": lambda meta, spec: meta.labels.update({"app.kubernetes.io/name": "web", "app": "web"}),
    "a domain that only ends alike": lambda meta, spec: meta.labels.update({"notkubernetes.io/x": "1", "myk8s.io/x": "1"}),
    "a toleration of a taint of its own": lambda meta, spec: spec.tolerations.add(key="dedicated", operator="Exists"),
    "host ports from 1024 on": lambda meta, spec: spec.containers.add(name="c").ports.add(host_port=1024, container_port=80),
    "ports of its own network": lambda meta, spec: spec.containers.add(name="c").ports.add(container_port=80),
}


def a_pod(*changes: Change) -> Pod:
    pod = Pod(metadata=ObjectMeta(name="web", namespace="team-a"))
    for change in changes:
        change(pod.metadata, pod.spec)
    return pod


def made_of(kind: type[Any], *changes: Change) -> Any:
    found = kind(metadata=ObjectMeta(name="web", namespace="team-a"))
    found.spec.template.SetInParent()
    for change in changes:
        change(found.spec.template.metadata, found.spec.template.spec)
    return found


def paths(old: AnyObject | None, new: AnyObject, *bindings: RoleBinding, world: ObjectWorld = WORLD) -> list[str]:
    return [error.path for error in object_faults(old, new, "team-a", bindings or (PLAIN,), world)]


@pytest.mark.row("B64", "B65", "B66")
@pytest.mark.parametrize("case", FAULTS)
def test_a_pod_that_says_what_it_may_not_is_refused_by_its_field(case: str) -> None:
    change, path = FAULTS[case]

    assert paths(None, a_pod(change)) == [path]
    assert paths(a_pod(), a_pod(change)) == [path], "changed into it"
    assert paths(a_pod(change), a_pod(change)) == [], "it was so before, and nobody does it now"
    assert paths(a_pod(change), a_pod()) == [], "taken away"


@pytest.mark.row("B67", "B69")
@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("case", FAULTS)
def test_a_template_is_judged_as_the_pods_that_it_makes(case: str, kind: type[Any]) -> None:
    change, path = FAULTS[case]
    bad, good = made_of(kind, change), made_of(kind)
    wanted = [path.replace("spec.", "spec.template.spec.", 1) if path.startswith("spec.") else f"spec.template.{path}"]

    assert paths(None, bad) == wanted
    assert paths(good, bad) == wanted
    assert paths(bad, bad) == [], "whoever only labels the controller makes no pod"
    grown = kind.FromString(bad.SerializeToString())
    if kind is Job:
        grown.spec.parallelism = 7
    else:
        grown.spec.replicas = 7
    assert paths(bad, grown) == wanted, "one pod more is one that a submitter could not have made"


@pytest.mark.parametrize("case", ALLOWED)
def test_what_anybody_may_say_is_let_be(case: str) -> None:
    assert paths(None, a_pod(ALLOWED[case])) == []
    for kind in TEMPLATES:
        assert paths(None, made_of(kind, ALLOWED[case])) == []


def test_a_binding_that_lists_classes_allows_these_and_the_default_one() -> None:
    listed = binding("submitter", "submitter", "team-a", priority_classes=["high"])
    named = {
        name: paths(None, a_pod(lambda meta, spec, name=name: setattr(spec, "priority_class_name", name)), listed)  # type: ignore[misc]
        for name in ("high", "usual", "low", "system-node-critical")
    }

    assert named == {
        "high": [],
        "usual": [],
        "low": ["spec.priorityClassName"],
        "system-node-critical": ["spec.priorityClassName"],
    }


def test_a_binding_that_lists_schedulers_allows_these() -> None:
    listed = binding("submitter", "submitter", "team-a", scheduler_names=["blue"])

    assert paths(None, a_pod(), listed) == []
    assert paths(None, a_pod(lambda meta, spec: setattr(spec, "scheduler_name", "blue")), listed) == []
    assert paths(None, a_pod(lambda meta, spec: setattr(spec, "scheduler_name", "red")), listed) == ["spec.schedulerName"]


def test_a_privileged_binding_allows_tolerations_and_low_ports_and_nothing_else() -> None:
    privileged = binding("submitter", "submitter", "team-a", privileged=True)
    allowed = [case for case, (change, _) in FAULTS.items() if not paths(None, a_pod(change), privileged)]

    assert allowed == [case for case in FAULTS if case.startswith(("a toleration", "a host port", "a port"))]


def test_two_bindings_never_add_up() -> None:
    classes = binding("submitter", "submitter", "team-a", priority_classes=["high"])
    ports = binding("submitter", "submitter", "*", privileged=True)
    high: Change = lambda meta, spec: setattr(spec, "priority_class_name", "high")  # noqa: E731
    port: Change = lambda meta, spec: spec.containers.add(name="c").ports.add(host_port=80)  # noqa: E731

    assert paths(None, a_pod(high), classes, ports) == []
    assert paths(None, a_pod(port), classes, ports) == []
    assert len(paths(None, a_pod(high, port), classes, ports)) == 1


def test_a_binding_of_another_namespace_allows_nothing() -> None:
    elsewhere = binding("submitter", "submitter", "team-b", privileged=True)
    viewer = binding("submitter", "viewer", "team-a")

    assert paths(None, a_pod(), elsewhere) == paths(None, a_pod(), viewer) == ["metadata.namespace"]


@pytest.mark.row("B65", "B66", "B67")
@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("priority_class_name", "high", ["spec.priorityClassName"]),
        ("priority_class_name", "system-node-critical", ["spec.priorityClassName"]),
        ("priority", 7, ["spec.priority"]),
        ("priority_class_name", "usual", []),
    ],
)
def test_a_group_of_pods_says_no_more_of_its_priority_than_a_pod(field: str, value: str | int, wanted: list[str]) -> None:
    group = PodGroup(metadata=ObjectMeta(namespace="team-a", name="train"))
    setattr(group.spec, field, value)

    assert paths(None, group) == wanted
    assert paths(group, group) == []


OWNERS = {
    "of the same namespace": (("ReplicaSet", "web", "uid-1"), []),
    "of another uid": (("ReplicaSet", "web", "uid-2"), ["metadata.ownerReferences[0]"]),
    "of another name": (("ReplicaSet", "db", "uid-1"), ["metadata.ownerReferences[0]"]),
    "of another kind": (("StatefulSet", "web", "uid-1"), ["metadata.ownerReferences[0]"]),
    "of the cluster": (("Node", "node-1", "uid-1"), ["metadata.ownerReferences[0]"]),
    "of no kind": (("", "web", "uid-1"), ["metadata.ownerReferences[0]"]),
}


@pytest.mark.row("B68")
@pytest.mark.parametrize("case", OWNERS)
def test_an_owner_is_an_object_of_the_same_namespace(case: str) -> None:
    (kind, name, uid), wanted = OWNERS[case]
    change: Change = lambda meta, spec: meta.owner_references.add(kind=kind, name=name, uid=uid)  # noqa: E731
    world = WORLD._replace(
        owners=WORLD.owners | {OwnerKey("team-a", "Node", "node-1", "uid-1"), OwnerKey("team-a", "", "web", "uid-1")}
    )

    assert paths(None, a_pod(change), world=world) == wanted
    assert owners_of(a_pod(change)) == [OwnerKey("team-a", kind, name, uid)]
    assert paths(a_pod(change), a_pod(change)) == []
    elsewhere = a_pod(change)
    elsewhere.metadata.namespace = "team-b"
    everywhere = binding("submitter", "submitter", "*")
    found = object_faults(None, elsewhere, "team-b", [everywhere], world)
    assert [error.path for error in found] == ["metadata.ownerReferences[0]"], "it is another namespace's"
    budget = PodDisruptionBudget(metadata=a_pod(change).metadata)
    assert paths(None, budget, world=world) == wanted


def test_more_owners_than_anybody_needs_are_refused_before_they_are_looked_up() -> None:
    many = a_pod(*[lambda meta, spec: meta.owner_references.add(kind="ReplicaSet", name="web", uid="uid-1")] * 21)

    assert paths(None, many) == ["metadata.ownerReferences"]
    assert len(owners_of(many)) == 20


@pytest.mark.row("B72")
def test_labels_of_the_cluster_are_not_changed_by_submitters() -> None:
    assert [error.path for error in label_faults(["app", "app.kubernetes.io/name", "x.k8s.io/y"])] == [
        'metadata.labels["app.kubernetes.io/name"]',
        'metadata.labels["x.k8s.io/y"]',
    ]


@pytest.mark.row("B71")
def test_an_event_is_of_whom_it_is_from() -> None:
    event = Event()
    event.source.component, event.source.host = "default-scheduler", "node-1"

    name_reporter(event, "spiffe://rayched-test/user/olga")

    assert (event.source.component, event.source.host) == ("spiffe://rayched-test/user/olga", "")
    assert object_faults(None, event, "team-a", (), WORLD) == []


def spread(meta: Any, spec: Any, count: int = 1) -> None:
    for _ in range(count):
        one = spec.topology_spread_constraints.add(max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule")
        one.label_selector.match_labels["app"] = "web"


def kept_apart(meta: Any, spec: Any) -> None:
    required = spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    term = required.add(topology_key="kubernetes.io/hostname")
    term.label_selector.match_expressions.add(key="app", operator="In", values=["web", "api"])
    preferred = spec.affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution.add(weight=1)
    preferred.pod_affinity_term.namespace_selector.match_labels["team"] = "a"


def placed(meta: Any, spec: Any) -> None:
    spec.node_selector["disk"] = "ssd"
    nodes = spec.affinity.node_affinity
    term = nodes.required_during_scheduling_ignored_during_execution.node_selector_terms.add()
    term.match_expressions.add(key="zone", operator="In", values=["a"])
    term.match_fields.add(key="metadata.name", operator="In", values=["node-1"])
    nodes.preferred_during_scheduling_ignored_during_execution.add(weight=1).preference.match_expressions.add(key="x")


@pytest.mark.parametrize(
    ("changes", "points"),
    [((), 0), ((spread,), 31), ((kept_apart,), 22), ((placed,), 4), ((spread, kept_apart, placed), 57)],
)
def test_a_pod_costs_by_its_terms_and_expressions(changes: tuple[Change, ...], points: int) -> None:
    assert points_of(a_pod(*changes).spec) == points


@pytest.mark.row("B97")
def test_a_pod_that_costs_too_much_to_be_decided_is_refused_but_to_whom_the_binding_lets() -> None:
    def costly(meta: Any, spec: Any) -> None:
        spread(meta, spec, 7)

    (error,) = object_faults(None, a_pod(costly), "team-a", (PLAIN,), WORLD)
    assert str(error).startswith("spec: to decide about it costs 217 points, of which the role binding allows 200")
    assert paths(None, a_pod(lambda meta, spec: spread(meta, spec, 6))) == []
    assert paths(a_pod(costly), a_pod(costly)) == [], "it was so before"
    for kind in TEMPLATES:
        assert paths(None, made_of(kind, costly)) == ["spec.template.spec"]
    limits = access_pb2.BindingLimits(pod_points=217)
    generous = binding("submitter", "submitter", "team-a", limits=limits)
    assert paths(None, a_pod(costly), generous) == []
    assert paths(None, a_pod(costly, kept_apart), generous) == ["spec"]
