"""The faults, by name: what each does to a stage, and how it shows that it took effect.

A fault strikes, lasts `seconds` where it is a state, and is healed by the stage. `Struck` says what was in force before and when.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rayched.replica.cluster.local_cluster import ReplicaProcess
from rayched.replica.ray.guardian import vital_processes
from rayched.replica.ray.processes import descendants
from tests.chaos.held_writes import hand_over, hold_writes
from tests.chaos.stage import Stage, StageFailed

_HELD_WRITES: Final = 3
_LATER_EPOCH_SECONDS_MAX: Final = 60.0
"""Until another replica leads, on a machine that has little time for it."""
_UNANSWERED_SECONDS: Final = 2.5
"""Each client of the load submits something in the meantime."""
_SPARE_SECONDS_MAX: Final = 15.0
"""Until a leader has all its processes again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of a plan."""

    kind: str
    seconds: float = 0.0
    """How long it lasts, where it lasts."""
    until_a_later_epoch: bool = False
    """It lasts until another epoch has begun, if that takes longer."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that took effect; times on the monotonic clock."""

    epoch: int
    at: float


def strike(stage: Stage, fault: Fault) -> Struck:
    """Returns at once after a blow, and after `fault.seconds` of a state, which `stage.heal` ends. Raises StageFailed."""
    act, lasts = FAULTS[fault.kind]
    holder = stage.leader() if fault.kind in HOLDS_WRITES else None
    prepared = act(stage)
    struck = Struck(stage.ask(lambda auditor: auditor.epoch), time.monotonic())
    prepared()
    if lasts:
        deadline = time.monotonic() + fault.seconds
        if holder is not None:
            # A write that is held arrives when nothing but the guard is against it: under a later epoch, its pod as it was.
            patience = max(fault.seconds, _LATER_EPOCH_SECONDS_MAX) if fault.until_a_later_epoch else fault.seconds
            if not hand_over(stage, holder, patience) and fault.until_a_later_epoch:
                raise StageFailed(f"no later epoch within {patience:.0f} s")
        time.sleep(max(0.0, deadline - time.monotonic()))
    return struck


Act = Callable[[Stage], Callable[[], object]]
"""Looks for what it will hit, and gives back the blow itself: finding the victim takes time, and does not count."""


def _replica(number: signal.Signals, *, tree: bool = False) -> Act:
    def act(stage: Stage) -> Callable[[], object]:
        leader = stage.leader()
        below = descendants(leader.pid) if tree else []

        def blow() -> None:
            stage.kill(leader, number=number)
            stage.kill_pids(below)

        return blow

    return act


def _actor(name: str) -> Act:
    def act(stage: Stage) -> Callable[[], object]:
        deadline = time.monotonic() + _SPARE_SECONDS_MAX
        while name not in (pids := stage.status().pids):
            if time.monotonic() > deadline:
                raise StageFailed(f"the leader has no {name}, only {', '.join(sorted(pids))}")
            time.sleep(0.1)
        return lambda: stage.kill_pids([pids[name]])

    return act


def _of_ray(name: str) -> Act:
    def act(stage: Stage) -> Callable[[], object]:
        found = vital_processes(stage.leader().pid)
        if name not in found:
            raise StageFailed(f"the leader's Ray has no {name}")
        return lambda: stage.kill_pids([found[name]])

    return act


def _standby(stage: Stage) -> Callable[[], object]:
    standby = stage.standbys()[0]
    return lambda: stage.kill(standby, tree=True)


def _pause_tree(stage: Stage) -> Callable[[], object]:
    return _pausing(stage, stage.leader())


def _pausing(stage: Stage, leader: ReplicaProcess) -> Callable[[], object]:
    """Stops the leader's tree while some of its writes lie in its links."""
    # Whoever submits through the leader would wait as its bindings do, and there would be none.
    stage.load_prefers([replica for replica in stage.cluster.replicas if replica is not leader])
    pids = [leader.pid, *descendants(leader.pid)]

    def blow() -> None:
        stage.slow_down_all_but(leader)
        hold_writes(stage, leader, _HELD_WRITES)
        stage.pause(pids)

    return blow


def _late_writes(stage: Stage) -> Callable[[], object]:
    """A leader's tree is stopped until what it wrote has arrived under the next epoch."""
    leader = stage.leader()
    prepared = _pausing(stage, leader)

    def blow() -> None:
        prepared()
        if not any(link.held for link in stage.etcd_links(leader)):
            raise StageFailed("the leader wrote nothing while its writes were held")
        if not hand_over(stage, leader, _LATER_EPOCH_SECONDS_MAX):
            raise StageFailed(f"no later epoch within {_LATER_EPOCH_SECONDS_MAX:.0f} s")

    return blow


def _unanswered(stage: Stage) -> Callable[[], object]:
    """A replica dies with all that clients have asked it for, and nothing of that has reached etcd."""
    leader = stage.leader()
    stage.load_prefers([leader])

    def blow() -> None:
        links = stage.etcd_links(leader)
        for link in links:
            link.hold()
        time.sleep(_UNANSWERED_SECONDS)
        for link in links:
            link.cut()
        stage.kill(leader, tree=True)

    return blow


def _pause_actor(name: str) -> Act:
    def act(stage: Stage) -> Callable[[], object]:
        pid = stage.status().pids[name]
        return lambda: stage.pause([pid])

    return act


