"""Events of the scheduler: what is told, how it is counted, and what it may cost.

Whole cores over a model of etcd, and the writer alone where its limits are the point.
"""

from __future__ import annotations

import pytest

from leader.etcd_shim import rpc
from rayched.api import kinds
from rayched.api.occurrences import NORMAL, WARNING, EventOccurrence, Subject, event_of
from rayched.api.termination import DELETION_BY_TAINT_MANAGER, Ending, ask_to_end, mark_disrupted
from rayched.store.event_writes import (
    BURST,
    DROPPED,
    EVENTS_A_LEASE,
    GATHER_SECONDS,
    LEASE_USED_SECONDS,
    NORMAL_WAITING_MAX,
    PRESSURE_SECONDS,
    RATE_PER_SECOND,
    REPEAT_SECONDS_MAX,
    REPEAT_SECONDS_MIN,
    WAITING_MAX,
    WRITTEN,
    EventWrites,
)
from rayched.store.transactions import WRITES_MAX, Guard, GuardedPut, build, read
from rayched.v1.core_pb2 import Event, Node, Pod
from rayched.v1.storage_pb2 import Stored
from tests.core.builders import a_node, a_pod, stored
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica

UNIX = 1_700_000_000


def put(store: ModelStore, item: Pod | Node) -> None:
    kind = kinds.of_message(item)
    store.put(KEYS.object_key(kind, item.metadata.namespace, item.metadata.name), stored(item))


def events(store: ModelStore) -> list[Event]:
    found = [Stored.FromString(entry.value) for key, entry in store.now.items() if key.startswith(KEYS.events_prefix)]
    return [each.object.event for each in found]


def a_leader(*nodes: Node) -> Replica:
    store = ModelStore()
    for node in nodes:
        put(store, node)
    replica = Replica(store, Clock(), events=True)
    replica.list()
    replica.lead()
    replica.settle()
    return replica


def a_leader_with_a_bound_pod(name: str) -> tuple[Replica, Pod]:
    replica = a_leader(a_node("n1"))
    put(replica.store, a_pod(name))
    replica.settle()
    pod = replica.store.pod(KEYS.object_key(kinds.POD, "default", name))
    assert pod is not None and pod.spec.node_name == "n1"
    return replica, pod


# ------------------------------------------------------------------------------------------------------ what is told


def test_a_pod_that_was_bound_has_an_event_that_says_where() -> None:
    replica = a_leader(a_node("n1"))
    put(replica.store, a_pod("web"))
    replica.settle()
    (event,) = events(replica.store)
    assert (event.type, event.reason, event.message) == (NORMAL, "Scheduled", "Successfully assigned default/web to n1")
    about = event.involved_object
    assert (about.kind, about.api_version, about.namespace, about.name, about.uid) == ("Pod", "v1", "default", "web", "uid-web")
    assert (event.count, event.source.component) == (1, "default-scheduler")
    assert event.first_timestamp.seconds == event.last_timestamp.seconds == UNIX + 1000


def test_a_pod_that_fits_nowhere_has_an_event_with_the_text_of_its_condition() -> None:
    replica = a_leader(a_node("n1", cpu="1"), a_node("n2", unschedulable=True))
    put(replica.store, a_pod("big", cpu="3"))
    replica.settle()
    (event,) = events(replica.store)
    message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    assert (event.type, event.reason) == (WARNING, "FailedScheduling")
    assert event.message.startswith(message)
    pod = replica.store.pod(KEYS.object_key(kinds.POD, "default", "big"))
    assert pod is not None and [condition.message for condition in pod.status.conditions] == [event.message]


def test_a_gated_pod_has_no_event() -> None:
    replica = a_leader(a_node("n1"))
    put(replica.store, a_pod("held", gates=["wait"]))
    replica.settle()
    assert events(replica.store) == []


def told_of(store: ModelStore, name: str) -> list[tuple[str, str, str]]:
    return [
        (event.involved_object.kind, event.reason, event.message)
        for event in events(store)
        if event.involved_object.name == name and event.source.component != "default-scheduler"
    ]


