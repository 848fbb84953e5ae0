"""Preemption for a group: which units have to go so that it fits, found in memory with all of the cluster as it then would be.

    all units off ──▶ does the minimum fit? ──▶ units back, one by one, while as many members fit ──▶ the rest has to go

* The order in which they come back: those whose end passes a hard limit, a budget, or cuts a gang, as long as it does so; then
  the more important ones. So each that stays off is one without which fewer members fit.
* A unit comes back against the places that were chosen: members on its nodes are placed anew, and where that does not do, and
  members differ or have rules among each other, all are.
* Of a large cluster not all units are taken off at once: first the least important ones, then as many again.
* A group with a topology asks this of each domain, and takes the one where it costs least.

What is tried happens in the snapshot itself and is undone. It costs the scheduler's time as an attempt does, gives signs of life,
and ends without a result where it takes too long.

A search runs in pieces, so that others have their turn (ADR 58, 69): it may rest while units are found and put in order, while
pods are taken off, and between two units that come back (`room_trial`).

Owner: PodGroups. Cost: the group's cycle, and for each unit on a node of the group a member's or two.
Source: workload-aware preemption of Kubernetes 1.37 (KEP 5710).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from typing import ClassVar, Final, TypeVar

from rayched.core.groups.group_cycle import GroupCycle, GroupFailure, GroupPlacement, GroupQuestion
from rayched.core.groups.room_trial import RoomTrial
from rayched.core.groups.search_time import NoRoomInTime, SearchTime, somebody
from rayched.core.groups.victim_units import (
    PART_UNITS,
    GroupOf,
    Harm,
    Losses,
    UnitSearch,
    VictimUnit,
    VictimUnits,
    first_to_go,
    members_on_nodes,
    rank,
)
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.scheduler.candidates import Victim
from rayched.scheduler.scheduler import ATTEMPT_SECONDS, Scheduler
from rayched.snapshot.snapshot import Snapshot

VICTIMS_MAX: Final = 1_000
"""Pods that may have to go for one group."""
UNITS_AT_FIRST: Final = 256
PIECE_SECONDS: Final = 0.02
"""Of a search, with what it takes to take pods off and to put them back: 10 µs for each that is off."""


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


T = TypeVar("T")

Pieces = Generator[None, None, "RoomForGroup | str | None"]
"""A search: it rests at each step, and ends with what it found."""


def run(pieces: Generator[None, None, T]) -> T:
    """All pieces, one after the other."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result


