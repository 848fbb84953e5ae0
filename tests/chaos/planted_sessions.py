"""One session for each planted bug, on real replicas: the least that has to happen for the bug to show itself, every time.

Nothing here waits for a write that happens to be on its way. Links stop the very request that matters, schedulers are made to
hear of nothing, a lease passes while its holder stands still. A session ends when what it is about has happened; whether that
was right is for the auditor, and where it has no rule, for the session itself.

Each session is also played without its bug, and then nothing may be found.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import grpc

from leader.channel import open_channel
from leader.clock import NS_PER_SECOND
from leader.etcd_watch import KeyWatch
from leader.events import Event, Listed, RecordChanged
from leader.record import LeaderRecord, StoredRecord
from rayched.api import kinds
from rayched.replica.ray.processes import descendants
from rayched.v1.services_pb2 import WatchRequest
from rayched.v1.services_pb2_grpc import WatchStub
from tests.chaos import etcd_members
from tests.chaos.planted_scene import (
    EARLY_SECONDS,
    LOCK,
    LOOK_SECONDS,
    QUIET_SECONDS,
    Plant,
    Scene,
    Sessions,
    a_pod,
)
from tests.chaos.switchboard import wall_clock_at_boottime

_MASTER_STATUS: Final = 'leader_election_master_status{name="rayched"}'
_HOUR_NS: Final = 3600 * NS_PER_SECOND
OPERATIONS: Final = etcd_members.OPERATIONS
"""What a transaction of the stage's etcd may have."""


# ------------------------------------------------------------------------------------------------------------------ sessions


def a_former_leader_goes_on(scene: Scene, plant: Plant) -> None:
    """The replica of a leader hangs, its scheduler never ceases to believe, and its successor hears of no change: what the
    former leader tries, nothing but the guard refuses."""
    with scene.stage.board.broken("beliefs never end"), plant():
        scene.stage.pause([scene.leader.pid])
        epoch = scene.await_later_epoch()
        scene.must(lambda: scene.has_read(scene.standby, epoch), "the successor has read the cluster")
        scene.link(scene.standby).hold_streams = True
        late = scene.link(scene.leader).catch(b"late-", passes=True)
        scene.submit(a_pod("late"))
        scene.must(late.caught.is_set, "the former leader writes")
        scene.settled()


def an_answer_too_early(scene: Scene, plant: Plant) -> None:
    """A submission never reaches etcd, and its connection breaks later."""
    with plant():
        doomed = scene.link(scene.standby).catch(b"doomed-", passes=False)
        acknowledged = scene.submit(a_pod("doomed", gated=True), seconds=5.0)
        assert doomed.caught.is_set()
        scene.link(scene.standby).break_caught()
        scene.settled()
    if lost := scene.stage.ask(lambda auditor: auditor.lost(acknowledged)):
        scene.violate("S3", f"{lost[0]} was acknowledged and is not there")


def a_late_release(scene: Scene, plant: Plant) -> None:
    """A leader stands still for longer than its lease and hears of nothing when it wakes, so it gives the lease back."""
    link = scene.link(scene.leader)
    with plant():
        link.silent_to_client = True
        scene.stage.pause([scene.leader.pid])
        scene.await_later_epoch()
        release = link.catch(b'"holder":""', passes=True)
        scene.stage.resume()
        scene.must(release.caught.is_set, "the former leader gives its lease back")
        scene.settled()


def an_old_cache(scene: Scene, plant: Plant) -> None:
    """A leader stands still; its successor has a pod to bind, and hears of nothing from before it takes over."""
    link = scene.link(scene.standby)
    with plant():
        scene.stage.pause([scene.leader.pid, *descendants(scene.leader.pid)])
        scene.submit(a_pod("early"))
        revision = scene.stage.ask(lambda auditor: auditor.revision)
        scene.must(lambda: scene.has_read(scene.standby, revision), "the successor knows of the pod")
        link.hold_streams = True
        scene.await_later_epoch()
        early = link.catch(b"early-", passes=True)
        if scene.until(early.caught.is_set, scene.patience):
            scene.settled()


