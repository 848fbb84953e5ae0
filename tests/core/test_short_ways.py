"""What is done the short way because most pods go it: the same comes of it as of the long way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api import kinds
from rayched.api.stages import Stage
from rayched.core.cache.records import KeptPod, PodRecord
from rayched.core.exchange.audit_sample import RollCall
from rayched.core.exchange.messages import (
    ENTRIES_MAX,
    AssignedPods,
    AttemptsEnded,
    ClusterChange,
    ExchangeAnswer,
    ExchangeRequest,
    LogEntry,
    PendingPodGone,
    PendingPodSeen,
)
from rayched.core.exchange.queue_session import ENTRIES_AT_FIRST, ENTRIES_IN_A_BURST, GATHER_SECONDS, QueueLink
from rayched.core.writes.pod_patches import OP_BIND, BindingValues, bound_behind
from rayched.framework.cluster_event import ASSIGNED_POD_ADD, NODE_ADD
from rayched.snapshot.templates import TemplateTable
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.list_watch_effects import Changed
from rayched.v1.core_pb2 import Pod, PodSpec, PodStatus
from rayched.v1.storage_pb2 import LeaderWrite, Stored
from tests.core.builders import a_pod
from tests.core.model_store import ModelStore
from tests.core.replica import Clock, Replica
from tests.core.test_pods_alike import KEYS, a_cache
from tests.core.test_preemptions import a_leader, put

WRITE = LeaderWrite(op="bind", epoch=3, attempt="i-7", decided_at_revision=9)
NOW = 1_700_000_000.6


def bound_value(pod: Pod, stored: bytes, node_name: str, write: LeaderWrite, now_unix: float) -> bytes:
    """The pod on a node, as bindings write it."""
    uid, name = pod.metadata.uid, pod.metadata.name
    kept = KeptPod(stored, 1, "", is_bare=not pod.status.conditions)
    record = PodRecord(uid, f"default/{name}", b"key", 1, 1, Stage.PENDING, "", TemplateTable().intern(pod), "", kept, stored)
    return BindingValues(write.epoch, now_unix).value(record, node_name, write.attempt, write.decided_at_revision)


def a_full_pod() -> Pod:
    pod = a_pod("a", labels={"app": "web"})
    pod.status.phase = "Pending"
    pod.status.conditions.add(type="Initialized", status="True")
    return pod


def test_a_binding_put_behind_the_stored_pod_reads_like_one_that_was_encoded_anew() -> None:
    pod = a_full_pod()
    stored = encode(kinds.wrap(pod), LeaderWrite(op="nominate", epoch=2, attempt="h-1", decided_at_revision=4))
    anew = Stored.FromString(bound_value(pod, stored, "node-1", WRITE, NOW))

    bare = Pod()
    bare.CopyFrom(pod)
    bare.status.ClearField("conditions")
    stored = encode(kinds.wrap(bare), LeaderWrite(op="nominate", epoch=2, attempt="h-1", decided_at_revision=4))
    value = bound_value(bare, stored, "node-1", WRITE, NOW)
    assert value.startswith(stored), "the short way is what is tested"
    behind = Stored.FromString(value)

    assert behind.leader_write == anew.leader_write == WRITE
    assert [condition.type for condition in anew.object.pod.status.conditions] == ["Initialized", "PodScheduled"]
    del anew.object.pod.status.conditions[0]
    assert behind == anew
    assert bare.spec.node_name == ""


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=260),
    st.text("abc-019", min_size=1, max_size=200),
    st.lists(st.tuples(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 40))), min_size=1, max_size=3),
)
def test_a_binding_put_behind_is_what_protobuf_encodes(node_name: str, attempt: str, revisions: list[tuple[int, int]]) -> None:
    pod = a_pod("a")
    stored = encode(kinds.wrap(pod))
    for epoch, decided_at in revisions:
        write = LeaderWrite(op=OP_BIND, epoch=epoch, attempt=attempt, decided_at_revision=decided_at)
        expected = Stored(leader_write=write)
        expected.object.pod.spec.node_name = node_name
        expected.object.pod.status.conditions.add(type="PodScheduled", status="True").last_transition_time.seconds = int(NOW)
        value = bound_value(pod, stored, node_name, write, NOW)
        assert value == stored + expected.SerializeToString(deterministic=True)
        assert bound_behind(stored, value) == (node_name, attempt)


def test_bindings_that_are_written_together_may_be_decided_at_different_revisions() -> None:
    pod = a_pod("a")
    stored = encode(kinds.wrap(pod))
    kept = KeptPod(stored, 1, "", is_bare=True)
    record = PodRecord("a", "default/a", b"k", 1, 1, Stage.PENDING, "", TemplateTable().intern(pod), "", kept, stored)
    values = BindingValues(3, NOW)
    written = [Stored.FromString(values.value(record, "n", f"i-{at}", at)).leader_write for at in (9, 9, 0, 11)]
    assert [(one.attempt, one.decided_at_revision, one.epoch) for one in written] == [
        ("i-9", 9, 3), ("i-9", 9, 3), ("i-0", 0, 3), ("i-11", 11, 3)
    ]  # fmt: skip


def test_a_condition_that_is_there_already_is_replaced() -> None:
    pod = a_pod("a")
    pod.status.conditions.add(type="PodScheduled", status="False", reason="Unschedulable", message="no room")
    bound = Stored.FromString(bound_value(pod, encode(kinds.wrap(pod)), "node-1", WRITE, NOW)).object.pod
    assert [(one.type, one.status, one.reason) for one in bound.status.conditions] == [("PodScheduled", "True", "")]


def a_started_pod() -> Pod:
    pod = a_pod("a")
    pod.status.start_time.seconds = 7
    return pod


def _but_another_node(value: bytes) -> bytes:
    return value + Stored(object=kinds.wrap(Pod(spec=PodSpec(node_name="node-2")))).SerializeToString()


def _but_over(value: bytes) -> bytes:
    return value + Stored(object=kinds.wrap(Pod(status=PodStatus(phase="Failed")))).SerializeToString()


def _but_ending(value: bytes) -> bytes:
    pod = Pod()
    pod.metadata.deletion_timestamp.seconds = 7
    return value + Stored(object=kinds.wrap(pod)).SerializeToString()


@pytest.mark.parametrize(
    ("pod", "made", "short"),
    [
        (a_pod("a"), lambda value: value, True),
        (a_full_pod(), lambda value: value, False),
        (a_started_pod(), lambda value: value, False),
        (a_pod("a"), lambda value: value + b"\xff", False),
        (a_pod("a"), _but_another_node, False),
        (a_pod("a"), _but_over, False),
        (a_pod("a"), _but_ending, False),
    ],
)
def test_a_binding_by_another_is_taken_in_like_a_pod_that_is_read_as_a_whole(
    pod: Pod, made: Callable[[bytes], bytes], short: bool
) -> None:
    key, stored = KEYS.object_key(kinds.POD, "default", "a"), encode(kinds.wrap(pod))
    pending = Entry(key, stored, 2, 2)
    bound = Entry(key, made(bound_value(pod, stored, "node-1", WRITE, NOW)), 2, 3)
    cache, alone = a_cache(), a_cache()
    cache.changed(Changed((pending,), 2))
    uid = pod.metadata.uid
    assert (cache._bound_pod(bound) is not None) == short
    if not short:
        cache.changed(Changed((bound,), 3))
    alone.changed(Changed((bound,), 3))
    found, expected = cache.pod(uid), alone.pod(uid)
    assert cache.poisoned.keys() == alone.poisoned.keys()
    assert cache.revision_of(key) == 3
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found._replace(template=expected.template) == expected
        assert found.template.content == expected.template.content
        there, here = cache._snapshot.bound(uid), alone._snapshot.bound(uid)
        assert (there and (there.node_name, there.facts, there.terminating)) == (
            here and (here.node_name, here.facts, here.terminating)
        )


def test_a_pod_made_anew_under_the_name_is_not_taken_for_the_one_before() -> None:
    pod = a_pod("a")
    key, stored = KEYS.object_key(kinds.POD, "default", "a"), encode(kinds.wrap(pod))
    cache = a_cache()
    cache.changed(Changed((Entry(key, stored, 2, 2),), 2))
    assert cache._bound_pod(Entry(key, bound_value(pod, stored, "node-1", WRITE, NOW), 3, 3)) is None


def told(link: QueueLink, replica: Replica) -> list[object]:
    request = link.request(1.0, RollCall(replica.core.cache, lambda record: True))
    assert request is not None
    assert request.first + len(request.entries) - 1 == link.end
    return list(request.entries)


def test_pods_that_ended_cross_together_and_are_not_said_to_be_gone() -> None:
    replica = Replica(ModelStore(), Clock())
    link = QueueLink(1)
    for uid in "abc":
        link.tell(PendingPodSeen(uid, f"default/{uid}", 1, 0, 1.0))
    told(link, replica)
    link.answered(ExchangeAnswer(1, ("a", "b")), {"a": 0, "b": 0})

    assert link.ended("a")
    assert link.ended("b")
    assert not link.ended("c"), "it was not handed out"
    for uid in "abc":
        link.tell(PendingPodGone(uid, f"default/{uid}"))
    assert told(link, replica) == [AttemptsEnded(["a", "b"]), PendingPodGone("c", "default/c")]


def test_a_pod_that_comes_again_after_its_end_stands_behind_it() -> None:
    replica = Replica(ModelStore(), Clock())
    link = QueueLink(1)
    seen = PendingPodSeen("a", "default/a", 1, 0, 1.0)
    link.tell(seen)
    link.tell(PendingPodSeen("b", "default/b", 1, 0, 1.0))
    told(link, replica)
    link.answered(ExchangeAnswer(1, ("a", "b")), {"a": 0, "b": 0})

    link.ended("a")
    link.tell(seen)
    link.ended("b")
    assert told(link, replica) == [AttemptsEnded(["a"]), seen, AttemptsEnded(["b"])]


def crossing(link: QueueLink, replica: Replica, entries: Iterable[LogEntry]) -> tuple[int, int]:
    """How many of these entries cross with the next call, and how many pods it asks for."""
    for entry in entries:
        link.tell(entry)
    request = link.request(1.0, RollCall(replica.core.cache, lambda record: True))
    assert request is not None
    return len(request.entries), request.want


def pods(n: int, priority: int = 0, *, is_new: bool = True, first: int = 0) -> list[LogEntry]:
    return [PendingPodSeen(f"{i}", f"default/{i}", 1, priority, float(i), is_new=is_new) for i in range(first, first + n)]


@pytest.mark.parametrize(
    ("entries", "crosses", "asks"),
    [
        (pods(ENTRIES_AT_FIRST), ENTRIES_AT_FIRST, True),
        (pods(3 * ENTRIES_IN_A_BURST), ENTRIES_AT_FIRST, True),
        ([*pods(ENTRIES_AT_FIRST), AttemptsEnded(["x"])], ENTRIES_AT_FIRST, True),
        # Another priority is in the rest, so the first pod to be tried may be.
        ([*pods(ENTRIES_MAX), *pods(1, 5, first=ENTRIES_MAX)], ENTRIES_MAX, False),
        ([*pods(ENTRIES_IN_A_BURST), *pods(1, 5, first=ENTRIES_MAX)], ENTRIES_IN_A_BURST + 1, True),
        # The rest may wake pods, or bring an end to what they are known as.
        ([*pods(ENTRIES_IN_A_BURST), ClusterChange(NODE_ADD)], ENTRIES_IN_A_BURST, False),
        ([*pods(ENTRIES_IN_A_BURST), *pods(1, is_new=False)], ENTRIES_IN_A_BURST, False),
        ([ClusterChange(NODE_ADD), *pods(ENTRIES_IN_A_BURST)], ENTRIES_AT_FIRST, True),
        ([*pods(ENTRIES_AT_FIRST), ClusterChange(NODE_ADD), *pods(ENTRIES_IN_A_BURST)], ENTRIES_IN_A_BURST, True),
    ],
)
def test_a_burst_of_pods_crosses_in_short_calls_that_ask_for_pods_already(
    entries: list[LogEntry], crosses: int, asks: bool
) -> None:
    found, want = crossing(QueueLink(1), Replica(ModelStore(), Clock()), entries)
    assert (found, want > 0) == (crosses, asks)


@pytest.mark.parametrize(
    ("in_hand", "crosses"),
    [(1, ENTRIES_AT_FIRST), (ENTRIES_AT_FIRST, 2 * ENTRIES_AT_FIRST), (ENTRIES_IN_A_BURST, ENTRIES_IN_A_BURST)],
)
def test_a_call_is_as_long_as_the_hand_keeps_the_scheduler_busy(in_hand: int, crosses: int) -> None:
    link, replica = QueueLink(1), Replica(ModelStore(), Clock())
    uids = tuple(f"hand-{number}" for number in range(in_hand))
    crossing(link, replica, pods(1))
    link.answered(ExchangeAnswer(1, uids), dict.fromkeys(uids, 0))
    assert crossing(link, replica, pods(2 * ENTRIES_IN_A_BURST, first=1))[0] == crosses


def test_pods_that_got_their_nodes_cross_together_but_never_across_the_begin_of_a_cycle() -> None:
    replica = Replica(ModelStore(), Clock())
    link, table = QueueLink(1), TemplateTable()
    web, other = table.intern(a_pod("web")), table.intern(a_pod("other", cpu="2"))
    link.assigned(ASSIGNED_POD_ADD, web, "n1")
    link.assigned(ASSIGNED_POD_ADD, other, "n2")
    assert link.cycle_begins() == 1
    link.assigned(ASSIGNED_POD_ADD, web, "n3")
    assert link.end == 2, "the cycle that began at 1 did not see this one"
    link.tell(PendingPodSeen("a", "default/a", web.id, 0, 1.0), (web,))
    link.assigned(ASSIGNED_POD_ADD, web, "n4")

    request = link.request(1.0, RollCall(replica.core.cache, lambda record: True))
    assert request is not None
    assert [entry for entry in request.entries if isinstance(entry, AssignedPods)] == [
        AssignedPods(ASSIGNED_POD_ADD, [web.id, other.id], ["n1", "n2"]),
        AssignedPods(ASSIGNED_POD_ADD, [web.id], ["n3"]),
        AssignedPods(ASSIGNED_POD_ADD, [web.id], ["n4"]),
    ]
    assert set(request.templates) == {web.id, other.id}
    link.assigned(ASSIGNED_POD_ADD, web, "n5")
    assert len(request.entries[-1].node_names) == 1 and link.end == 5, "what has crossed does not grow"  # type: ignore[union-attr]


@pytest.mark.parametrize("awaited", [True, False])
def test_pods_that_got_their_nodes_are_told_at_once_where_a_waiting_pod_may_be_woken_by_them(awaited: bool) -> None:
    roll_call = RollCall(Replica(ModelStore(), Clock()).core.cache, lambda record: True)
    link, web = QueueLink(1), TemplateTable().intern(a_pod("web"))
    link.tell(PendingPodSeen("a", "default/a", web.id, 0, 1.0), (web,))
    assert link.request(1.0, roll_call) is not None
    link.answered(ExchangeAnswer(1, ("a",), counts={"unschedulable": 5}, awaits_bindings=awaited), {"a": 0})
    link.ended("a")
    link.assigned(ASSIGNED_POD_ADD, web, "n1")
    assert (link.request(1.0, roll_call) is not None) is awaited
    if not awaited:
        assert link.next_due() == 1.0 + GATHER_SECONDS
        request = link.request(1.0 + GATHER_SECONDS, roll_call)
        assert request is not None and len(request.entries) == 2


@pytest.mark.parametrize(("affinity", "awaits"), [(True, True), (False, False)])
def test_the_queue_says_whether_a_pod_that_waits_may_be_woken_by_pods_that_get_their_nodes(affinity: bool, awaits: bool) -> None:
    replica = a_leader({"n1": []})
    waiting = a_pod("waiting")
    if affinity:
        term = waiting.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add()
        term.topology_key = "kubernetes.io/hostname"
        term.label_selector.match_labels["app"] = "web"
    else:
        waiting.spec.node_selector["colour"] = "red"
    put(replica.store, waiting)
    replica.settle()
    queue = replica.queue
    assert queue.queue.pending().unschedulable == 1
    assert queue.queue.is_awaited(ASSIGNED_POD_ADD) is awaits
    assert queue.exchange(ExchangeRequest(queue.session, 1, (), replica.clock.now, 0)).awaits_bindings is awaits


def test_pods_that_got_their_nodes_are_told_by_the_core_in_one_entry_and_wake_who_waits_for_one() -> None:
    """An affinity that nobody meets yet is met by one of several pods that are bound together."""
    replica = a_leader({f"n{number}": [] for number in range(3)})
    follower = a_pod("follower")
    term = follower.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add()
    term.topology_key = "kubernetes.io/hostname"
    term.label_selector.match_labels["app"] = "web"
    put(replica.store, follower)
    replica.settle()
    assert replica.bound() == {}
    for number in range(6):
        put(replica.store, a_pod(f"pod-{number}", labels={"app": "web" if number == 4 else "db"}))
    replica.settle()
    assert len(replica.bound()) == 7
    assert replica.bound()["follower"] == replica.bound()["pod-4"]
