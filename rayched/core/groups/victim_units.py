"""Who may have to go for a group, in units that end as one, and what each of them costs.

A unit is a pod of its own, a member of a group whose members end one by one (`disruptionMode: single`), or all members of one
that ends as a whole (`all`), wherever they are. It may go if every pod of it may: of lower priority than the group, and running
for as long as the profile asks for.

| in the way | what it means |
|---|---|
| hard limit | a budget that preemption keeps: no more than it allows may go |
| budget | a budget that allows no more: as a last resort |
| cut | a gang of single mode loses so many that fewer than its minCount are left: as the last but one |

Pods that are ending already count as gone and are nobody's victims, but for those that were to be gone by now.

Pure. Cost: 2 µs a pod of lower priority.
Source: workload-aware preemption of Kubernetes 1.37 (KEP 5710); cuts and hard limits are our own.
"""

from __future__ import annotations

import enum
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rayched.core.groups.membership import GroupState
from rayched.core.groups.search_time import SearchTime
from rayched.scheduler.candidates import PRIORITIES_BELOW_ZERO, Victim
from rayched.snapshot.snapshot import Snapshot

UNIT_PODS_MAX: Final = 400
"""A group of mode `all` with more members cannot be ended by one write, and is spared."""

PART_UNITS: Final = 1_024
"""Units that are put in order at a stretch."""

GroupOf = Callable[[str], GroupState | None]
"""The group of this namespace/name."""


class Harm(enum.IntEnum):
    """What is to be kept from harm, the first one before all others."""

    HARD_LIMIT = 0
    BUDGET = 1
    CUT = 2


class Allowance(NamedTuple):
    """Something that may lose so many pods without harm."""

    harm: Harm
    name: str
    """namespace/name of the budget or the gang."""


@dataclass(frozen=True, slots=True, eq=False)
class VictimUnit:
    """Pods that end together."""

    victims: tuple[Victim, ...]
    whole: str = ""
    """namespace/name of the group that ends as a whole; "": a pod."""
    uses: Mapping[Allowance, int] = field(default_factory=dict)
    """How many of its pods count for each."""

    @property
    def worth(self) -> tuple[int, int, bool, int, float, str]:
        """The lowest is to be spared before all others: who does harm, then the most important one by priority, groups before
        pods, the larger group, the earlier start."""
        harm = min((one.harm for one in self.uses), default=len(Harm))
        priority = max(victim.pod.template.priority for victim in self.victims)
        started = min(victim.pod.facts.started for victim in self.victims)
        size = len(self.victims) if self.whole else 0
        return harm, -priority, not self.whole, -size, started, self.victims[0].uid

    @property
    def likeness(self) -> tuple[tuple[str, int], ...]:
        """Units with the same take the same room from the same nodes."""
        return tuple(sorted((victim.pod.node_name, victim.pod.template.id) for victim in self.victims))


@dataclass(frozen=True, slots=True)
class VictimUnits:
    """All units that may have to go."""

    units: list[VictimUnit]
    allowed: Mapping[Allowance, int]
    """How many pods each may lose."""
    leaving: list[Victim]
    """Pods of lower priority that are ending already."""

    def parts(self) -> Iterator[list[VictimUnit]]:
        """PART_UNITS of them each, in order: the first ones go before all others."""
        for first in range(0, len(self.units), PART_UNITS):
            yield sorted(self.units[first : first + PART_UNITS], key=_worth, reverse=True)


def first_to_go(parts: Iterable[list[VictimUnit]]) -> Iterator[VictimUnit]:
    """All of the parts in order, each one as it is asked for."""
    return heapq.merge(*parts, key=_worth, reverse=True)


def _worth(unit: VictimUnit) -> tuple[int, int, bool, int, float, str]:
    return unit.worth


class Losses:
    """How much of each allowance is used by the units that are off."""

    def __init__(self, found: VictimUnits, off: Collection[VictimUnit]) -> None:
        self._allowed, self._lost = found.allowed, Counter[Allowance]()
        for unit in off:
            self._lost.update(unit.uses)

    def spared(self, unit: VictimUnit) -> None:
        self._lost.subtract(unit.uses)

    def harms(self, unit: VictimUnit, harm: Harm) -> bool:
        """Whether the unit counts for something that loses more than it may."""
        return any(one.harm is harm and self._lost[one] > self._allowed[one] for one in unit.uses)

    def are_too_many(self) -> bool:
        """A hard limit is passed."""
        return any(one.harm is Harm.HARD_LIMIT and lost > self._allowed[one] for one, lost in self._lost.items())

    def beyond(self, harm: Harm) -> int:
        """Pods beyond what is allowed."""
        return sum(max(0, lost - self._allowed[one]) for one, lost in self._lost.items() if one.harm is harm)