def test_a_node_that_comes_falls_silent_is_closed_and_goes_has_events() -> None:
    replica = a_leader(a_node("n1"))
    assert told_of(replica.store, "n1") == [], "what a leader finds has not just come"
    put(replica.store, ready := a_node("n2"))
    replica.settle()
    ready.status.conditions.add(type="Ready", status="True")
    put(replica.store, ready)
    replica.settle()
    ready.status.conditions[0].status = "Unknown"
    ready.spec.unschedulable = True
    put(replica.store, ready)
    replica.settle()
    replica.store.delete(KEYS.object_key(kinds.NODE, "", "n2"))
    replica.settle()
    # Ordinary news is gathered.
    replica.clock.now += GATHER_SECONDS
    replica.settle()
    assert sorted(told_of(replica.store, "n2")) == [
        ("Node", "NodeNotReady", "Node n2 status is now: NodeNotReady"),
        ("Node", "NodeNotSchedulable", "Node n2 status is now: NodeNotSchedulable"),
        ("Node", "NodeReady", "Node n2 status is now: NodeReady"),
        ("Node", "RegisteredNode", "Node n2 event: Registered Node n2 in Controller"),
        ("Node", "RemovingNode", "Node n2 event: Removing Node n2 from Controller"),
    ]


def test_who_was_elected_says_so_once_for_each_election() -> None:
    store, clock = ModelStore(), Clock()

    def told() -> list[tuple[str, str, str, int]]:
        return sorted((event.involved_object.kind, event.reason, event.message, event.count) for event in events(store))

    first, second = (Replica(store, clock, name, events=True, identity=f"replica-{name}") for name in "ab")
    first.list()
    second.list()
    epoch = first.lead()
    for _ in range(2):
        first.settle()
        clock.now += GATHER_SECONDS
    assert told() == [("Lease", "LeaderElection", "replica-a became leader", 1)]

    # Another process of the same replica, made while it led: no election.
    other = Replica(store, clock, "other", events=True, identity="replica-a")
    other.list()
    other.belief, first.belief = epoch, None
    put(store, a_pod("any"))
    for _ in range(2):
        other.settle()
        clock.now += GATHER_SECONDS
    assert [one for one in told() if one[1] == "LeaderElection"] == [("Lease", "LeaderElection", "replica-a became leader", 1)]

    other.belief = None
    for leader in (second, other):
        leader.lead()
        for _ in range(2):
            leader.settle()
            clock.now += REPEAT_SECONDS_MIN
        leader.belief = None
    assert [one for one in told() if one[1] == "LeaderElection"] == [
        ("Lease", "LeaderElection", "replica-a became leader", 2),
        ("Lease", "LeaderElection", "replica-b became leader", 1),
    ]


def test_a_pod_that_a_taint_of_its_node_ends_has_one_event() -> None:
    replica, pod = a_leader_with_a_bound_pod("web")
    pod.status.phase, pod.spec.termination_grace_period_seconds = "Running", 30
    put(replica.store, pod)
    replica.settle()
    mark_disrupted(pod, DELETION_BY_TAINT_MANAGER, "node n1 is tainted", UNIX)
    assert ask_to_end(pod, None, UNIX) is not Ending.REMOVE
    for label in ("first", "again"):
        pod.metadata.labels["seen"] = label
        put(replica.store, pod)
        replica.settle()
        replica.clock.now += GATHER_SECONDS
        replica.settle()
    assert told_of(replica.store, "web") == [("Pod", "TaintManagerEviction", "Marking for deletion Pod default/web")]
    (event,) = (event for event in events(replica.store) if event.reason == "TaintManagerEviction")
    assert event.count == 1