def _pause_standby(stage: Stage) -> Callable[[], object]:
    standby = stage.standbys()[0].pid
    pids = [standby, *descendants(standby)]
    return lambda: stage.pause(pids)


def _etcd_leader(number: signal.Signals) -> Act:
    def act(stage: Stage) -> Callable[[], object]:
        member = stage.etcd.leader()
        if number is signal.SIGSTOP:
            return lambda: stage.pause([member.process.pid] if member.process is not None else [])
        return lambda: stage.etcd.signal(member, number)

    return act


def _etcd_follower(stage: Stage) -> Callable[[], object]:
    member = stage.etcd.followers()[0]
    return lambda: stage.etcd.signal(member, signal.SIGKILL)


def _both_leaders(stage: Stage) -> Callable[[], object]:
    member, leader = stage.etcd.leader(), stage.leader()

    def blow() -> None:
        stage.kill(leader)
        stage.etcd.signal(member, signal.SIGKILL)

    return blow


def _quorum(stage: Stage) -> Callable[[], object]:
    members = stage.etcd.members
    lost = members[: len(members) // 2 + 1]
    return lambda: stage.pause([member.process.pid for member in lost if member.process is not None])


def _compaction(stage: Stage) -> Callable[[], object]:
    return lambda: stage.etcd.compact(stage.ask(lambda auditor: auditor.revision))


def _links(change: str) -> Act:
    """Of the leader's to etcd."""

    def act(stage: Stage) -> Callable[[], object]:
        links = stage.etcd_links(stage.leader())

        def blow() -> None:
            for link in links:
                match change:
                    case "cut":
                        link.cut()
                    case "slow":
                        link.delay_seconds = 0.1
                    case "deaf":
                        link.silent_to_client = True
                    case "mute":
                        link.silent_to_target = True

        return blow

    return act


def _api_links(stage: Stage) -> Callable[[], object]:
    links = [link for name, link in stage.network.links.items() if name.startswith("api-")]

    def blow() -> None:
        for link in links:
            link.cut()
            link.heal()

    return blow


def _peers(stage: Stage) -> Callable[[], object]:
    link = stage.etcd.leader().link

    def blow() -> None:
        link.delay_seconds = 0.05

    return blow


FAULTS: Final[Mapping[str, tuple[Act, bool]]] = MappingProxyType(
    {
        # One of these ends a term at once.
        "kill-replica": (_replica(signal.SIGKILL), False),
        "kill-scheduler": (_actor("scheduler"), False),
        "kill-tree": (_replica(signal.SIGKILL, tree=True), False),
        "stop-replica": (_replica(signal.SIGTERM), False),
        "kill-both-leaders": (_both_leaders, False),
        # The others may or may not.
        "pause-tree": (_pause_tree, True),
        "pause-scheduler": (_pause_actor("scheduler"), True),
        "pause-replica": (_pause_actor("replica"), True),
        "pause-queue": (_pause_actor("queue"), True),
        "pause-standby": (_pause_standby, True),
        "kill-queue": (_actor("queue"), False),
        "kill-worker": (_actor("worker-0"), False),
        "kill-spare": (_actor("spare"), False),
        "kill-guardian": (_actor("guardian"), False),
        "kill-raylet": (_of_ray("raylet"), False),
        "kill-gcs": (_of_ray("gcs_server"), False),
        "kill-standby": (_standby, False),
        "kill-etcd-leader": (_etcd_leader(signal.SIGKILL), False),
        "kill-etcd-follower": (_etcd_follower, False),
        "pause-etcd-leader": (_etcd_leader(signal.SIGSTOP), True),
        "lose-quorum": (_quorum, True),
        "compact": (_compaction, False),
        "late-writes": (_late_writes, False),
        "kill-unanswered": (_unanswered, False),
        "cut-from-etcd": (_links("cut"), True),
        "slow-to-etcd": (_links("slow"), True),
        "no-answers-from-etcd": (_links("deaf"), True),
        "no-requests-to-etcd": (_links("mute"), True),
        "slow-to-etcd-leader": (_peers, True),
        "break-clients": (_api_links, False),
    }
)
"""What each does, and whether it is a state that lasts."""

ENDS_THE_TERM: Final = frozenset(
    {"kill-replica", "kill-scheduler", "kill-tree", "stop-replica", "kill-both-leaders", "kill-unanswered"}
)
TIMED: Final = frozenset(
    {"kill-replica", "kill-scheduler", "kill-tree", "stop-replica", "kill-both-leaders", "kill-etcd-leader", "kill-etcd-follower"}
)
"""What has a bound in seconds, and what etcd's deaths do beside it."""
WANTS_REST: Final = frozenset({"stop-replica"})
"""What is allowed less time than a process needs to start: no replica is to be starting beside it."""
HOLDS_WRITES: Final = frozenset({"pause-tree"})
UNTIL_A_LATER_EPOCH: Final = frozenset({"late-writes"})
"""What lasts until another epoch has begun, however long that takes."""
KILLS_ETCD: Final = frozenset({"kill-etcd-leader", "kill-etcd-follower", "kill-both-leaders"})
WANTS_MEMBERS: Final = frozenset(
    {"kill-etcd-leader", "kill-etcd-follower", "kill-both-leaders", "pause-etcd-leader", "slow-to-etcd-leader"}
)
"""Of no use with a single member."""
