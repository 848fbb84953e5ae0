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
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rayched.core.groups.membership import GroupState
from rayched.scheduler.candidates import PRIORITIES_BELOW_ZERO, Victim
from rayched.snapshot.snapshot import Snapshot

UNIT_PODS_MAX: Final = 400
"""A group of mode `all` with more members cannot be ended by one write, and is spared."""

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
    def importance(self) -> tuple[int, bool, int, float, str]:
        """The most important unit has the lowest: by priority; groups before pods; the larger group, the earlier start."""
        priority = max(victim.pod.template.priority for victim in self.victims)
        started = min(victim.pod.facts.started for victim in self.victims)
        return -priority, not self.whole, -len(self.victims) if self.whole else 0, started, self.victims[0].uid

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

    def in_order(self) -> list[VictimUnit]:
        """The first one is to be spared before all others: those that do harm, then the most important ones."""
        return sorted(self.units, key=lambda unit: (min((one.harm for one in unit.uses), default=len(Harm)), unit.importance))


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


class UnitSearch:
    """Finds the units that may have to go for one group."""

    def __init__(
        self, snapshot: Snapshot, group_of: GroupOf, priority: int, started_max: float, overdue: Collection[str]
    ) -> None:
        """`started_max`: who started later is spared. `overdue`: uids of pods that were to be gone by now."""
        self._snapshot, self._group_of, self._priority = snapshot, group_of, priority
        self._started_max, self._overdue = started_max, overdue
        self._allowed: dict[Allowance, int] = {}

    def found(self) -> VictimUnits:
        pods: list[Victim] = []
        leaving: list[Victim] = []
        wholes: defaultdict[str, list[Victim]] = defaultdict(list)
        for victim in self._bound():
            template = victim.pod.template
            whole = f"{template.namespace}/{template.pod_group}" if template.pod_group else ""
            state = self._group_of(whole) if whole else None
            if victim.pod.terminating:
                if template.priority < self._priority and victim.uid not in self._overdue:
                    leaving.append(victim)
            elif state is not None and state.ends_whole:
                wholes[whole].append(victim)
            elif self._may_go(victim):
                pods.append(victim)
        units = [VictimUnit((victim,), uses=self._uses((victim,))) for victim in pods]
        for name, victims in wholes.items():
            if len(victims) <= UNIT_PODS_MAX and all(map(self._may_go, victims)):
                units.append(VictimUnit(tuple(victims), name, self._uses(victims)))
        return VictimUnits(units, self._allowed, leaving)

    def _bound(self) -> Iterator[Victim]:
        snapshot, priority = self._snapshot, self._priority
        for node_name in snapshot.bound_node_names():
            if snapshot.row_of(node_name) is None:
                continue
            snapshot.work.spend()
            for uid, template in snapshot.pods_on(node_name).items():
                if template.priority < priority or template.pod_group:
                    yield Victim(uid, snapshot.known(uid))

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
