"""What would become of a pod group now: how many of its members fit, what stands against the next one, who would have to end.

It is found out for somebody who asks, in pieces of PIECE_SECONDS with what it takes to lift and put back what was tried (ADR 69).
Where others need the thread so much that this does not suffice, or it takes too long in all, the answer says so, and
`rayched plan` finds it out beside the thread. Nothing changes by it: between two pieces the members wait with
their nominations, as before.

A group with a topology is counted in each domain, like an attempt for it (`group_cycle`): the one with most members is told.

Owner: PodGroups. Cost: that of an attempt for the group, and of one search for victims.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from math import inf
from typing import Final

from rayched.core.attempt_outcomes import AttemptEnds
from rayched.core.groups.deciding import GroupDecider, MemberNominations
from rayched.core.groups.fit_count import FitCount, Fits
from rayched.core.groups.group_cycle import GroupCycle, GroupQuestion, no_domain
from rayched.core.groups.group_preemption import GroupPreemption
from rayched.core.groups.incomplete_groups import IncompleteGroups
from rayched.core.groups.membership import GroupMembership, GroupState
from rayched.core.groups.paused_attempts import PausedAttempts
from rayched.core.groups.search_time import NoRoomInTime, SearchTime
from rayched.core.groups.topology import Domain, n_domains_to_find
from rayched.core.parts import CoreParts
from rayched.framework.plugin_error import PluginError
from rayched.scheduler.preemption import NEVER, PREEMPT_NEVER
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.services_pb2 import GroupExplanation

PIECE_SECONDS: Final = 0.004
"""Nobody waits longer for a look than 5 ms: the step under way may take the rest."""
COUNT_SECONDS: Final = 0.1
"""Of the scheduler's time for counting members, in all."""
SEARCH_SECONDS: Final = 0.15
"""The same for who would have to end."""
ASK_A_PLAN: Final = "`rayched plan` finds it out"
LOOKS_MAX: Final = 3
"""A look begins anew where the group has changed since its last piece."""


class GroupChanges(Exception):
    """The group has not stayed as it was for as long as a look takes; the text says so."""


Told = tuple[Fits, str]
"""What was counted, and in which domain, as label=value."""


