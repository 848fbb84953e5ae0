"""Which faults, in which order: a list that follows from the seed and the numbers alone, in sessions.

A session is a cluster of its own, from an empty etcd to the verdict on it; an interrupted run goes on with the first session
that has no verdict. Half of the pauses stop the leader's whole tree in a session whose schedulers never cease to believe, so that
there the store's guard has to refuse alone. A long plan has sessions of its own for what has a bound in seconds, and others in
which nodes are full and the scheduler has to preempt: there a binding waits for room, whoever leads.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.chaos.faults import KILLS_ETCD, TIMED, WANTS_MEMBERS, Fault
from tests.planted_bugs import SWITCHES

FAULTS_A_SESSION: Final = 60
KILLS_FOR_ONE_WHERE_NODES_ARE_FULL: Final = 20
"""So many leader kills in a long plan bring one more, where nodes are full."""
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
    "kill-unanswered",
    "late-writes",
)
STORAGE: Final = (("slow", "wipe", "restore"), ("quota",))
"""Plays, those of each cluster in their order."""
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
    storage: bool = False
    """Whether etcd is filled, slow, wiped and restored, too."""
    events: float = 0.0
    """Changes a second that streams see beside those of the load."""


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
    plays: tuple[str, ...] = ()
    """With etcd's storage, in place of faults."""

    @property
    def words(self) -> str:
        return ", ".join(self.plays) or f"{len(self.faults)} faults"


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
    timed, crowding = believing, list[Fault]()
    if len(believing) > FAULTS_A_SESSION:
        timed = [fault for fault in believing if fault.kind in TIMED]
        crowding = [fault for fault in believing if fault.kind not in TIMED]
        more = numbers.kills // KILLS_FOR_ONE_WHERE_NODES_ARE_FULL
        crowding += [Fault(kind) for kind in itertools.islice(itertools.cycle(LEADER_KILLS), more)]
        draw.shuffle(crowding)
    parts: list[tuple[tuple[str, ...], bool, list[Fault]]] = [((), False, part) for part in _parts(timed)]
    parts += [((), True, part) for part in _parts(crowding)]
    parts += [((UNBELIEVING,), False, part) for part in _parts(unbelieving)]
    sessions = tuple(
        Session(number, draw.getrandbits(32), members, rules, tuple(part), crowded)
        for number, (rules, crowded, part) in enumerate(parts)
    )
    if numbers.storage:
        first = len(sessions)
        sessions += tuple(Session(first + one, seed, 1, (), (), plays=plays) for one, plays in enumerate(STORAGE))
    return Plan(seed, numbers, rate, sessions, left_out)


def _believing(numbers: Numbers, draw: random.Random) -> list[Fault]:
    faults = [Fault(kind) for kind in itertools.islice(itertools.cycle(LEADER_KILLS), numbers.kills)]
    faults += [Fault("stop-replica")] * numbers.stops
    faults += [Fault(kind) for kind in itertools.islice(itertools.cycle(ACTOR_KILLS), numbers.actors)]
    faults += [Fault(kind) for kind in itertools.islice(itertools.cycle(ETCD_KILLS), numbers.etcd)]
    lengths = [_log_uniform(draw, numbers) for _ in range(numbers.pauses - numbers.pauses // 2)]
    # The extremes are among them.
    lengths[:2] = [numbers.pause_seconds_max, PAUSE_SECONDS[0]][: len(lengths)]
    faults += [Fault(kind, seconds) for kind, seconds in zip(itertools.cycle(PAUSES), lengths, strict=False)]
    network = itertools.islice(itertools.cycle(NETWORK), numbers.network)
    faults += [Fault(kind, round(draw.uniform(*_STATE_SECONDS), 2)) for kind in network]
    draw.shuffle(faults)
    return faults


def _log_uniform(draw: random.Random, numbers: Numbers, low: float = PAUSE_SECONDS[0]) -> float:
    """Short pauses as often as long ones: 0.1 to 1 s as 1 to 10 s."""
    high = max(low, numbers.pause_seconds_max)
    return round(float(low * (high / low) ** draw.random()), 2)


def _parts(faults: list[Fault]) -> list[list[Fault]]:
    """As few as may be, as long as one another."""
    count = -(-len(faults) // FAULTS_A_SESSION)
    return [faults[len(faults) * part // count : len(faults) * (part + 1) // count] for part in range(count)]
