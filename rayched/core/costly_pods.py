"""Pods that take long to decide, and pods in whose cycle a scheduler died: when it is their turn.

Pods are tried in the order of the queue, which knows nothing of what an attempt costs. One that asks for much (hundreds of
conditions on other pods and on nodes) takes a hundred times as long as others, and nothing says that there are not thousands of
them. So a pod that costs more than ordinary ones, or may, steps aside:

    ordinary   in the order of the queue
    heavy      HEAVY_SECONDS or more: the oldest first, whenever no ordinary pod waits; else SHARE of the time
    costly     COSTLY_SECONDS or more: the oldest first; SHARE of the time while ordinary pods come, in slices, as one that
               comes meanwhile waits for the end of the slice
    suspect    a scheduler died in its cycle: when nobody else is there, one in SUSPECT_PAUSE_SECONDS, with less budget; and
               after SUSPECT_WAIT_SECONDS also beside others, as that pod need not have had a part in it

Shares are of the time that decisions take: where ordinary pods are in the hand, an attempt of 10 ms is followed by 30 ms of
theirs, however long the turns of the loop are; where none is, by 30 ms in which one may come.

What a pod costs is told by the last attempt of one that asks the same, else by how much it asks for. Pods that differ in labels,
containers and volumes alone ask the same.

No I/O. Owner: the SchedulerCore. Memory: ASKED_MAX parts of pods, and the uid of each pod aside.
Cost: 0.1 µs for a small pod, else 0.5 µs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import IntEnum
from typing import Final, NamedTuple

from rayched.scheduler.scheduler import ATTEMPT_SECONDS
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Affinity, NodeSelectorTerm, Pod, PodAffinityTerm
from rayched.v1.meta_pb2 import LabelSelector

HEAVY_SECONDS: Final = 0.001
"""Ten times what an attempt of a template that is known takes."""
COSTLY_SECONDS: Final = 0.02
SLICES: Final = (0.1, 0.3, ATTEMPT_SECONDS)
"""What the attempts of a costly pod may take, one after the other, while ordinary pods come: each goes on with what the one
before it has computed, and the last one has what every attempt has."""
SHARE: Final = 0.25
"""Of the scheduler's time, for heavy attempts, and for costly ones, while others come."""
OTHERS_COME_SECONDS: Final = 1.0
"""Since an ordinary pod was decided: so long others are expected."""
SMALL_BYTES: Final = 512
"""A template of so many bytes cannot ask for much."""
MODEST: Final = 8
"""A pod with more terms, conditions and constraints is taken for heavy until an attempt has shown what it costs."""
CONDITIONS_MAX: Final = 48
"""With more it is taken for costly."""
ASKED_MAX: Final = 4_096
SUSPECT_SECONDS: Final = 0.1
"""What an attempt of a suspect may take."""
SUSPECT_PAUSE_SECONDS: Final = 10.0
SUSPECT_WAIT_SECONDS: Final = 60.0
DEATHS_MAX: Final = 3
"""A pod in whose cycles so many schedulers died is not tried any more, until its record expires."""


class Level(IntEnum):
    """What an attempt costs."""

    ORDINARY = 0
    HEAVY = 1
    COSTLY = 2


class Trial(NamedTuple):
    """A pod that was aside, and whose turn it is."""

    uid: str
    allowed: float
    """What the attempt may take."""
    goes_on: bool = False
    """One that takes longer is made again."""


