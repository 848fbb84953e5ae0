"""Which faults, in which order: a list that follows from the seed and the numbers alone, in sessions.

A session is a cluster of its own, from an empty etcd to the verdict on it; an interrupted run goes on with the first session
that has no verdict. Half of the pauses stop the leader's whole tree in a session whose schedulers never cease to believe, so that
there the store's guard has to refuse alone.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.chaos.faults import KILLS_ETCD, WANTS_MEMBERS, Fault
from tests.planted_bugs import SWITCHES

FAULTS_A_SESSION: Final = 40
LEADER_KILLS: Final = ("kill-replica", "kill-scheduler", "kill-tree")
ACTOR_KILLS: Final = ("kill-queue", "kill-worker", "kill-raylet", "kill-gcs", "kill-spare", "kill-guardian", "kill-standby")
ETCD_KILLS: Final = ("kill-etcd-leader", "kill-both-leaders", "kill-etcd-follower")
PAUSES: Final = ("pause-tree", "pause-scheduler", "pause-replica", "pause-queue", "pause-standby")
NETWORK: Final = (
    "cut-from-etcd",
    "no-answers-from-etcd",
    "no-requests-to-etcd",
    "slow-to-etcd",
    "break-clients",
    "compact",
    "pause-etcd-leader",
    "lose-quorum",
    "slow-to-etcd-leader",
)
PAUSE_SECONDS: Final = (0.1, 30.0)
_OUTLASTING_SECONDS: Final = 1.0
"""The shortest pause where the guard is to refuse: most of them outlast the lease."""
_STATE_SECONDS: Final = (1.0, 6.0)
UNBELIEVING: Final = SWITCHES["beliefs never end"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many faults of each sort."""

    kills: int = 20
    stops: int = 2
    pauses: int = 10
    actors: int = 5
    etcd: int = 3
    network: int = 0
    pause_seconds_max: float = PAUSE_SECONDS[1]


@dataclass(frozen=True, slots=True)
class Session:
    """One cluster and what happens to it."""

    number: int
    seed: int
    members: int
    broken_rules: tuple[str, ...]
    faults: tuple[Fault, ...]
    crowded: bool = False
    """Nodes are full, and three pods of ten have a higher priority: the scheduler has to preempt."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run."""

    seed: int
    numbers: Numbers
    rate: float
    sessions: tuple[Session, ...]
    left_out: str = ""
    """What the etcd at hand does not allow, in words."""

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def is_saved_at(self, path: Path) -> bool:
        """Whether the run there has the same plan."""
        return path.exists() and json.loads(path.read_text()) == json.loads(json.dumps(asdict(self)))


def make_plan(seed: int, numbers: Numbers, *, rate: float, members: int, etcd_kills_allowed: bool, left_out: str = "") -> Plan:
    draw = random.Random(seed)
    believing = _believing(numbers, draw)
    if not etcd_kills_allowed:
        believing = [fault for fault in believing if fault.kind not in KILLS_ETCD]
    if members == 1:
        believing = [fault for fault in believing if fault.kind not in WANTS_MEMBERS]
    unbelieving = [Fault("pause-tree", _log_uniform(draw, numbers, _OUTLASTING_SECONDS)) for _ in range(numbers.pauses // 2)]
    parts = [((), part) for part in _parts(believing)] + [((UNBELIEVING,), part) for part in _parts(unbelieving)]
    sessions = tuple(
        # Every second one, so that a run of one session of each sort has none.
        Session(number, draw.getrandbits(32), members, rules, tuple(part), crowded=not rules and number % 2 == 1)
        for number, (rules, part) in enumerate(parts)
    )
    return Plan(seed, numbers, rate, sessions, left_out)


def _believing(numbers: Numbers, draw: random.Random) -> list[Fault]:
    faults = [Fault(kind) for kind in itertools.islice(itertools.cycle(LEADER_KILLS), numbers.kills)]
    faults += [Fault("stop-replica")] * numbers.stops
    faults += [Fault(kind) for kind in itertools.islice(itertools.cycle(ACTOR_KILLS), numbers.actors)]
    faults += [Fault(kind) for kind in itertools.islice(itertools.cycle(ETCD_KILLS), numbers.etcd)]
    pauses = itertools.islice(itertools.cycle(PAUSES), numbers.pauses - numbers.pauses // 2)
    faults += [Fault(kind, _log_uniform(draw, numbers)) for kind in pauses]
    network = itertools.islice(itertools.cycle(NETWORK), numbers.network)
    faults += [Fault(kind, round(draw.uniform(*_STATE_SECONDS), 2)) for kind in network]
    draw.shuffle(faults)
    return faults


def _log_uniform(draw: random.Random, numbers: Numbers, low: float = PAUSE_SECONDS[0]) -> float:
    """Short pauses as often as long ones: 0.1 to 1 s as 1 to 10 s."""
    high = max(low, numbers.pause_seconds_max)
    return round(float(low * (high / low) ** draw.random()), 2)


def _parts(faults: list[Fault]) -> list[list[Fault]]:
    return [faults[start : start + FAULTS_A_SESSION] for start in range(0, len(faults), FAULTS_A_SESSION)]