def rank(units: Collection[VictimUnit], losses: Losses) -> tuple[int, int, int, int, int]:
    """Of what a preemption costs; lower is better: budgets passed, gangs cut, highest priority, their sum, pods."""
    priorities = [victim.pod.template.priority for unit in units for victim in unit.victims]
    total = sum(priorities) + PRIORITIES_BELOW_ZERO * len(priorities)
    highest = max(priorities, default=-PRIORITIES_BELOW_ZERO)
    return losses.beyond(Harm.BUDGET), losses.beyond(Harm.CUT), highest, total, len(priorities)


def members_on_nodes(snapshot: Snapshot, state: GroupState | None) -> list[Victim]:
    """Members that take up room and are not ending, those among them that are not seen on their node yet."""
    members = () if state is None else (*state.bound, *state.waiting)
    there = [(uid, snapshot.bound(uid)) for uid in members]
    return [Victim(uid, pod) for uid, pod in there if pod is not None and not pod.terminating]


class UnitSearch:
    """Finds the units that may have to go for one group."""

    def __init__(
        self,
        snapshot: Snapshot,
        group_of: GroupOf,
        priority: int,
        started_max: float,
        overdue: Collection[str],
        only: Collection[str] | None = None,
    ) -> None:
        """`started_max`: who started later is spared. `overdue`: uids of pods that were to be gone by now. `only`: units with
        such pods alone."""
        self._snapshot, self._group_of, self._priority = snapshot, group_of, priority
        self._started_max, self._overdue, self._only = started_max, overdue, only
        self._allowed: dict[Allowance, int] = {}
        self._units: list[VictimUnit] = []
        self._leaving: list[Victim] = []
        self._wholes: dict[str, None] = {}
        """Groups that end as a whole, in the order in which they were met."""

    def found(self, time: SearchTime) -> Generator[None, None, VictimUnits]:
        """In pieces, node by node: it rests where a piece is over. Nothing changes by it. Raises NoRoomInTime."""
        snapshot = self._snapshot
        for node_name in snapshot.bound_node_names():
            snapshot.work.spend()
            time.spend()
            # One that has gone meanwhile has no row, or no pods.
            if snapshot.row_of(node_name) is not None:
                self._look_at(node_name)
            if time.is_piece_over:
                yield
        # Members may have come and gone while it rested: who they are is looked up when everything else is known.
        for name in self._wholes:
            victims = members_on_nodes(snapshot, self._group_of(name))
            if victims and len(victims) <= UNIT_PODS_MAX and all(map(self._may_go, victims)):
                self._units.append(VictimUnit(tuple(victims), name, self._uses(victims)))
        return VictimUnits(self._units, self._allowed, self._leaving)

    def _look_at(self, node_name: str) -> None:
        snapshot, priority = self._snapshot, self._priority
        for uid, template in snapshot.pods_on(node_name).items():
            if template.priority >= priority and not template.pod_group:
                continue
            victim = Victim(uid, snapshot.known(uid))
            if self._only is not None and uid not in self._only and not victim.pod.terminating:
                continue
            whole = f"{template.namespace}/{template.pod_group}" if template.pod_group else ""
            state = self._group_of(whole) if whole else None
            if victim.pod.terminating:
                if template.priority < priority and uid not in self._overdue:
                    self._leaving.append(victim)
            elif state is not None and state.ends_whole:
                self._wholes[whole] = None
            elif self._may_go(victim):
                self._units.append(VictimUnit((victim,), uses=self._uses((victim,))))

    def _may_go(self, victim: Victim) -> bool:
        pod = victim.pod
        return pod.template.priority < self._priority and pod.facts.started <= self._started_max

    def _uses(self, victims: Collection[Victim]) -> Mapping[Allowance, int]:
        uses: Counter[Allowance] = Counter()
        for victim in victims:
            template = victim.pod.template
            name = victim.pod.facts.name.partition("/")[2]
            for budget in self._snapshot.budgets.of(template.namespace):
                if budget.counts(template.namespace, name, template.labels):
                    harm = Harm.HARD_LIMIT if budget.is_hard else Harm.BUDGET
                    one = Allowance(harm, f"{budget.namespace}/{budget.name}")
                    self._allowed[one] = budget.allowed
                    uses[one] += 1
            state = self._group_of(f"{template.namespace}/{template.pod_group}") if template.pod_group else None
            # One that is below its minimum already cannot be cut below it.
            if state is not None and not state.ends_whole and state.is_gang and (spare := state.satisfied - state.min_count) >= 0:
                one = Allowance(Harm.CUT, state.name)
                self._allowed[one] = spare
                uses[one] += 1
        return uses