def an_answer_is_lost(scene: Scene, plant: Plant) -> None:
    """Two pods want the room of one. The first binding is committed, its answer is lost, and the watch is silent."""
    link = scene.link(scene.leader)
    pair = [a_pod("pair", cpu="40", node="node-000") for _ in range(2)]
    with plant():
        # A pod is not bound before what was to be said of its first attempt has come to an end, in the store or nowhere.
        link.loses = (b"pair-", b"\n\x06status")
        first = link.catch(b"pair-", passes=True, holds_streams=True)
        scene.submit(*pair)
        scene.must(first.caught.is_set, "the first binding")
        scene.must(lambda: any(scene.binding(pod.metadata.uid, 0) for pod in pair), "the first binding is committed")
        link.break_caught()
        scene.until(lambda: scene.found("over_capacity"), scene.patience)
    scene.stage.heal()
    scene.stage.delete(pair)


def a_broken_watch(scene: Scene, plant: Plant) -> None:
    """A replica loses its connection to etcd and has it again."""
    link = scene.link(scene.standby)
    with plant(), _Stream(scene) as stream:
        for _ in range(3):
            before = a_pod("before", gated=True)
            scene.submit(before, through=scene.leader)
            scene.must(lambda name=before.metadata.name: stream.has(name), "the stream goes on")  # type: ignore[misc]
            link.cut()
            link.heal()
            after = a_pod("after", gated=True)
            scene.submit(after, through=scene.leader)
            scene.must(lambda name=after.metadata.name: stream.has(name) or stream.ended, "the stream goes on")  # type: ignore[misc]
            if twice := stream.twice():
                scene.violate("S6", f"{twice} came twice")
                break


def a_compacted_past(scene: Scene, plant: Plant) -> None:
    """A replica is cut off from etcd; what happens meanwhile is compacted."""
    link = scene.link(scene.standby)
    with plant(), _Stream(scene) as stream:
        link.cut()
        missed, last, after = (a_pod(name, gated=True) for name in ("missed", "last", "after"))
        scene.submit(missed, through=scene.leader)
        # Etcd still tells of the very revision that it was compacted to.
        scene.submit(last, through=scene.leader)
        scene.must(lambda: scene.stage.ask(lambda auditor: last.metadata.uid in auditor.pods), "the auditor follows")
        scene.stage.etcd.compact(scene.stage.ask(lambda auditor: auditor.revision))
        link.heal()
        scene.submit(after, through=scene.leader)
        scene.must(lambda: stream.has(after.metadata.name) or stream.ended, "the stream goes on, or tells where it cannot")
        if stream.has(after.metadata.name) and not stream.has(missed.metadata.name):
            scene.violate("S6", f"{missed.metadata.name} is left out")


def a_clock_steps(scene: Scene, plant: Plant) -> None:
    """The wall clock of a leader is an hour ahead all at once."""
    board = scene.stage.board
    for replica in scene.stage.cluster.replicas:
        board.step_wall_clock(replica.number, wall_clock_at_boottime())
    try:
        with _Lease(scene) as lease, plant():
            board.step_wall_clock(scene.leader.number, wall_clock_at_boottime() + _HOUR_NS)
            if scene.until(lambda: lease.wrong, scene.patience):
                # Its clock goes back with the rule, and then it would wait for an hour.
                scene.stage.kill(scene.leader, tree=True)
    finally:
        for replica in scene.stage.cluster.replicas:
            board.step_wall_clock(replica.number, 0)


def a_clock_is_ahead(scene: Scene, plant: Plant) -> None:
    """A candidate's wall clock has always been an hour ahead."""
    scene.stage.board.step_wall_clock(scene.standby.number, _HOUR_NS)
    try:
        with _Lease(scene) as lease, plant():
            scene.until(lambda: lease.wrong, scene.patience)
    finally:
        scene.stage.board.step_wall_clock(scene.standby.number, 0)


def another_holder(scene: Scene, plant: Plant) -> None:
    """The record shows another holder, again and again, under the epoch of the leader."""
    with plant():
        foreign = LeaderRecord("somebody", instance="somebody", lease_ms=60_000)
        until = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < until:
            scene.put_record(foreign)
            time.sleep(LOOK_SECONDS)
        after = a_pod("after")
        scene.submit(after)
        binding = scene.binding(after.metadata.uid, scene.patience)
        if binding is not None and binding.epoch == scene.epoch:
            scene.violate("E2", f"{binding.pod} was bound under epoch {binding.epoch} after the record showed another holder")
    scene.delete_record()