class GroupLook:
    """Looks at groups."""

    def __init__(
        self,
        snapshot: Snapshot,
        scheduler: Scheduler,
        cycle: GroupCycle,
        preemption: GroupPreemption,
        nominations: MemberNominations,
        others_wait: Callable[[], bool],
    ) -> None:
        self._snapshot, self._scheduler, self._cycle = snapshot, scheduler, cycle
        self._preemption, self._nominations, self._others_wait = preemption, nominations, others_wait

    def pieces(self, state: GroupState, now: float, now_unix: float) -> Generator[None, None, GroupExplanation]:
        """The group has to be as it was when this goes on; whoever does not go on closes it."""
        told = GroupExplanation(bound=state.satisfied, waiting=len(state.waiting), min_count=state.min_count)
        hold = state.hold()
        if hold is not None or state.in_flight or next(self._cycle.free(state), None) is None:
            told.held = hold.message if hold is not None else "it is being bound" if state.in_flight else ""
            return told
        asked = self._cycle.question(state, 0, now, now_unix)
        work = self._find_out(asked, told)
        try:
            while True:
                nodes = self._nominations.lift(asked.members)
                try:
                    with self._cycle.trial():
                        try:
                            next(work)
                        except StopIteration:
                            return told
                finally:
                    self._nominations.nominate(nodes)
                yield
        finally:
            work.close()

    def _find_out(self, asked: GroupQuestion, told: GroupExplanation) -> Generator[None, None, None]:
        time = SearchTime(self._snapshot.work.now, COUNT_SECONDS, PIECE_SECONDS, self._others_wait, gives_way=True)
        time.begin()
        try:
            found, told.domain = yield from self._best(asked, time)
        except PluginError as problem:
            found = Fits(0, reason=str(problem))
        told.fit, told.next, told.reason = found.n_members, found.next, found.reason
        if told.fit < asked.needed:
            if time.is_piece_over:
                yield
            yield from self._look_for_victims(asked, told)

    def _best(self, asked: GroupQuestion, time: SearchTime) -> Generator[None, None, Told]:
        key, n_nodes = asked.state.topology, self._snapshot.n_nodes
        if not key:
            return (yield from self._counted(asked, None, time)), ""
        domains, best, best_rank, n_found = self._cycle.domains(asked.state), Fits(0), (1, inf), 0
        if not domains:
            return Fits(0, reason=no_domain(key, n_nodes).message), ""
        where, enough = "", n_domains_to_find(len(domains), n_nodes)
        for count, domain in enumerate(domains):
            if n_found == enough or (count and time.is_over):
                break
            found = yield from self._counted(asked, domain, time)
            n_found += found.n_members > 0
            if (rank := (-found.n_members, found.free_share if found.n_members else 0.0)) < best_rank:
                best, best_rank, where = found, rank, str(domain) if found.n_members else ""
            if found.is_error:
                break
        return best, where

    def _counted(self, asked: GroupQuestion, domain: Domain | None, time: SearchTime) -> Generator[None, None, Fits]:
        beyond = None if domain is None else domain.beyond
        count = FitCount(self._snapshot, self._scheduler, self._cycle, asked, time, beyond)
        try:
            found = yield from count.count()
            return found if domain is None else replace(found, free_share=self._cycle.free_share(domain))
        finally:
            count.lift()

    def _look_for_victims(self, asked: GroupQuestion, told: GroupExplanation) -> Generator[None, None, None]:
        group = asked.state.group
        if group is None or group.spec.preemption_policy == PREEMPT_NEVER:
            told.no_preemption = NEVER
            return
        search = self._preemption.search(
            asked, self._nominations.overdue, None, SEARCH_SECONDS, PIECE_SECONDS, self._others_wait, gives_way=True
        )
        try:
            room = yield from search
        except NoRoomInTime as problem:
            told.no_preemption = f"{problem}; {ASK_A_PLAN}"
            return
        except PluginError as problem:
            told.no_preemption = str(problem)
            return
        finally:
            search.close()
        if isinstance(room, str):
            told.no_preemption = room
        else:
            told.victims.extend(sorted(victim.pod.facts.name for victim in room.victims))


class GroupLooks:
    """Looks at groups by name."""

    def __init__(
        self,
        parts: CoreParts,
        ends: AttemptEnds,
        membership: GroupMembership,
        paused: PausedAttempts,
        incomplete: IncompleteGroups,
        decider: GroupDecider,
    ) -> None:
        self._ports, self._ends = parts.ports, ends
        self._membership, self._paused, self._incomplete = membership, paused, incomplete
        self._look = GroupLook(parts.snapshot, parts.scheduler, *decider.for_looks(), self._others_wait)

    def of(self, name: str) -> Generator[None, None, GroupExplanation | None]:
        """What would become of the group of this namespace/name now; None: there is none. Raises GroupChanges."""
        for _ in range(LOOKS_MAX):
            state = self._membership.by_name(name)
            if state is None:
                return None
            pieces = self._look.pieces(state, self._ports.clock(), self._ports.wall_clock())
            try:
                standing = self._standing(state)
                while self._membership.by_name(name) is state and self._standing(state) == standing:
                    with self._incomplete.lent(state):
                        try:
                            next(pieces)
                        except StopIteration as end:
                            told: GroupExplanation = end.value
                            return told
                    yield
            finally:
                pieces.close()
        raise GroupChanges(f"pod group {name} changes faster than it can be looked at; try again")

    def _standing(self, state: GroupState) -> tuple[object, ...]:
        """What a look is about."""
        return self._paused.standing(state), state.in_flight

    def _others_wait(self) -> bool:
        link = self._ends.link
        return (link is not None and len(link) > 0) or self._ports.others_wait()