class GroupPreemption:
    """Finds room for groups."""

    RULE_VICTIMS_ARE_NEEDED: ClassVar[bool] = True
    RULE_UNITS_STAY_WHOLE: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self, snapshot: Snapshot, scheduler: Scheduler, cycle: GroupCycle, group_of: GroupOf) -> None:
        self._snapshot, self._scheduler, self._cycle, self._group_of = snapshot, scheduler, cycle, group_of

    def room(
        self,
        asked: GroupQuestion,
        overdue: Collection[str],
        only: Collection[str] | None = None,
        seconds: float = ATTEMPT_SECONDS,
    ) -> RoomForGroup | str:
        """The result of `search`, in one piece of so many seconds."""
        return run(self.search(asked, overdue, only, seconds, piece=inf))

    def have_grown(self, units: Iterable[VictimUnit]) -> bool:
        """Whether a group that ends as a whole has another member on a node by now."""
        for unit in units:
            if unit.whole:
                known = {victim.uid for victim in unit.victims}
                members = members_on_nodes(self._snapshot, self._group_of(unit.whole))
                if any(member.uid not in known for member in members):
                    return True
        return False

    def search(
        self,
        asked: GroupQuestion,
        overdue: Collection[str],
        only: Collection[str] | None = None,
        seconds: float = ATTEMPT_SECONDS,
        piece: float = PIECE_SECONDS,
        others_wait: Callable[[], bool] = somebody,
        *,
        gives_way: bool = False,
    ) -> Generator[None, None, RoomForGroup | str]:
        """What has to go for the group, or why nothing helps. The members hold no room.

        `only`: of units with such pods alone. `others_wait`, `gives_way`: see SearchTime. Where it rests nothing of it is in the
        snapshot; whoever does not go on closes it. The group has to be as it was asked about when it goes on. Raises PluginError
        as a cycle does, and NoRoomInTime.
        """
        args, key = self._args(asked), asked.state.topology
        if args is None:
            return "the profile has none."
        started_max = asked.now_unix - args.min_runtime_seconds if args.min_runtime_seconds else float("inf")
        time = SearchTime(self._snapshot.work.now, seconds, piece, others_wait, gives_way=gives_way)
        asked = replace(asked, breaks_off=time.is_late) if gives_way else asked
        topology = self._snapshot.topology(key) if key else None
        version = topology.version if topology is not None else 0
        pieces = self._units(asked, started_max, overdue, only, time)
        try:
            while True:
                time.begin()
                with self._cycle.trial():
                    try:
                        next(pieces)
                    except StopIteration as end:
                        result: RoomForGroup | str = end.value
                        return result
                time.rest()
                yield
                if topology is not None:
                    topology.refresh()
                if topology is not None and topology.version != version:
                    raise NoRoomInTime("nodes of its topology changed while pods were looked for that would have to end")
        finally:
            pieces.close()

    def _units(
        self, asked: GroupQuestion, started_max: float, overdue: Collection[str], only: Collection[str] | None, time: SearchTime
    ) -> Pieces:
        group = asked.state.group
        assert group is not None
        search = UnitSearch(self._snapshot, self._group_of, group.spec.priority, started_max, overdue, only)
        found = yield from search.found(time)
        if not found.units and not found.leaving:
            return "no pods of lower priority may go."
        return (yield from self._room(asked, found, time))

    def _room(self, asked: GroupQuestion, found: VictimUnits, time: SearchTime) -> Pieces:
        state = asked.state
        if not state.topology:
            return (yield from self._in_bounds(asked, found, partial(self._cycle.anywhere, asked), time))
        by_node: defaultdict[str, list[VictimUnit]] = defaultdict(list)
        for count, unit in enumerate(found.units, 1):
            for name in {victim.pod.node_name for victim in unit.victims}:
                by_node[name].append(unit)
            if not count % PART_UNITS and time.is_piece_over:
                yield
        rooms: list[RoomForGroup] = []
        for domain in self._cycle.domains(state):
            names = {self._snapshot.name_of(row) for row in domain.rows.tolist()}
            there = list(dict.fromkeys(unit for name in names for unit in by_node.get(name, ())))
            leaving = [victim for victim in found.leaving if victim.pod.node_name in names]
            if not there and not leaving:
                continue
            local = VictimUnits(there, found.allowed, leaving)
            place = partial(self._cycle.within, domain, asked)
            room = yield from self._in_bounds(asked, local, place, time, domain.beyond)
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
        time: SearchTime,
        beyond: frozenset[int] | None = None,
    ) -> Pieces:
        parts: list[list[VictimUnit]] = []
        for part in found.parts():
            parts.append(part)
            if time.is_piece_over:
                yield
        n_off, off, coming = min(len(found.units), UNITS_AT_FIRST), list[VictimUnit](), first_to_go(parts)
        while True:
            while len(off) < n_off:
                off += islice(coming, min(PART_UNITS, n_off - len(off)))
                if time.is_piece_over:
                    yield
            trial = RoomTrial(self._snapshot, self._scheduler, self._cycle, asked, place, time, beyond)
            try:
                # Those that are to be spared before the others come first.
                result = yield from self._tried(trial, found, off[::-1], time)
            finally:
                trial.end()
            if result is not None:
                return result
            if n_off == len(found.units):
                return "no pods of lower priority make room for the minimum."
            n_off = min(len(found.units), 2 * n_off)
            if time.is_piece_over:
                yield

    def _tried(self, trial: RoomTrial, found: VictimUnits, off: list[VictimUnit], time: SearchTime) -> Pieces:
        """None: the minimum does not fit with these off."""
        yield from trial.take_off((*(victim for unit in off for victim in unit.victims), *found.leaving))
        time.in_place()
        if not trial.place_all():
            return None
        gone, losses = dict.fromkeys(off), Losses(found, off)
        for harm in (*Harm, None) if self.RULE_VICTIMS_ARE_NEEDED else ():
            for unit in list(gone):
                if time.is_piece_over:
                    trial.rest()
                    yield
                    yield from trial.go_on()
                    time.resumed()
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
