"""One cycle for a pod group: its members are placed in memory, all that the minimum needs or none.

Members are tried in order of what they ask for, the largest first; equal ones follow each other, so that the second costs next
to nothing. Each one that finds a node is assumed there, so that the next sees what it took. When so many have failed that the
minimum cannot be reached any more, everything is undone within the cycle: nobody has seen the room taken. Members that differ are
tried once more with those in front that failed first; then it is over. For equal members without rules among each other a
placement is found where one exists; for others that depends on the order.

A group with a topology is tried in each domain that comes into question, as if there were no other nodes, and goes where most of
it fits and least is left over (`topology`).

No member runs PostFilter, and none may wait at Permit.

Source: the group cycle of kube-scheduler 1.37 without preemption.
Cost: that of the members' own cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from rayched.api.resources import CPU, MEMORY
from rayched.core.cache.records import PodRecord
from rayched.core.groups.group_measures import GroupMeasures
from rayched.core.groups.membership import GroupState
from rayched.core.groups.topology import Domain, Domains, n_domains_to_find
from rayched.framework import names
from rayched.framework.status import Code, Status, error
from rayched.scheduler.attempt import Attempt, AttemptFailure, AttemptPhase
from rayched.scheduler.scheduler import ATTEMPT_SECONDS, PodToSchedule, Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate
from rayched.store.transactions import BYTES_MAX, TOGETHER_MAX

_BYTES_A_MEMBER: Final = 1_024
"""What stands around a member in its transaction, its node included."""
_BYTES_A_GROUP: Final = 64 << 10
_BYTES_A_PLANNED: Final = 12
"""What stands around a member in a plan."""
PLAN_MEMBERS_MAX: Final = 2_000
PLAN_BYTES_MAX: Final = 256 << 10
KEYS_MAX_BY_DEFAULT: Final = 120
"""Keys in a transaction of an etcd that is left at its default of 128 operations, with some to spare."""
PROGRESS_MEMBERS: Final = 32


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """Attempts that have each chosen a node and hold room there."""

    attempts: tuple[Attempt, ...]
    is_one: bool = True
    """One transaction takes them; else they take a plan."""
    left: GroupFailure | None = None
    """Why some members are left over; None: none is, or the plan takes no more."""
    domain: str = ""
    """Of a group with a topology: label=value."""


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """Why the group was not placed; nothing of it holds any room."""

    failure: AttemptFailure
    n_placed: int
    """So many found a node before it was given up."""
    first: PodRecord | None
    """Who failed first."""
    where: str = ""
    """Of a group with a topology: what was tried."""
    best_effort: bool = False
    """Members differ or have rules among each other, so the order in which they were tried may have decided."""
    nominated: Mapping[str, str] = field(default_factory=dict)
    """Where members wait for room that is being made, by uid."""
    waits: bool = False
    """Pods end for it."""
    is_broken_off: bool = False
    """Nothing was found out."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class GroupQuestion:
    """What one cycle is to find."""

    state: GroupState
    members: list[PodRecord]
    """Those that need a node, in the order in which they are tried."""
    needed: int
    """So many of them at least have to find one."""
    began: int
    now: float
    now_unix: float
    breaks_off: Callable[[], bool] = _never
    """Whether nobody wants to know any more; asked at every PROGRESS_MEMBERS-th member."""


class TransactionRoom:
    """What a plan takes, members and bytes; and whether one transaction does, keys that it compares and bytes."""

    def __init__(self, keys_max: int = TOGETHER_MAX) -> None:
        self._keys_max = keys_max
        self._nodes: set[str] = set()
        self._bytes = _BYTES_A_GROUP
        self._plan_bytes = 0
        self.is_one = True
        """One transaction takes all so far."""

    def takes(self, record: PodRecord, node_name: str, n_members: int) -> bool:
        """Whether this member fits into a plan as well; with it there are so many."""
        self._plan_bytes += len(record.uid) + len(record.name) + len(node_name) + _BYTES_A_PLANNED
        if self._plan_bytes > PLAN_BYTES_MAX or n_members > PLAN_MEMBERS_MAX:
            return False
        if not self.is_one:
            return True
        self._nodes.add(node_name)
        self._bytes += len(record.value) + _BYTES_A_MEMBER
        # Each member, its node, and what tells of pods that took room there.
        self.is_one = n_members + 2 * len(self._nodes) <= self._keys_max and self._bytes <= BYTES_MAX
        return True


