"""Pods of which there is nothing to keep are not decoded one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rayched.api.kinds import POD, wrap
from rayched.api.wire import varint
from rayched.controllers.cluster_view import ClusterView
from rayched.store.codec import decode_entry, encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite, Stored
from rayched.v1.workloads_pb2 import Object

KEYS = Keys()


def a_pod(name: str) -> Pod:
    pod = Pod()
    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = "default", name, f"uid-{name}"
    return pod


class View:
    """A view that counts what it has decoded."""

    def __init__(self) -> None:
        self.view = ClusterView(KEYS, self._decode)
        self.view.deliver(ListedAll((), 1))
        self.decoded = 0
        self._revision = 1

    def _decode(self, entry: Entry) -> Object:
        self.decoded += 1
        return decode_entry(entry)

    def put(self, pod: Pod, behind: bytes = b"", name: str = "") -> None:
        """`behind`: what is put behind the stored pod. `name`: that of the key, where it is not the pod's."""
        self._revision += 1
        key = KEYS.object_key(POD, "default", name or pod.metadata.name)
        entry = Entry(key, encode(wrap(pod)) + behind, self._revision, self._revision)
        self.view.deliver(Changed((entry,), self._revision))


def test_a_pod_without_a_node_like_one_before_is_not_decoded() -> None:
    view = View()
    for number in range(5):
        view.put(a_pod(f"web-{number}"))
    assert view.decoded == 1 and not view.view.pods and view.view.revision == 6


def test_pods_that_differ_in_what_matters_are_noticed() -> None:
    view = View()
    for number in range(3):
        view.put(a_pod(f"web-{number}"))
    bound, ending = a_pod("web-3"), a_pod("web-4")
    bound.spec.node_name = "n"
    ending.metadata.deletion_timestamp.seconds = 7
    for pod in (bound, ending):
        view.put(pod)
    assert {facts.uid for facts in view.view.pods.values()} == {"uid-web-3", "uid-web-4"}
    assert set(view.view.pods_on) == {"n"} and len(view.view.pods_to_look_at) == 1


def test_a_pod_that_gives_its_node_up_is_no_longer_on_it() -> None:
    view = View()
    for number in range(3):
        view.put(a_pod(f"web-{number}"))
    bound = a_pod("web-2")
    bound.spec.node_name = "n"
    view.put(bound)
    view.put(a_pod("web-2"))
    assert not view.view.pods and not view.view.pods_on


def a_change(node: str = "n", condition: str = "PodScheduled", status: str = "True", phase: str = "") -> bytes:
    """A change that is written behind a stored pod, as a binding is."""
    change = Stored(leader_write=LeaderWrite(op="bind", attempt="a"))
    change.object.pod.spec.node_name, change.object.pod.status.phase = node, phase
    if condition:
        added = change.object.pod.status.conditions.add(type=condition, status=status)
        added.last_transition_time.seconds = 1_800_000_001
    return change.SerializeToString()


CHANGES = {
    "binding": a_change(),
    "without a node": a_change(node=""),
    "without a condition": a_change(condition=""),
    "another condition": a_change(condition="Ready"),
    "a condition that is not so": a_change(status="False"),
    "ended": a_change(phase="Failed"),
    "ending": Stored(object=Object(pod=Pod(metadata={"deletion_timestamp": {"seconds": 9}}))).SerializeToString(),
    "two changes": 2 * a_change(),
    "nothing": b"",
}


def a_pending_pod(name: str) -> Pod:
    """As the API stores it."""
    pod = a_pod(name)
    pod.status.phase, pod.status.qos_class = "Pending", "Burstable"
    return pod


def an_ended_pod(name: str) -> Pod:
    pod = a_pod(name)
    pod.status.phase = "Succeeded"
    return pod


def a_ready_pod(name: str) -> Pod:
    pod = a_pod(name)
    pod.status.conditions.add(type="Ready", status="True")
    return pod


@pytest.mark.parametrize("make", [a_pod, a_pending_pod, an_ended_pod, a_ready_pod])
@pytest.mark.parametrize("first", CHANGES)
def test_what_is_kept_of_a_change_is_what_a_view_keeps_that_decodes_everything(
    first: str, make: Callable[[str], Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    view, plain = View(), View()
    monkeypatch.setattr(plain.view, "_bound_facts", lambda _: None)
    view.put(make("web-1"))
    plain.put(make("web-1"))
    for change in (first, "binding", first):
        view.put(make("web-2"), CHANGES[change])
        plain.put(make("web-2"), CHANGES[change])
        found, expected = view.view, plain.view
        assert (found.pods, found.pods_on) == (expected.pods, expected.pods_on)
        assert found.pods_to_look_at == expected.pods_to_look_at
        assert found.ended.in_order() == expected.ended.in_order()


@pytest.mark.parametrize("make", [a_pod, a_pending_pod])
def test_the_binding_of_a_pod_like_one_before_is_not_decoded(make: Callable[[str], Pod]) -> None:
    view = View()
    view.put(make("web-1"))
    for number in range(2, 5):
        view.put(make(f"web-{number}"), a_change(f"node-{number}"))
    assert view.decoded == 1 and len(view.view.pods) == 3 and "node-3" in view.view.pods_on


def test_a_binding_under_the_key_of_another_pod_is_set_aside() -> None:
    view = View()
    view.put(a_pod("web-1"))
    view.put(a_pod("web-2"), a_change(), name="web-3")
    assert not view.view.pods


def test_a_pod_that_is_bound_anew_is_on_its_node_since_then() -> None:
    view = View()
    view.put(a_pod("web-1"))
    view.put(a_pod("web-1"), a_change("node-1"))
    view.put(a_pod("web-1"), a_change("node-1").replace(varint(1_800_000_001), varint(1_800_000_009)))
    (facts,) = view.view.pods.values()
    assert (facts.on_node_revision, facts.mod_revision) == (3, 4)


@pytest.mark.parametrize(("revision", "on_node_revision"), [(9, 3), (4, 3), (2, 2)])
def test_a_list_moves_no_pod_unless_it_is_of_another_history(revision: int, on_node_revision: int) -> None:
    view = View()
    view.put(a_pod("web-1"))
    for node in ("node-1", "node-1"):
        view.put(a_pod("web-1"), a_change(node))
    (facts,) = view.view.pods.values()
    entry = Entry(facts.key, facts.value, 1, min(revision, 4))
    view.view.deliver(ListedAll((entry,), revision))
    (facts,) = view.view.pods.values()
    assert (facts.on_node_revision, view.view.histories) == (on_node_revision, int(revision < 4))
