"""Events are given up where etcd's space is kept for what matters more, and nothing else is."""

from __future__ import annotations

from pathlib import Path

from leader.etcd_shim import rpc
from rayched.actors.event_room_cell import EventRoomCell
from rayched.api.kinds import POD
from rayched.api.occurrences import NORMAL, WARNING, EventOccurrence, Subject
from rayched.store.event_writes import DROPPED, GIVEN_UP, WRITTEN, EventWrites
from rayched.store.transactions import Guard, build, read
from tests.core.builders import a_node, a_pod
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica
from tests.core.test_events import events, put


def happened(name: str, kind: str = WARNING) -> EventOccurrence:
    return EventOccurrence(Subject("Pod", "default", name, f"uid-{name}"), kind, "Happened", "so it was", "default-scheduler")


class Room:
    def __init__(self) -> None:
        self.there_is = True

    def __call__(self) -> bool:
        return self.there_is


def test_what_waits_and_what_comes_is_given_up_and_counted_and_no_lease_is_asked_for() -> None:
    room = Room()
    writes = EventWrites(KEYS, "a", has_room=room)
    for number in range(3):
        writes.emit(happened(f"w{number}"), 0.0, 0.0)
        writes.emit(happened(f"n{number}", NORMAL), 0.0, 0.0)
    assert len(writes) == 6
    room.there_is = False
    assert not writes.lease_wanted(0.0) and len(writes) == 0 and writes.next_due(under_pressure=False) is None
    assert writes.counts == {GIVEN_UP: 6}
    for kind in (WARNING, NORMAL):
        writes.emit(happened("late", kind), 1.0, 1.0)
    assert writes.counts == {GIVEN_UP: 8}
    room.there_is = True
    writes.emit(happened("web"), 2.0, 2.0)
    assert writes.lease_wanted(2.0)
    writes.lease_granted(7, 2.0)
    room.there_is = False
    assert not writes.batch(1, 1, 2.0, under_pressure=False) and writes.counts == {GIVEN_UP: 9}


def test_what_was_on_its_way_is_answered_and_what_comes_later_is_counted_from_the_store() -> None:
    room, store = Room(), ModelStore()
    epoch = store.put(KEYS.epoch, b"{}")
    writes = EventWrites(KEYS, "a", has_room=room)

    def send(now: float) -> int:
        if writes.lease_wanted(now):
            writes.lease_granted(1, now)
        batch = writes.batch(epoch, store.revision, now, under_pressure=False)
        if batch:
            answer = store.txn(rpc.TxnRequest.FromString(build(Guard(KEYS.epoch, epoch), batch)))
            # It gets no room while it is on its way, and happens once more.
            room.there_is = now > 0
            writes.emit(happened("web"), now, now)
            for write, outcome in zip(batch, read(answer, batch), strict=True):
                writes.outcome(write, outcome, now)
        return len(batch)

    writes.emit(happened("web"), 0.0, 0.0)
    assert send(0.0) == 1 and send(50.0) == 0
    assert writes.counts == {WRITTEN: 1, GIVEN_UP: 1}
    room.there_is = True
    writes.emit(happened("web"), 100.0, 100.0)
    while send(100.0):
        pass
    (event,) = events(store)
    assert event.count == 2, "what was given up is told nowhere"
    assert writes.counts[DROPPED] == 0


def test_pods_are_bound_and_their_conditions_written_while_no_event_is() -> None:
    store = ModelStore()
    put(store, a_node("n1"))
    replica = Replica(store, Clock(), events=True)
    replica.has_room_for_events = False
    replica.list()
    replica.lead()
    put(store, a_pod("web"))
    put(store, a_pod("large", cpu="1000"))
    replica.settle()
    web, large = (store.pod(KEYS.object_key(POD, "default", name)) for name in ("web", "large"))
    assert web is not None and large is not None
    assert web.spec.node_name == "n1" and not large.spec.node_name
    assert [one.reason for one in large.status.conditions] == ["Unschedulable"]
    assert not events(store) and not replica.leases and replica.core.events.counts == {GIVEN_UP: 2}
    replica.has_room_for_events = True
    put(store, a_pod("later"))
    replica.settle()
    assert [event.involved_object.name for event in events(store)] == ["later"]


def test_the_scheduler_reads_what_the_replica_has_found_in_whichever_order_they_begin(tmp_path: Path) -> None:
    scheduler = EventRoomCell.at(tmp_path)
    assert scheduler.read()
    replica = EventRoomCell.at(tmp_path)
    replica.write(False)
    assert not scheduler.read() and not EventRoomCell.at(tmp_path).read()
    replica.write(True)
    assert scheduler.read()
