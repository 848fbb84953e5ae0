"""The snapshot without some pods and with a group in their place, while it is asked who of them could come back.

While pods are taken off, and between two units that come back, it may rest: whoever is off is put back and members are lifted, so
that others see the cluster as it is. Where it goes on, units that are still there are taken off again and members go to their
nodes, or elsewhere where others have taken these. Pods that have gone meanwhile do not come back; where fewer members fit by now
the search has been overtaken.

Owner: one search. Cost: about 10 µs for each pod that is taken off or put back, and what it costs to place the members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from rayched.core.groups.group_cycle import GroupCycle, GroupFailure, GroupPlacement, GroupQuestion
from rayched.core.groups.search_time import NoRoomInTime, SearchTime
from rayched.core.groups.victim_units import VictimUnit
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.candidates import Victim
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.snapshot import BoundPod, Snapshot

OFF_AT_A_STRETCH: Final = 64
"""Pods that are taken off between two looks at the time: some 0.3 ms."""


class RoomTrial:
    """The snapshot without some pods and with the group in their place; `end` puts all of it back."""

    def __init__(
        self,
        snapshot: Snapshot,
        scheduler: Scheduler,
        cycle: GroupCycle,
        asked: GroupQuestion,
        place: Callable[[], GroupPlacement | GroupFailure],
        time: SearchTime,
        beyond: frozenset[int] | None,
    ) -> None:
        self._snapshot, self._scheduler, self._cycle = snapshot, scheduler, cycle
        self._asked, self._place, self._time, self._beyond = asked, place, time, beyond
        self._off: dict[str, BoundPod] = {}
        self._orders: dict[str, list[str]] = {}
        """Pods of the nodes that some were taken off, as they stood."""
        self._places: dict[str, str] = {}
        """Where members are to be again, by uid, while it rests."""
        self._rests = False
        self._n_freed = len(scheduler.freed)
        self._refused: set[tuple[tuple[str, int], ...]] = set()
        """Units like these have not come back: nor will others."""
        self.attempts: dict[str, Attempt] = {}
        """Of the members that are placed, by uid."""
        templates = {member.template for member in asked.members}
        self._members_have_rules = self._has_rules = any(template.mentions_labels for template in templates)
        """Where one goes may depend on who is on other nodes; `_has_rules`: as victims say so, too."""
        self._is_mixed = len(templates) > 1

    def take_off(self, victims: Iterable[Victim]) -> Iterator[None]:
        """It rests where that takes too long for others. At its end all of them are off."""
        for count, victim in enumerate(victims, 1):
            there = self._snapshot.bound(victim.uid)
            if there is not None and there.node_name == victim.pod.node_name:
                self._has_rules |= there.template.has_affinity
                self._off[victim.uid] = there
                self._unbind_one(victim.uid, there.node_name)
            if not count % OFF_AT_A_STRETCH:
                self._in_time()
                if self._time.is_in_vain():
                    self.rest()
                    yield
                    yield from self.go_on()
        self._in_time()

    def place_all(self) -> bool:
        """Whether the minimum fits."""
        placed = self._placed()
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
            pod = self._off.pop(victim.uid, None)
            # One that has gone while the search rested does not come back.
            if pod is None:
                continue
            self._snapshot.bind(victim.uid, pod.template, pod.node_name, terminating=pod.terminating, facts=pod.facts)

    def rest(self) -> None:
        """As if it had never been, until it goes on."""
        self._places = {uid: attempt.node_name for uid, attempt in self.attempts.items()}
        self._put_all_back()
        self._rests = True

    def go_on(self) -> Iterator[None]:
        """As it was when it began to rest, but for pods that have gone. It may rest again before that. Raises NoRoomInTime."""
        while not self._is_off_again():
            yield
        places, self._places = self._places, {}
        if not self._lower(places, places):
            # Elsewhere, as far as others have taken the room.
            self._lift(list(self.attempts))
            if not self.place_all() or len(self.attempts) < len(places):
                raise NoRoomInTime("others took room meanwhile that the group was to have")

    def end(self) -> None:
        """As if it had never been."""
        if not self._rests:
            self._put_all_back()
        self._off.clear()

    def _is_off_again(self) -> bool:
        """False: that was in vain, and all of them are back."""
        self._rests = False
        self._n_freed = len(self._scheduler.freed)
        # There may be room by now that was not there.
        self._refused.clear()
        rested, self._off = self._off, {}
        for count, (uid, pod) in enumerate(rested.items(), 1):
            there = self._snapshot.bound(uid)
            if there is not None and there.node_name == pod.node_name:
                self._off[uid] = there
                self._unbind_one(uid, there.node_name)
            if not count % OFF_AT_A_STRETCH and self._time.is_in_vain():
                self._put_all_back()
                self._off, self._rests = rested, True
                return False
        return True

    def _put_all_back(self) -> None:
        self._lift(list(self.attempts))
        for uid, pod in self._off.items():
            self._snapshot.bind(uid, pod.template, pod.node_name, terminating=pod.terminating, facts=pod.facts)
        for node_name, order in self._orders.items():
            self._snapshot.put_in_order(node_name, order)
        self._orders.clear()
        del self._scheduler.freed[self._n_freed :]

    # ---------------------------------------------------------------------------------------------------------- private

    def _in_time(self) -> None:
        self._snapshot.work.spend()
        self._time.spend()

    def _placed(self) -> GroupPlacement | GroupFailure:
        placed = self._place()
        if isinstance(placed, GroupFailure) and placed.is_broken_off:
            raise NoRoomInTime("others came between")
        return placed

    def _unbind(self, unit: VictimUnit) -> None:
        for victim in unit.victims:
            there = self._snapshot.bound(victim.uid)
            if there is not None and there.node_name == victim.pod.node_name:
                self._off[victim.uid] = there
                self._snapshot.unbind(victim.uid)

    def _unbind_one(self, uid: str, node_name: str) -> None:
        if node_name not in self._orders:
            self._orders[node_name] = list(self._snapshot.pods_on(node_name))
        self._snapshot.unbind(uid)

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
        placed = self._placed()
        if isinstance(placed, GroupPlacement):
            if len(placed.attempts) >= n_placed:
                self.attempts = {attempt.uid: attempt for attempt in placed.attempts}
                return True
            self._cycle.undo(placed)
        before.update(others)
        return False
