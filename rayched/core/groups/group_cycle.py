"""One cycle for a pod group: its members are placed in memory, all that the minimum needs or none.

Members are tried in order of what they ask for, the largest first; equal ones follow each other, so that the second costs next
to nothing. Each one that finds a node is assumed there, so that the next sees what it took. When so many have failed that the
minimum cannot be reached any more, everything is undone within the cycle: nobody has seen the room taken. Members that differ are
tried once more with those in front that failed first; then it is over. For equal members without rules among each other a
placement is found where one exists; for others that depends on the order.

No member runs PostFilter, and none may wait at Permit.

Source: the group cycle of kube-scheduler 1.37 without preemption.
Cost: that of the members' own cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from rayched.api.resources import CPU, MEMORY
from rayched.core.cache.cache import Cache
from rayched.core.cache.records import PodRecord
from rayched.core.groups.membership import GroupState
from rayched.framework.status import error
from rayched.scheduler.attempt import Attempt, AttemptFailure, AttemptPhase
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.templates import PodTemplate
from rayched.store.transactions import BYTES_MAX, TOGETHER_MAX

_BYTES_A_MEMBER: Final = 1_024
"""What stands around a member in its transaction, its node included."""
_BYTES_A_GROUP: Final = 64 << 10
PROGRESS_MEMBERS: Final = 32


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """Attempts that have each chosen a node and hold room there."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """Why the group was not placed; nothing of it holds any room."""

    failure: AttemptFailure
    n_placed: int
    """So many found a node before it was given up."""
    first: PodRecord | None
    """Who failed first."""


class TransactionRoom:
    """What one transaction takes: keys that it compares, and bytes."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._keys: set[bytes] = set()
        self._bytes = _BYTES_A_GROUP

    def takes(self, record: PodRecord, node_name: str) -> bool:
        """Whether this member fits in as well; then it is in."""
        keys = {record.key, self._cache.node_guard(node_name)[0], self._cache.taken_guard(node_name)[0]}
        size = self._bytes + len(record.value) + _BYTES_A_MEMBER
        if len(self._keys | keys) > TOGETHER_MAX or size > BYTES_MAX:
            return False
        self._keys |= keys
        self._bytes = size
        return True


class GroupCycle:
    """Decides about groups, one at a time."""

    RULE_A_GROUP_IS_WHOLE: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self, cache: Cache, scheduler: Scheduler, progress: Callable[[], None]) -> None:
        self._cache, self._scheduler, self._progress = cache, scheduler, progress

    def decide(self, state: GroupState, began: int, now: float, now_unix: float) -> GroupPlacement | GroupFailure:
        """A placement of at least the minimum, or none of anybody. At least one member is free."""
        members = sorted(self.free(state), key=_largest_first)
        # Those whose binding is committed and not seen yet count as bound.
        needed = max(1, state.min_count - state.satisfied - (len(state.waiting) - len(members)))
        found = self._try(members, needed, began, now, now_unix)
        if isinstance(found, GroupPlacement) or found.first is None or not found.failure.rejected:
            return found
        template = found.first.template
        if template is members[0].template:
            return found
        front = sorted(members, key=lambda one: one.template is not template)
        again = self._try(front, needed, began, now, now_unix)
        return again if isinstance(again, GroupPlacement) else found

    def free(self, state: GroupState) -> Iterator[PodRecord]:
        """Its members that wait and hold no room."""
        attempt, assumed_on = self._scheduler.attempt, self._scheduler.occupancy.assumed_on
        return (one for one in state.waiting.values() if attempt(one.uid) is None and assumed_on(one.uid) is None)

    def _try(
        self, members: Sequence[PodRecord], needed: int, began: int, now: float, now_unix: float
    ) -> GroupPlacement | GroupFailure:
        attempts: list[Attempt] = []
        failed: set[PodTemplate] = set()
        first: tuple[PodRecord, AttemptFailure] | None = None
        room = TransactionRoom(self._cache)
        n_freed = len(self._scheduler.freed)
        for count, member in enumerate(members):
            if len(attempts) + len(members) - count < needed:
                break
            if member.template in failed:
                continue
            if not count % PROGRESS_MEMBERS:
                self._progress()
            result = self._place(member, began, now, now_unix)
            if isinstance(result, AttemptFailure):
                first = first or (member, result)
                failed.add(member.template)
                if result.rejected:
                    continue
                return self._undone(attempts, n_freed, GroupFailure(result, len(attempts), member))
            attempts.append(result)
            if not room.takes(member, result.node_name):
                self._scheduler.roll_back(attempts.pop())
                break
        if attempts and (len(attempts) >= needed or not self.RULE_A_GROUP_IS_WHOLE):
            del self._scheduler.freed[n_freed:]
            return GroupPlacement(tuple(attempts))
        if first is None:
            return self._undone(attempts, n_freed, GroupFailure(_too_large(len(attempts), needed), len(attempts), None))
        return self._undone(attempts, n_freed, GroupFailure(first[1], len(attempts), first[0]))

    def _place(self, member: PodRecord, began: int, now: float, now_unix: float) -> Attempt | AttemptFailure:
        assert member.kept is not None
        pod = PodToSchedule(member.uid, member.name, member.template, member.kept)
        result = self._scheduler.schedule(pod, began, now, now_unix)
        if isinstance(result, Attempt) and result.phase is AttemptPhase.WAITING:
            self._scheduler.roll_back(result)
            why = "a Permit plugin asked it to wait, which members of a pod group cannot"
            return AttemptFailure(error(why), why)
        return result

    def _undone(self, attempts: list[Attempt], n_freed: int, failure: GroupFailure) -> GroupFailure:
        for attempt in reversed(attempts):
            self._scheduler.roll_back(attempt)
        # Within the group's own cycle: nobody else has seen the room taken.
        del self._scheduler.freed[n_freed:]
        return failure


def _largest_first(record: PodRecord) -> tuple[int, int, int, int, bytes]:
    requests = record.template.requests
    return -requests.get(CPU, 0), -requests.get(MEMORY, 0), record.template.id, record.create_revision, record.key


def _too_large(n_fit: int, needed: int) -> AttemptFailure:
    why = (
        f"{needed} members have to be bound at once, and one transaction takes {n_fit} of them "
        f"({TOGETHER_MAX} keys, {BYTES_MAX} bytes): larger groups are not supported yet"
    )
    return AttemptFailure(error(why), why)