class GroupCycle:
    """Decides about groups, one at a time."""

    def __init__(self, snapshot: Snapshot, scheduler: Scheduler, progress: Callable[[], None], measures: GroupMeasures) -> None:
        self._snapshot, self._scheduler, self._progress = snapshot, scheduler, progress
        self._measures = measures
        self._domains = Domains(snapshot)
        self._keys_max = TOGETHER_MAX

    def was_too_large(self, n_keys: int) -> None:
        """The store refused a transaction of so many keys as it stands: larger ones are not tried any more."""
        self._keys_max = KEYS_MAX_BY_DEFAULT if n_keys > KEYS_MAX_BY_DEFAULT else min(self._keys_max, n_keys - 1)

    def question(self, state: GroupState, began: int, now: float, now_unix: float) -> GroupQuestion:
        """At least one member is free."""
        members = sorted(self.free(state), key=_largest_first)
        # Those whose binding is committed and not seen yet count as bound.
        needed = max(1, state.min_count - state.satisfied - (len(state.waiting) - len(members)))
        return GroupQuestion(state, members, needed, began, now, now_unix)

    def decide(self, asked: GroupQuestion) -> GroupPlacement | GroupFailure:
        """A placement of at least the minimum, or none of anybody."""
        return self._in_a_domain(asked) if asked.state.topology else self.anywhere(asked)

    def domains(self, state: GroupState) -> list[Domain]:
        """Those that a group with a topology may go to."""
        on = self._scheduler.occupancy.on
        there = filter(None, map(on, (*state.bound, *state.waiting)))
        return self._domains.candidates(state.topology, (one.node_name for one in there))

    def within(self, domain: Domain, asked: GroupQuestion) -> GroupPlacement | GroupFailure:
        """`anywhere` in the domain."""
        with self._scheduler.profiles.bounds.set(domain.beyond):
            return self.anywhere(asked)

    def place_one(
        self,
        member: PodRecord,
        asked: GroupQuestion,
        beyond: frozenset[int] | None,
        allowed: float = ATTEMPT_SECONDS,
        *,
        goes_on: bool = False,
    ) -> Attempt | AttemptFailure:
        """One member by itself; `beyond`: rows that are out of the question. `allowed`, `goes_on`: as for `schedule`."""
        with self._scheduler.profiles.bounds.set(beyond):
            return self._place(member, asked, allowed, goes_on=goes_on)

    def put(self, member: PodRecord, asked: GroupQuestion, node_name: str) -> Attempt | AttemptFailure:
        """One member on this node, whether it fits there or not."""
        return self._place(member, asked, node_name=node_name)

    def fits(self, member: PodRecord, node_name: str) -> bool:
        """Whether the member fits on the node. Raises PluginError."""
        template, row = member.template, self._snapshot.row_of(node_name)
        nominated = self._scheduler.nominations.beside(member.uid, template.priority)
        return row is not None and self._scheduler.engine(template.scheduler_name).fits(template, row, nominated)

    def room(self) -> TransactionRoom:
        """What a placement of the group takes in the store, of nobody yet."""
        return TransactionRoom(self._keys_max)

    def free_share(self, domain: Domain) -> float:
        """What is free there as a share from 0 to 1."""
        return self._domains.free_share(domain.rows)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is decided within is not: nothing is remembered of it, and the next draws are those that they would have been."""
        decisions, draws = self._scheduler.decisions, self._scheduler.draws()
        keeps, decisions.keeps = decisions.keeps, False
        try:
            yield
        finally:
            decisions.keeps = keeps
            self._scheduler.draw_on(draws)

    def undo(self, placement: GroupPlacement) -> None:
        """As if it had never been: nobody else has seen the room taken."""
        n_freed = len(self._scheduler.freed)
        for attempt in reversed(placement.attempts):
            self._scheduler.roll_back(attempt)
        del self._scheduler.freed[n_freed:]

    def _in_a_domain(self, asked: GroupQuestion) -> GroupPlacement | GroupFailure:
        state, work = asked.state, self._snapshot.work
        domains, until = self.domains(state), work.now() + ATTEMPT_SECONDS
        if not domains:
            return GroupFailure(no_domain(state.topology, self._snapshot.n_nodes), 0, None)
        enough = n_domains_to_find(len(domains), self._snapshot.n_nodes)
        profile = asked.members[0].template.scheduler_name
        self._measures.placements[profile] += len(domains)
        found: list[tuple[int, float, int, Domain]] = []
        best: tuple[GroupFailure, Domain] | None = None
        count = 0
        for domain in domains:
            if len(found) == enough or (count and work.now() >= until):
                break
            count += 1
            began = self._measures.now()
            result = self.within(domain, asked)
            self._measures.tried(profile, began, fits=isinstance(result, GroupPlacement))
            if isinstance(result, GroupFailure):
                if best is None or result.n_placed > best[0].n_placed:
                    best = result, domain
                if not result.failure.rejected:
                    break
                continue
            if len(domains) == 1:
                return replace(result, domain=str(domain))
            n_placed, left = len(result.attempts), self._domains.free_share(domain.rows)
            self.undo(result)
            found.append((-n_placed, left, count, domain))
        self._domains.tried(count)
        for _, _, _, domain in sorted(found, key=lambda one: one[:3]):
            result = self.within(domain, asked)
            if isinstance(result, GroupPlacement):
                return replace(result, domain=str(domain))
            best = result, domain
        assert best is not None
        return replace(best[0], where=f"in {count} of {len(domains)} domains of {state.topology}, closest {best[1]}")

    def anywhere(self, asked: GroupQuestion) -> GroupPlacement | GroupFailure:
        """As `decide`, without regard to a topology."""
        found = self._try(asked.members, asked)
        if isinstance(found, GroupPlacement) or found.first is None or not found.failure.rejected:
            return found
        templates = {member.template for member in asked.members}
        found = replace(found, best_effort=len(templates) > 1 or any(template.mentions_labels for template in templates))
        template = found.first.template if found.first is not None else None
        if template is asked.members[0].template:
            return found
        front = sorted(asked.members, key=lambda one: one.template is not template)
        again = self._try(front, asked)
        return again if isinstance(again, GroupPlacement) else found

    def free(self, state: GroupState) -> Iterator[PodRecord]:
        """Its members that wait and hold no room."""
        attempt, on = self._scheduler.attempt, self._scheduler.occupancy.on
        return (one for one in state.waiting.values() if attempt(one.uid) is None and on(one.uid) is None)

    def _try(self, members: Sequence[PodRecord], asked: GroupQuestion) -> GroupPlacement | GroupFailure:
        needed = asked.needed
        attempts: list[Attempt] = []
        failed: set[PodTemplate] = set()
        first: tuple[PodRecord, AttemptFailure] | None = None
        room = self.room()
        n_freed = len(self._scheduler.freed)
        for count, member in enumerate(members):
            if len(attempts) + len(members) - count < needed:
                break
            if member.template in failed:
                continue
            if not count % PROGRESS_MEMBERS:
                self._progress()
                if asked.breaks_off():
                    return self._undone(attempts, n_freed, GroupFailure(_broken_off(), len(attempts), None, is_broken_off=True))
            result = self._place(member, asked)
            if isinstance(result, AttemptFailure):
                first = first or (member, result)
                failed.add(member.template)
                if result.rejected:
                    continue
                return self._undone(attempts, n_freed, GroupFailure(result, len(attempts), member))
            attempts.append(result)
            if not room.takes(member, result.node_name, len(attempts)):
                self._scheduler.roll_back(attempts.pop())
                break
        if attempts and (len(attempts) >= needed or not GroupState.RULE_A_GROUP_IS_WHOLE):
            del self._scheduler.freed[n_freed:]
            left = None if first is None else GroupFailure(first[1], len(attempts), first[0])
            return GroupPlacement(tuple(attempts), room.is_one, left)
        if first is None:
            return self._undone(attempts, n_freed, GroupFailure(_too_large(len(attempts), needed), len(attempts), None))
        return self._undone(attempts, n_freed, GroupFailure(first[1], len(attempts), first[0]))

    def _place(
        self,
        member: PodRecord,
        asked: GroupQuestion,
        allowed: float = ATTEMPT_SECONDS,
        *,
        goes_on: bool = False,
        node_name: str = "",
    ) -> Attempt | AttemptFailure:
        assert member.kept is not None
        pod = PodToSchedule(member.uid, member.name, member.template, member.kept)
        when = asked.began, asked.now, asked.now_unix
        return settled(self._scheduler, self._scheduler.schedule(pod, *when, allowed, goes_on=goes_on, node_name=node_name))

    def _undone(self, attempts: list[Attempt], n_freed: int, failure: GroupFailure) -> GroupFailure:
        for attempt in reversed(attempts):
            self._scheduler.roll_back(attempt)
        # Within the group's own cycle: nobody else has seen the room taken.
        del self._scheduler.freed[n_freed:]
        return failure


def _largest_first(record: PodRecord) -> tuple[int, int, int, int, bytes]:
    requests = record.template.requests
    return -requests.get(CPU, 0), -requests.get(MEMORY, 0), record.template.id, record.create_revision, record.key


def no_domain(key: str, n_nodes: int) -> AttemptFailure:
    """The failure of a group whose topology no node has."""
    why = f"0/{n_nodes} nodes are available: {n_nodes} node(s) without label {key}, which is the topology of the pod group."
    return AttemptFailure(Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (why,)), why, frozenset((names.NODE_AFFINITY,)))


def _broken_off() -> AttemptFailure:
    why = "it was not found out whether the group fits"
    return AttemptFailure(error(why), why)


def _too_large(n_fit: int, needed: int) -> AttemptFailure:
    why = (
        f"{needed} members have to be bound together, and a plan takes {n_fit} of them "
        f"(at most {PLAN_MEMBERS_MAX} members and {PLAN_BYTES_MAX} bytes)"
    )
    return AttemptFailure(error(why), why)


def settled(scheduler: Scheduler, result: Attempt | AttemptFailure) -> Attempt | AttemptFailure:
    """A member's attempt; one that would wait at Permit is undone, and has failed."""
    if isinstance(result, Attempt) and result.phase is AttemptPhase.WAITING:
        scheduler.roll_back(result)
        why = "a Permit plugin asked it to wait, which members of a pod group cannot"
        return AttemptFailure(error(why), why)
    return result
