"""Which classes and namespaces admission knows, what it asks the store for, and the pods of a template that it knows already."""

from __future__ import annotations

import asyncio

import pytest

from rayched.api.kinds import NAMESPACE, PRIORITY_CLASS, RUNTIME_CLASS
from rayched.server.admission import admission
from rayched.server.admission.admission import TEMPLATE_BYTES_MAX, Classes
from rayched.server.errors import ApiFailure, Code
from rayched.store.keys import KeyTextError
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import PriorityClass
from tests.server.api_over_model import KEYS, ApiOverModel
from tests.server.objects import a_namespace, a_node, a_pod, a_priority_class, a_runtime_class


def a_pod_that_names(priority: str = "", runtime: str = "") -> Pod:
    pod = a_pod()
    if priority:
        pod.spec.priority_class_name = priority
    if runtime:
        pod.spec.runtime_class_name = runtime
    return pod


def an_api() -> ApiOverModel:
    """Its hub has seen the classes p and r, the store has p2 and r2 besides, and two that cannot be read."""
    api = ApiOverModel(a_priority_class("p", 1), a_runtime_class("r"))
    api.put(a_priority_class("p2", 2))
    api.put(a_runtime_class("r2"))
    for kind in (PRIORITY_CLASS, RUNTIME_CLASS):
        api.store.model.put(KEYS.object_key(kind, "", "broken"), b"\xff")
    return api


@pytest.mark.parametrize(
    ("priority", "runtime", "known", "asked"),
    [
        ("", "", ("p", "r"), 0),
        ("p", "r", ("p", "r"), 0),
        ("p2", "", ("p p2", "r"), 2),
        ("", "r2", ("p", "r r2"), 2),
        ("p2", "r2", ("p p2", "r r2"), 2),
        ("nobody", "nobody", ("p", "r"), 2),
        ("broken", "broken", ("p", "r"), 2),
        ("a/b", "Not a name", ("p", "r"), 2),
    ],
)
def test_a_class_that_the_hub_has_not_seen_is_looked_up(priority: str, runtime: str, known: tuple[str, str], asked: int) -> None:
    api = an_api()
    found = asyncio.run(api.admission.classes_for([a_pod(), a_pod_that_names(priority, runtime)]))
    assert (" ".join(sorted(found.priority)), " ".join(sorted(found.runtime))) == known
    assert api.store.reads == asked
    assert all(one.metadata.name == name for name, one in found.priority.items())
    assert all(one.metadata.name == name for name, one in found.runtime.items())


def test_a_class_behind_one_that_cannot_be_read_is_found() -> None:
    found = asyncio.run(an_api().admission.classes_for([a_pod_that_names("broken"), a_pod_that_names("p2")]))
    assert found.priority["p2"].value == 2


def test_classes_that_cannot_be_read_are_none_for_the_hub() -> None:
    api = an_api()
    api.hub.listed(list(api.store.model.now.values()), api.store.model.revision)
    found = asyncio.run(api.admission.classes_for(()))
    assert sorted(found.priority) == ["p", "p2"] and sorted(found.runtime) == ["r", "r2"]


def test_a_class_that_changes_is_known_as_it_is_now() -> None:
    api = an_api()
    assert asyncio.run(api.admission.classes_for(())).priority["p"].value == 1
    revision = api.put(a_priority_class("p", 7))
    api.hub.changed([api.store.model.now[KEYS.object_key(PRIORITY_CLASS, "", "p")]], revision)
    assert asyncio.run(api.admission.classes_for(())).priority["p"].value == 7


def test_a_replica_that_does_not_know_the_cluster_yet_waits_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "READY_SECONDS_MAX", 0.05)
    api = ApiOverModel(a_priority_class("p", 1), is_ready=False)
    with pytest.raises(ApiFailure, match=r"has not read the cluster's state") as caught:
        asyncio.run(api.admission.classes_for(()))
    assert caught.value.code is Code.UNAVAILABLE

    async def becomes_ready() -> Classes:
        asking = asyncio.ensure_future(api.admission.classes_for(()))
        await asyncio.sleep(0)
        assert not asking.done()
        api.ready.set()
        return await asking

    # An event belongs to the loop that waited for it first.
    api = ApiOverModel(a_priority_class("p", 1), is_ready=False)
    assert list(asyncio.run(becomes_ready()).priority) == ["p"]


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([], None),
        ([a_priority_class("new", 1)], None),
        ([a_pod(), a_node("n")], None),
        ([a_pod(), a_priority_class("new", 1, is_default=True)], ["one", "other"]),
    ],
)
def test_which_classes_are_the_default_is_asked_only_for_one_that_wants_to_be(
    messages: list[Pod], found: list[str] | None
) -> None:
    api = ApiOverModel(a_priority_class("plain", 1), a_priority_class("one", 2, is_default=True))
    api.store.model.put(KEYS.object_key(PRIORITY_CLASS, "", "broken"), b"\xff")
    api.put(a_priority_class("other", 3, is_default=True))
    classes = asyncio.run(api.admission.default_classes(messages))
    assert sorted(classes) == (found or []) and api.store.reads == (found is not None)


