"""Preemption for a group: which units have to go so that it fits, found in memory with all of the cluster as it then would be.

    all units off ──▶ does the minimum fit? ──▶ units back, one by one, while as many members fit ──▶ the rest has to go

* The order in which they come back: those whose end passes a hard limit, a budget, or cuts a gang, as long as it does so; then
  the more important ones. So each that stays off is one without which fewer members fit.
* A unit comes back against the places that were chosen: members on its nodes are placed anew, and where that does not do, and
  members differ or have rules among each other, all are.
* Of a large cluster not all units are taken off at once: first the least important ones, then as many again.
* A group with a topology asks this of each domain, and takes the one where it costs least.

What is tried happens in the snapshot itself and is undone; nobody else runs meanwhile. It costs the scheduler's time as an
attempt does, gives signs of life, and ends without a result where it takes too long.

Owner: PodGroups. Cost: the group's cycle, and for each unit on a node of the group a member's or two.
Source: workload-aware preemption of Kubernetes 1.37 (KEP 5710).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from rayched.core.groups.group_cycle import GroupCycle, GroupFailure, GroupPlacement, GroupQuestion
from rayched.core.groups.victim_units import GroupOf, Harm, Losses, UnitSearch, VictimUnit, VictimUnits, rank
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.candidates import Victim
from rayched.scheduler.scheduler import ATTEMPT_SECONDS, Scheduler
from rayched.snapshot.snapshot import BoundPod, Snapshot

VICTIMS_MAX: Final = 1_000
"""Pods that may have to go for one group."""
UNITS_AT_FIRST: Final = 256


@dataclass(frozen=True, slots=True)
class RoomForGroup:
    """What would make the group fit."""

    nodes: dict[str, str]
    """Where its members would go, by uid."""
    units: tuple[VictimUnit, ...]
    """Those that have to go; none where the group fits once pods have gone that are ending already."""
    leaving: tuple[Victim, ...]
    """Pods that are ending already."""
    rank: tuple[int, ...]

    @property
    def victims(self) -> list[Victim]:
        return [victim for unit in self.units for victim in unit.victims]


class NoRoomInTime(Exception):
    """It would take too long to find out."""


class GroupPreemption:
    """Finds room for groups."""

    RULE_VICTIMS_ARE_NEEDED: ClassVar[bool] = True
    RULE_UNITS_STAY_WHOLE: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self, snapshot: Snapshot, scheduler: Scheduler, cycle: GroupCycle, group_of: GroupOf) -> None:
        self._snapshot, self._scheduler, self._cycle, self._group_of = snapshot, scheduler, cycle, group_of

    def room(self, asked: GroupQuestion, overdue: Collection[str], only: Collection[str] | None = None) -> RoomForGroup | str:
        """What has to go for the group, or why nothing helps. The members hold no room.

        `only`: of units with such pods alone. Raises PluginError as a cycle does.
        """
        state, args = asked.state, self._args(asked)
        if args is None:
            return "the profile has none."
        group = state.group
        assert group is not None
        started_max = asked.now_unix - args.min_runtime_seconds if args.min_runtime_seconds else float("inf")
        found = UnitSearch(self._snapshot, self._group_of, group.spec.priority, started_max, overdue).found()
        if only is not None:
            kept = [unit for unit in found.units if any(victim.uid in only for victim in unit.victims)]
            found = replace(found, units=kept)
        if not found.units and not found.leaving:
            return "no pods of lower priority may go."
        with self._cycle.trial():
            return self._room(asked, found)

    def _room(self, asked: GroupQuestion, found: VictimUnits) -> RoomForGroup | str:
        state, until = asked.state, self._snapshot.work.now() + ATTEMPT_SECONDS
        if not state.topology:
            return self._in_bounds(asked, found, partial(self._cycle.anywhere, asked), until)
        rooms: list[RoomForGroup] = []
        for domain in self._cycle.domains(state):
            names = {self._snapshot.name_of(row) for row in domain.rows.tolist()}
            there = [unit for unit in found.units if any(one.pod.node_name in names for one in unit.victims)]
            leaving = [victim for victim in found.leaving if victim.pod.node_name in names]
            if not there and not leaving:
                continue
            local = VictimUnits(there, found.allowed, leaving)
            room = self._in_bounds(asked, local, partial(self._cycle.within, domain, asked), until, domain.beyond)
            if isinstance(room, RoomForGroup):
                rooms.append(room)
        return min(rooms, key=lambda room: room.rank) if rooms else "no pods of lower priority make room for the minimum."

    def _args(self, asked: GroupQuestion) -> DefaultPreemptionArgs | None:
        return self._scheduler.profiles.of(asked.members[0].template.scheduler_name).preemption_args

    def _in_bounds(
        self,
        asked: GroupQuestion,
        found: VictimUnits,
        place: Callable[[], GroupPlacement | GroupFailure],
        until: float,
        beyond: frozenset[int] | None = None,
    ) -> RoomForGroup | str:
        order = found.in_order()
        n_off = min(len(order), UNITS_AT_FIRST)
        while True:
            # The last ones of the order are the first to go.
            off = order[len(order) - n_off :]
            trial = _RoomTrial(self._snapshot, self._scheduler, self._cycle, asked, place, until, beyond)
            try:
                result = self._tried(trial, found, off)
            finally:
                trial.end()
            if result is not None:
                return result
            if n_off == len(order):
                return "no pods of lower priority make room for the minimum."
            n_off = min(len(order), 2 * n_off)

    def _tried(self, trial: _RoomTrial, found: VictimUnits, off: list[VictimUnit]) -> RoomForGroup | str | None:
        """None: the minimum does not fit with these off."""
        trial.take_off(victim for unit in off for victim in unit.victims)
        trial.take_off(found.leaving)
        if not trial.place_all():
            return None
        gone, losses = dict.fromkeys(off), Losses(found, off)
        for harm in (*Harm, None) if self.RULE_VICTIMS_ARE_NEEDED else ():
            for unit in list(gone):
                if (harm is None or losses.harms(unit, harm)) and trial.comes_back(unit):
                    del gone[unit]
                    losses.spared(unit)
        if self.RULE_VICTIMS_ARE_NEEDED:
            # Members may have moved since it was asked about these.
            for unit in trial.in_nobodys_way(gone):
                trial.put_back(unit)
                del gone[unit]
                losses.spared(unit)
        if losses.are_too_many():
            return None if len(off) < len(found.units) else "hard disruption budgets protect the pods that would have to go."
        units = list(gone)
        if sum(len(unit.victims) for unit in units) > VICTIMS_MAX:
            return f"more than {VICTIMS_MAX} pods would have to go."
        if not self.RULE_UNITS_STAY_WHOLE:
            units = [replace(unit, victims=unit.victims[:1]) for unit in units]
        nodes = {attempt.uid: attempt.node_name for attempt in trial.attempts.values()}
        return RoomForGroup(nodes, tuple(units), tuple(found.leaving), rank(units, losses))


class _RoomTrial:
    """The snapshot without some pods and with the group in their place; `end` puts all of it back."""

    def __init__(
        self,
        snapshot: Snapshot,
        scheduler: Scheduler,
        cycle: GroupCycle,
        asked: GroupQuestion,
        place: Callable[[], GroupPlacement | GroupFailure],
        until: float,
        beyond: frozenset[int] | None,
    ) -> None:
        self._snapshot, self._scheduler, self._cycle = snapshot, scheduler, cycle
        self._asked, self._place, self._until, self._beyond = asked, place, until, beyond
        self._off: dict[str, BoundPod] = {}
        self._orders: dict[str, list[str]] = {}
        """Pods of the nodes that some were taken off, as they stood."""
        self._n_freed = len(scheduler.freed)
        self._refused: set[tuple[tuple[str, int], ...]] = set()
        """Units like these have not come back: nor will others."""
        self.attempts: dict[str, Attempt] = {}
        """Of the members that are placed, by uid."""
        templates = {member.template for member in asked.members}
        self._members_have_rules = self._has_rules = any(template.mentions_labels for template in templates)
        """Where one goes may depend on who is on other nodes; `_has_rules`: as victims say so, too."""
        self._is_mixed = len(templates) > 1

    def take_off(self, victims: Iterable[Victim]) -> None:
        for victim in victims:
            node_name = victim.pod.node_name
            if node_name not in self._orders:
                self._orders[node_name] = list(self._snapshot.pods_on(node_name))
            self._has_rules |= victim.pod.template.has_affinity
            self._off[victim.uid] = victim.pod
            self._snapshot.unbind(victim.uid)
            self._in_time()

    def place_all(self) -> bool:
        """Whether the minimum fits."""
        placed = self._place()
        if isinstance(placed, GroupPlacement):
            self.attempts = {attempt.uid: attempt for attempt in placed.attempts}
        return isinstance(placed, GroupPlacement)

    def comes_back(self, unit: VictimUnit) -> bool:
        """Puts the unit back if as many members fit beside it; else all is as before."""
        self._in_time()
        likeness = unit.likeness
        if likeness in self._refused:
            return False
        nodes = {victim.pod.node_name for victim in unit.victims}
        moved = [uid for uid, attempt in self.attempts.items() if self._has_rules or attempt.node_name in nodes]
        before = {uid: self.attempts[uid].node_name for uid in moved}
        self._lift(moved)
        self.put_back(unit)
        if self._lower(moved, {}):
            return True
        if (self._is_mixed or self._has_rules) and self._all_anew(before):
            return True
        self._refused.add(likeness)
        self._lift([uid for uid in moved if uid in self.attempts])
        self._unbind(unit)
        if not self._lower([uid for uid in before if uid not in self.attempts], before):
            raise NoRoomInTime("the members did not find back to where they were")
        return False

    def in_nobodys_way(self, units: Iterable[VictimUnit]) -> list[VictimUnit]:
        """Those with no member on their nodes, where neither they nor members care who is on other nodes."""
        if self._members_have_rules:
            return []
        taken = {attempt.node_name for attempt in self.attempts.values()}
        return [
            unit
            for unit in units
            if not any(victim.pod.template.has_affinity or victim.pod.node_name in taken for victim in unit.victims)
        ]

    def put_back(self, unit: VictimUnit) -> None:
        """It stays, and nobody moves for it."""
        for victim in unit.victims:
            pod = self._off.pop(victim.uid)
            self._snapshot.bind(victim.uid, pod.template, pod.node_name, terminating=pod.terminating, facts=pod.facts)

    def end(self) -> None:
        """As if it had never been."""
        self._lift(list(self.attempts))
        for uid, pod in self._off.items():
            self._snapshot.bind(uid, pod.template, pod.node_name, terminating=pod.terminating, facts=pod.facts)
        self._off.clear()
        for node_name, order in self._orders.items():
            self._snapshot.put_in_order(node_name, order)
        self._orders.clear()
        del self._scheduler.freed[self._n_freed :]

    # ---------------------------------------------------------------------------------------------------------- private

    def _in_time(self) -> None:
        work = self._snapshot.work
        work.spend()
        if work.now() >= self._until:
            raise NoRoomInTime(f"finding room for the group takes more than {ATTEMPT_SECONDS:g} s of the scheduler's time")

    def _unbind(self, unit: VictimUnit) -> None:
        for victim in unit.victims:
            self._off[victim.uid] = victim.pod
            self._snapshot.unbind(victim.uid)

    def _lift(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._scheduler.roll_back(self.attempts.pop(uid))

    def _lower(self, uids: Collection[str], at: dict[str, str]) -> bool:
        """Places these members, each on its node where one is given; False: one of them finds none."""
        wanted = set(uids)
        for member in self._asked.members:
            if member.uid not in wanted:
                continue
            if member.uid in at:
                self._scheduler.nominations.nominate(member.uid, member.template, at[member.uid])
            placed = self._cycle.place_one(member, self._asked, self._beyond)
            self._scheduler.nominations.forget(member.uid)
            if not isinstance(placed, Attempt):
                return False
            self.attempts[member.uid] = placed
            if member.uid in at and placed.node_name != at[member.uid]:
                return False
        return True

    def _all_anew(self, before: dict[str, str]) -> bool:
        """Places all members from the beginning; False: not so many, and those that were not in `before` are where they were."""
        n_placed = len({*self.attempts, *before})
        others = {uid: attempt.node_name for uid, attempt in self.attempts.items() if uid not in before}
        self._lift(list(self.attempts))
        placed = self._place()
        if isinstance(placed, GroupPlacement):
            if len(placed.attempts) >= n_placed:
                self.attempts = {attempt.uid: attempt for attempt in placed.attempts}
                return True
            self._cycle.undo(placed)
        before.update(others)
        return False