def assumed_at_the_end(scene: Scene, plant: Plant) -> None:
    """A leader loses its lease while a binding has no answer, and is elected again."""
    link = scene.link(scene.leader)
    with plant():
        held, later = a_pod("held"), a_pod("later")
        trap = link.catch(b"held-", passes=False)
        scene.submit(held)
        scene.must(trap.caught.is_set, "a binding is on its way")
        link.takes_new = False
        link.break_caught()
        scene.put_record(LeaderRecord("somebody", instance="somebody", lease_ms=60_000))
        scene.must(lambda: scene.metric(scene.leader, _MASTER_STATUS) == 0, "the leader sees another holder")
        scene.submit(later)
        scene.stage.pause([scene.standby.pid])
        scene.delete_record()
        link.takes_new = True
        first, second = scene.binding(held.metadata.uid), scene.binding(later.metadata.uid)
    assert first is not None and second is not None
    assert min(first.epoch, second.epoch) > scene.epoch
    if first.revision > second.revision:
        scene.violate("L1", f"{first.pod} was passed over by {second.pod}, which came later")


SESSIONS: Final[Sessions] = MappingProxyType(
    {
        "unguarded bindings": a_former_leader_goes_on,
        "only renewals are guarded": a_former_leader_goes_on,
        "unguarded release": a_late_release,
        "decides on an old cache": an_old_cache,
        "answers before the commit": an_answer_too_early,
        "attempts are not recognised": an_answer_is_lost,
        "a watch resumes at the last revision": a_broken_watch,
        "no list after a compaction": a_compacted_past,
        "assumptions end late": assumed_at_the_end,
        "times taken from the record": a_clock_is_ahead,
        "leads on after seeing another holder": another_holder,
        # Kills a replica, so it comes last.
        "durations by the wall clock": a_clock_steps,
    }
)

SHOWS_AS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "unguarded bindings": "S4",
        "only renewals are guarded": "S4",
        "unguarded release": "S5",
        "decides on an old cache": "S4",
        "answers before the commit": "S3",
        "attempts are not recognised": "S2",
        "a watch resumes at the last revision": "S6",
        "no list after a compaction": "S6",
        "durations by the wall clock": "L2",
        "assumptions end late": "L1",
        "times taken from the record": "E1",
        "leads on after seeing another holder": "E2",
    }
)
"""The invariant that is violated in each."""


# ------------------------------------------------------------------------------------------------------------------ watching


class _Stream:
    """What a replica that stands by tells of all that changes, as it comes; the client would drop what it has."""

    def __init__(self, scene: Scene) -> None:
        self._channel = grpc.insecure_channel(scene.standby.address)
        start = scene.stage.ask(lambda auditor: auditor.revision) + 1
        stub: Any = WatchStub(self._channel)  # type: ignore[no-untyped-call]
        self._call = stub.Watch(WatchRequest(start_revision=start))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen: list[tuple[int, str]] = []
        self.ended = False

    def __enter__(self) -> _Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call.cancel()
        self._thread.join(5.0)
        self._channel.close()

    def has(self, name: str) -> bool:
        return any(name == seen for _, seen in list(self._seen))

    def twice(self) -> tuple[int, str] | None:
        """Revision and name."""
        return next((event for event, count in Counter(self._seen).items() if count > 1), None)

    def _run(self) -> None:
        try:
            for response in self._call:
                for event in response.events:
                    if event.HasField("object"):
                        self._seen.append((event.revision, kinds.unwrap(event.object).metadata.name))
        except grpc.RpcError:
            self.ended = True


class _Lease:
    """Whether the lease passes from somebody who renews it: taken by another (E1), or given up (L2). A context manager."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._record: StoredRecord | None = None
        self._seen_at = 0.0
        self.wrong: list[tuple[str, str]] = []

    def __enter__(self) -> _Lease:
        self._channel = open_channel(self._scene.stage.etcd.endpoints)
        self._watch = KeyWatch(self._channel, LOCK, self._deliver)
        self._scene.must(lambda: self._record, "the lease is seen")
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()
        self._channel.close()
        for invariant, words in self.wrong:
            self._scene.violate(invariant, words)

    def _deliver(self, event: Event) -> None:
        match event:
            case Listed(view):
                found = view.record
            case RecordChanged(record):
                found = record
            case _:
                return
        now, before = time.monotonic(), self._record
        if before is not None and before.record.holder and found is not None and found.record.holder != before.record.holder:
            silent = now - self._seen_at
            if silent < EARLY_SECONDS:
                heir = found.record.holder or "nobody"
                words = f"the lease of {before.record.holder} went to {heir} {silent:.2f} s after a renewal"
                self.wrong.append(("E1" if found.record.holder else "L2", words))
        self._record, self._seen_at = found, now