def test_a_pod_that_is_not_ready_because_its_node_is_not_has_an_event_each_time() -> None:
    replica, pod = a_leader_with_a_bound_pod("web")
    pod.status.phase = "Running"
    ready = pod.status.conditions.add(type="Ready")
    counted = []
    for status, reason in (
        ("True", ""),
        ("False", "ContainersNotReady"),
        ("True", ""),
        ("False", "NodeNotReady"),
        ("False", "NodeNotReady"),
        ("True", ""),
        ("False", "NodeNotReady"),
    ):
        ready.status, ready.reason = status, reason
        pod.metadata.labels["seen"] = str(len(counted))
        put(replica.store, pod)
        replica.settle()
        replica.clock.now += 2 * REPEAT_SECONDS_MAX
        replica.settle()
        counted.append(sum(event.count for event in events(replica.store) if event.reason == "NodeNotReady"))
    assert counted == [0, 0, 0, 1, 1, 1, 2]
    assert told_of(replica.store, "web") == [("Pod", "NodeNotReady", "Node is not ready")]
    (event,) = (event for event in events(replica.store) if event.reason == "NodeNotReady")
    assert (event.type, event.source.component) == (WARNING, "node-controller")


def test_every_event_is_guarded_by_the_epoch_and_carries_it_and_lies_under_a_lease() -> None:
    replica = a_leader(a_node("n1"))
    epoch = replica.belief
    put(replica.store, a_pod("web"))
    while not any(b"/events/" in send.content for send in replica.to_store):
        replica.watch()
        replica.answer()
        replica.exchanged()
        replica.exchange()
        if replica.to_store:
            replica.arrive()
        replica.turn()
        replica.core.decide()
    (send,) = replica.to_store
    (write,) = rpc.TxnRequest.FromString(send.content).success
    assert write.request_txn.success[0].request_put.lease == replica.leases == 1
    assert Stored.FromString(write.request_txn.success[0].request_put.value).leader_write.epoch == epoch
    # Another leads before it arrives.
    replica.store.put(KEYS.epoch, b"{}")
    replica.arrive()
    replica.answer()
    assert events(replica.store) == []


def test_events_come_after_the_bindings() -> None:
    replica = a_leader(a_node("n1"))
    for number in range(20):
        put(replica.store, a_pod(f"p{number}", cpu="100m"))
    replica.settle()
    order = [
        ["event" if change.key.startswith(KEYS.events_prefix) else "pod" for change in revision]
        for revision in replica.store.history
        if any(b"/pods/" in change.key or b"/events/" in change.key for change in revision)
    ]
    assert order[-1] == ["event"] * 20 and all("event" not in each for each in order[:-1])


def test_a_message_is_cut_to_the_length_that_an_event_may_have() -> None:
    text = "no room " * 200
    message = event_of(warning("a", text), 1, 0.0, 0.0).message
    assert len(message.encode()) == 1024 and message == text[:1020] + " ..."
    assert event_of(warning("a", "ä" * 600), 1, 0.0, 0.0).message == "ä" * 510 + " ..."


# -------------------------------------------------------------------------------------------------------- counting


def test_a_pod_that_fails_again_and_again_has_one_event_that_counts_and_is_written_ever_more_seldom() -> None:
    replica = a_leader(a_node("n1", cpu="1"))
    put(replica.store, a_pod("big", cpu="3"))
    replica.settle()
    began = replica.clock.now
    written: list[int] = []
    attempts = 0
    while replica.clock.now < began + 3_600:
        replica.clock.now += 11.0
        attempts += 1
        replica.core.activate(("default/big",))
        replica.settle()
        (event,) = events(replica.store)
        if not written or event.count != written[-1]:
            written.append(event.count)
    assert attempts == 328 and 12 <= len(written) <= 20
    assert event.count > 300 and event.last_timestamp.seconds > event.first_timestamp.seconds
    assert event.first_timestamp.seconds == UNIX + int(began)


def test_the_next_leader_counts_on_from_the_event_that_is_there() -> None:
    first = a_leader(a_node("n1", cpu="1"))
    put(first.store, a_pod("big", cpu="3"))
    first.settle()
    (before,) = events(first.store)
    first.belief = None
    second = Replica(first.store, first.clock, "b", events=True)
    second.clock.now += 60.0
    second.list()
    second.lead()
    second.settle()
    (after,) = events(first.store)
    assert (before.count, after.count) == (1, 2)
    assert after.first_timestamp == before.first_timestamp and after.last_timestamp.seconds == before.last_timestamp.seconds + 60