def test_a_first_class_that_cannot_be_read_is_no_default() -> None:
    api = ApiOverModel()
    api.store.model.put(KEYS.object_key(PRIORITY_CLASS, "", "broken"), b"\xff")
    assert asyncio.run(api.admission.default_classes([a_priority_class("new", 1, is_default=True)])) == {}


def test_namespaces_are_as_the_hub_knows_them_and_else_as_the_store_has_them() -> None:
    api = ApiOverModel(a_namespace("seen"))
    seen = api.store.model.now[KEYS.object_key(NAMESPACE, "", "seen")].mod_revision
    written = api.put(a_namespace("seen"))
    unseen = api.put(a_namespace("unseen"))

    def revisions(*names: str, from_store: bool = False) -> dict[str, int]:
        return asyncio.run(api.admission.namespace_revisions(names, from_store=from_store))

    assert revisions("seen", "seen") == {"seen": seen} and api.store.reads == 0
    assert revisions("seen", "unseen", "nobody") == {"seen": seen, "unseen": unseen} and api.store.reads == 1
    assert revisions("seen", "nobody", from_store=True) == {"seen": written} and api.store.reads == 2
    with pytest.raises(KeyTextError):
        revisions("a/b")


# ----------------------------------------------------------------------------------------------------- pods of a template


def admit(api: ApiOverModel, pod: Pod) -> list[str]:
    classes = asyncio.run(api.admission.classes_for(()))
    return [str(error) for error in api.admission.admit(pod, classes)]


def known(api: ApiOverModel, pod: Pod) -> bool:
    before = api.admission.n_known
    assert admit(api, pod) == []
    assert api.admission.n_known - before in (0, 1)
    return api.admission.n_known > before


def test_a_pod_of_a_known_template_becomes_what_admission_makes_of_it() -> None:
    api = ApiOverModel()
    pods = [a_pod(f"web-{number}", uid=f"uid-{number}") for number in (1, 2)]
    for pod in pods:
        pod.metadata.generate_name = f"generated-{pod.metadata.name}"
    assert [known(api, pod) for pod in pods] == [False, True]
    for number, pod in zip((1, 2), pods, strict=True):
        assert (pod.metadata.name, pod.metadata.uid) == (f"web-{number}", f"uid-{number}")
        assert pod.metadata.generate_name == f"generated-web-{number}"
        assert pod.spec.scheduler_name == "default-scheduler" and pod.status.qos_class == "Burstable"
    for pod in pods:
        pod.metadata.name = pod.metadata.uid = pod.metadata.generate_name = ""
    assert pods[0] == pods[1]


@pytest.mark.parametrize(("text", "is_known"), [(TEMPLATE_BYTES_MAX // 2, True), (2 * TEMPLATE_BYTES_MAX, False)])
def test_large_pods_are_no_templates(text: int, is_known: bool) -> None:
    api = ApiOverModel()
    pods = [a_pod(f"web-{number}") for number in (1, 2)]
    for pod in pods:
        pod.metadata.annotations["text"] = "x" * text
    assert [known(api, pod) for pod in pods] == [False, is_known]


def test_what_was_wrong_once_is_wrong_again() -> None:
    api = ApiOverModel()
    first, second = (admit(api, a_pod(f"web-{number}", cpu="much")) for number in (1, 2))
    assert first == second != [] and api.admission.n_known == 0


def test_the_templates_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "TEMPLATES_MAX", 2)
    api = ApiOverModel()
    uses = [("a", False), ("b", False), ("a", True), ("c", False), ("a", True), ("b", False), ("b", True), ("c", False)]
    assert [(app, known(api, a_pod(labels={"app": app}))) for app, _ in uses] == uses


def test_with_classes_that_were_looked_up_no_template_counts() -> None:
    api = an_api()
    for _ in range(2):
        pod = a_pod_that_names("p2")
        classes = asyncio.run(api.admission.classes_for([pod]))
        assert api.admission.admit(pod, classes) == [] and pod.spec.priority == 2
    assert api.admission.n_known == 0


@pytest.mark.parametrize("message", [a_node("n"), a_priority_class("n", 1)], ids=["node", "class"])
def test_other_kinds_get_their_defaults_and_are_judged(message: Node | PriorityClass) -> None:
    api = ApiOverModel()
    classes = asyncio.run(api.admission.classes_for(()))
    assert api.admission.admit(message, classes) == []
    assert message.api_version and message.kind == message.DESCRIPTOR.name
    message.metadata.name = "Not a name"
    assert [error.path for error in api.admission.admit(message, classes)] == ["metadata.name"]
