"""Pod groups that were deleted: each stays, with its deletionTimestamp, until its last member has ended or gone.

The API marks a group that is to go. Here its object is removed once nobody of it waits, runs or is about to stop. Until then it
is a group like others: members that wait are placed, and count.

No I/O. Owner: PodGroups. Cost: 1 µs a change of a group or a member, 10 µs a group that goes.
Source: the finalizer `scheduling.k8s.io/podgroup-protection` of Kubernetes 1.37; there is none here, as nobody else may hold one.
"""

from __future__ import annotations

from rayched.core.cache.cache import Cache
from rayched.core.groups.group_writes import object_of
from rayched.core.groups.membership import GroupState
from rayched.store.transactions import WRITES_MAX, GuardedDelete, Write


class TerminatingGroups:
    """Groups that are to go now, and removals under way."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._due: dict[str, GroupState] = {}
        """By namespace/name."""
        self._sent: dict[bytes, str] = {}
        """Names by keys."""

    def follow(self, state: GroupState) -> None:
        """The group or one of its members changed."""
        if _is_over(state):
            self._due[state.name] = state
        else:
            self._due.pop(state.name, None)

    def stop(self) -> None:
        """The term is over or interrupted: nothing more is sent."""
        self._due.clear()

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come are ignored."""
        self._sent.clear()

    def next_due(self) -> float | None:
        """At once, where there is one to send."""
        under_way = set(self._sent.values())
        return 0.0 if any(name not in under_way for name in self._due) else None

    def batch(self) -> list[GuardedDelete]:
        """Removals that may go now, which count as sent."""
        writes: list[GuardedDelete] = []
        for name, state in list(self._due.items()):
            found = object_of(self._cache, state)
            if found is not None and found[0] in self._sent:
                continue
            if len(writes) == WRITES_MAX:
                break
            del self._due[name]
            if found is not None and _is_over(state):
                self._sent[found[0]] = name
                writes.append(GuardedDelete(found[0], found[1]))
        return writes

    def is_mine(self, write: Write) -> bool:
        return isinstance(write, GuardedDelete) and write.key in self._sent

    def outcome(self, write: Write) -> None:
        """Removed or not. Where somebody has changed it meanwhile that change is followed."""
        del self._sent[write.key]


def _is_over(state: GroupState) -> bool:
    return state.is_ending and not (state.waiting or state.bound or state.leaving)