def test_an_event_that_has_ended_begins_anew() -> None:
    store = ModelStore()
    writer = Writer(store)
    writer.tell(warning("a"), 0.0)
    (event,) = events(store)
    for key in [key for key in store.now if key.startswith(KEYS.events_prefix)]:
        store.delete(key)
    writer.tell(warning("a", "still not"), 4_000.0)
    (again,) = events(store)
    assert (event.count, again.count, again.message) == (1, 1, "still not")
    assert again.first_timestamp == again.last_timestamp != event.first_timestamp


def test_another_object_under_the_events_key_is_written_over() -> None:
    store = ModelStore()
    occurrence = warning("a")
    writer = Writer(store)
    writer.tell(occurrence, 0.0)
    (key,) = (key for key in store.now if key.startswith(KEYS.events_prefix))
    store.put(key, b"\xff\xff")
    writer.tell(occurrence, 100.0)
    (event,) = events(store)
    assert event.count == 1


# ------------------------------------------------------------------------------------------------------------ limits


class Writer:
    """The writer with a store that answers at once."""

    def __init__(self, store: ModelStore) -> None:
        self.store = store
        self.epoch = store.put(KEYS.epoch, b"{}")
        self.writes = EventWrites(KEYS, "a")
        self.leases = 0

    def send(self, now: float, *, under_pressure: bool = False) -> list[GuardedPut]:
        if self.writes.lease_wanted(now):
            self.leases += 1
            self.writes.lease_granted(self.leases, now)
        batch = self.writes.batch(self.epoch, self.store.revision, now, under_pressure)
        if batch:
            answer = self.store.txn(rpc.TxnRequest.FromString(build(Guard(KEYS.epoch, self.epoch), batch)))
            for write, outcome in zip(batch, read(answer, batch), strict=True):
                self.writes.outcome(write, outcome, now)
        return batch

    def tell(self, occurrence: EventOccurrence, now: float) -> None:
        self.writes.emit(occurrence, now, UNIX + now)
        while self.send(now):
            pass

    def send_all(self, now: float) -> int:
        total = 0
        while batch := self.send(now):
            total += len(batch)
        return total


def warning(name: str, message: str = "no") -> EventOccurrence:
    return EventOccurrence(
        Subject("Pod", "default", name, f"uid-{name}"), WARNING, "FailedScheduling", message, "default-scheduler"
    )


def news(name: str) -> EventOccurrence:
    return warning(name)._replace(type=NORMAL, reason="Scheduled")


def test_what_nobody_can_write_in_time_is_dropped_and_counted_and_ordinary_news_goes_first() -> None:
    writes = EventWrites(KEYS, "a")
    for number in range(NORMAL_WAITING_MAX + 50):
        writes.emit(news(f"p{number}"), 0.0, UNIX)
    assert len(writes) == NORMAL_WAITING_MAX and writes.counts[DROPPED] == 50
    for number in range(WAITING_MAX):
        writes.emit(warning(f"p{number}"), 0.0, UNIX)
    assert len(writes) == WAITING_MAX
    # What is told already is counted on, and costs nothing.
    dropped = writes.counts[DROPPED]
    writes.emit(warning("p0"), 0.0, UNIX)
    assert len(writes) == WAITING_MAX and writes.counts[DROPPED] == dropped


def test_warnings_are_written_before_ordinary_news() -> None:
    writer = Writer(ModelStore())
    for number in range(WRITES_MAX):
        writer.writes.emit(news(f"p{number}"), 0.0, UNIX)
    writer.writes.emit(warning("a"), 0.0, UNIX)
    batch = writer.send(0.0)
    assert len(batch) == WRITES_MAX and b"FailedScheduling" in batch[0].value


def test_while_pods_wait_for_their_decision_one_batch_goes_in_a_while() -> None:
    writer = Writer(ModelStore())
    for number in range(3 * WRITES_MAX):
        writer.writes.emit(news(f"p{number}"), 0.0, UNIX)
    assert writer.send(0.0, under_pressure=True)
    assert not writer.send(0.0, under_pressure=True)
    assert writer.writes.next_due(under_pressure=True) == PRESSURE_SECONDS
    assert writer.send(PRESSURE_SECONDS, under_pressure=True)
    assert writer.send(PRESSURE_SECONDS + GATHER_SECONDS)