class CostlyPods:
    """Pods that stepped aside. Times in seconds."""

    def __init__(self) -> None:
        self._heavy: deque[str] = deque()
        self._costly: deque[tuple[str, int]] = deque()
        """With the number of slices that each has had."""
        self._suspects: deque[tuple[str, float]] = deque()
        """With the time since when each waits."""
        self._known: OrderedDict[bytes, Level] = OrderedDict()
        """By what pods ask."""
        self._owed = {Level.HEAVY: 0.0, Level.COSTLY: 0.0}
        """Time that others are to have before the next attempt."""
        self._looked_at = 0.0
        self._next_suspect_at = 0.0
        self._ordinary_at = 0.0
        """When an ordinary pod was decided last."""
        self._taken: tuple[Level, str, int] = Level.ORDINARY, "", 0
        """Of the last turn: the level, the pod and its slices."""

    def __len__(self) -> int:
        return len(self._heavy) + len(self._costly) + len(self._suspects)

    def clear(self) -> None:
        """Nobody waits any more."""
        self._heavy.clear()
        self._costly.clear()
        self._suspects.clear()

    def steps_aside(self, uid: str, template: PodTemplate, deaths: int, now: float) -> bool:
        """Whether the pod waits for `take`. `deaths`: schedulers that died in its cycles."""
        if deaths:
            self._suspects.append((uid, now))
            return True
        match self.level(template):
            case Level.HEAVY:
                self._heavy.append(uid)
            case Level.COSTLY:
                self._costly.append((uid, 0))
            case _:
                return False
        return True

    def level(self, template: PodTemplate) -> Level:
        """What attempts for such pods cost, as far as is known."""
        if len(template.content) <= SMALL_BYTES:
            return Level.ORDINARY
        part = template.bare[-1]
        level = self._known.get(part)
        if level is None:
            conditions = conditions_of(template.pod)
            level = Level((conditions > MODEST) + (conditions > CONDITIONS_MAX))
            self._note(part, level)
        return level

    def ordinary(self, now: float, seconds: float) -> None:
        """Ordinary pods were decided, in so long."""
        self._ordinary_at = self._looked_at = now
        self._pay(seconds)

    def take(self, now: float, *, in_hand: bool, in_queue: bool) -> Trial | None:
        """Whose turn it is. Ordinary pods may be in the hand, or wait in the queue."""
        if not in_hand:
            self._pay(now - self._looked_at)
        self._looked_at = now
        alone = not in_hand and not in_queue
        if self._heavy and (alone or self._owed[Level.HEAVY] <= 0.0):
            uid = self._heavy.popleft()
            self._taken = Level.HEAVY, uid, 0
            return Trial(uid, ATTEMPT_SECONDS)
        nobody_comes = alone and now - self._ordinary_at >= OTHERS_COME_SECONDS
        if self._costly:
            if nobody_comes or self._owed[Level.COSTLY] <= 0.0:
                uid, slices = self._costly.popleft()
                self._taken = Level.COSTLY, uid, slices + 1
                allowed = ATTEMPT_SECONDS if nobody_comes else SLICES[slices]
                return Trial(uid, allowed, goes_on=allowed < ATTEMPT_SECONDS)
        elif self._suspects and now >= self._next_suspect_at:
            uid, since = self._suspects[0]
            if alone or now - since >= SUSPECT_WAIT_SECONDS:
                self._suspects.popleft()
                self._next_suspect_at = now + SUSPECT_PAUSE_SECONDS
                self._taken = Level.ORDINARY, uid, 0
                return Trial(uid, SUSPECT_SECONDS)
        return None

    def goes_on(self) -> None:
        """The attempt of the last turn is to be made again: it took what it may, and others come first."""
        _, uid, slices = self._taken
        self._costly.append((uid, slices))

    def due(self) -> float | None:
        """When to look again, where nothing else happens."""
        if self._heavy:
            return self._looked_at + self._owed[Level.HEAVY]
        if self._costly:
            return min(self._looked_at + self._owed[Level.COSTLY], self._ordinary_at + OTHERS_COME_SECONDS)
        return self._next_suspect_at if self._suspects else None

    def took(self, template: PodTemplate, seconds: float) -> None:
        """So much of the thread's time: to be told of attempts for pods that were aside, and of all that took HEAVY_SECONDS."""
        if len(template.content) > SMALL_BYTES:
            self._note(template.bare[-1], Level((seconds >= HEAVY_SECONDS) + (seconds >= COSTLY_SECONDS)))

    def was_aside(self, began: float, now: float) -> None:
        """The attempt of the last turn has ended. Others waited for as long as it lasted, whatever it computed."""
        self._looked_at = now
        if self._taken[0] in self._owed:
            self._owed[self._taken[0]] = (now - began) * (1.0 / SHARE - 1.0)

    def _pay(self, seconds: float) -> None:
        for level, owed in self._owed.items():
            self._owed[level] = max(0.0, owed - seconds)

    def _note(self, part: bytes, level: Level) -> None:
        self._known[part] = level
        self._known.move_to_end(part)
        if len(self._known) > ASKED_MAX:
            self._known.popitem(last=False)


def conditions_of(pod: Pod) -> int:
    """How much the pod asks of nodes and of other pods: its terms, conditions and constraints."""
    spec = pod.spec
    found = len(spec.tolerations) + len(spec.node_selector)
    for constraint in spec.topology_spread_constraints:
        found += 4 + _conditions(constraint.label_selector)
    return found + _of_affinity(spec.affinity) if spec.HasField("affinity") else found


def _of_affinity(affinity: Affinity) -> int:
    node, pods, apart = affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity
    found = sum(map(_of_node_term, node.required_during_scheduling_ignored_during_execution.node_selector_terms))
    found += sum(_of_node_term(one.preference) for one in node.preferred_during_scheduling_ignored_during_execution)
    for side in (pods, apart):
        found += sum(map(_of_term, side.required_during_scheduling_ignored_during_execution))
        found += sum(_of_term(one.pod_affinity_term) for one in side.preferred_during_scheduling_ignored_during_execution)
    return found


def _of_node_term(term: NodeSelectorTerm) -> int:
    return 1 + len(term.match_expressions) + len(term.match_fields)


def _of_term(term: PodAffinityTerm) -> int:
    return 2 + _conditions(term.label_selector) + _conditions(term.namespace_selector)


def _conditions(selector: LabelSelector) -> int:
    return len(selector.match_labels) + len(selector.match_expressions)