def test_ordinary_news_is_gathered_behind_other_news_and_warnings_are_not() -> None:
    writer = Writer(ModelStore())
    writer.tell(news("first"), 1.0)
    assert writer.writes.counts[WRITTEN] == 1
    writer.tell(news("second"), 1.0)
    writer.tell(news("third"), 1.0)
    assert writer.writes.counts[WRITTEN] == 1
    assert writer.writes.next_due(under_pressure=False) == 1.0 + GATHER_SECONDS
    assert len(writer.send(1.0 + GATHER_SECONDS)) == 2
    writer.tell(warning("no"), 1.0 + GATHER_SECONDS)
    assert writer.writes.counts[WRITTEN] == 4
    for number in range(2 * WRITES_MAX):
        writer.writes.emit(news(f"p{number}"), 1.0 + GATHER_SECONDS, UNIX)
    now = 1.0 + GATHER_SECONDS
    for _ in range(2):
        assert writer.writes.next_due(under_pressure=False) == now + GATHER_SECONDS
        now += GATHER_SECONDS
        assert len(writer.send(now)) == WRITES_MAX and not writer.send(now)


def test_the_long_run_has_a_rate_and_a_burst() -> None:
    writer = Writer(ModelStore())
    now, written = 0.0, 0
    for number in range(2 * BURST):
        writer.writes.emit(warning(f"p{number}"), now, UNIX)
        if not number % 500:
            written += writer.send_all(now)
    assert BURST - 600 <= written <= BURST
    while now < 20.0:
        now += 0.01
        written += writer.send_all(now)
    assert written == pytest.approx(BURST + 20 * RATE_PER_SECOND, abs=RATE_PER_SECOND + 1)
    assert writer.writes.counts[WRITTEN] == written


def test_a_lease_holds_so_many_events_and_takes_them_for_so_long() -> None:
    writer = Writer(ModelStore())
    for number in range(2 * EVENTS_A_LEASE + 1):
        writer.writes.emit(warning(f"p{number}"), 0.0, UNIX)
    writer.send_all(0.0)
    assert writer.leases == 3
    writer.tell(news("later"), LEASE_USED_SECONDS - 1)
    assert writer.leases == 3
    writer.tell(news("latest"), LEASE_USED_SECONDS + GATHER_SECONDS)
    assert writer.leases == 4


def test_without_a_lease_nothing_is_written_and_another_is_asked_for_after_a_while() -> None:
    writes = EventWrites(KEYS, "a")
    assert not writes.lease_wanted(0.0)
    writes.emit(news("a"), 0.0, UNIX)
    assert writes.lease_wanted(0.0) and not writes.lease_wanted(0.0)
    assert writes.batch(1, 1, 0.0, under_pressure=False) == []
    writes.lease_granted(None, 0.0)
    due = writes.next_due(under_pressure=False)
    assert due is not None and due > 0.0 and not writes.lease_wanted(due - 0.01) and writes.lease_wanted(due)


def test_what_repeats_for_days_leaves_bounded_memory_and_a_bounded_pause() -> None:
    writer = Writer(ModelStore())
    for number in range(30_000):
        writer.tell(warning(f"p{number}"), number * 1.0)
    assert len(writer.writes._series) <= 8_193
    writer.tell(warning("again"), 50_000.0)
    for number in range(2_000):
        writer.tell(warning("again"), 50_001.0 + number)
    due = writer.writes.next_due(under_pressure=False)
    assert due is not None and due <= 52_001.0 + REPEAT_SECONDS_MAX


def test_an_answer_that_never_came_is_not_asked_for_again() -> None:
    writes = EventWrites(KEYS, "a")
    writes.emit(news("a"), 0.0, UNIX)
    writes.lease_wanted(0.0)
    writes.lease_granted(7, 0.0)
    (write,) = writes.batch(1, 1, 0.0, under_pressure=False)
    writes.clear()
    assert not writes.is_mine(write) and writes.next_due(under_pressure=False) is None
