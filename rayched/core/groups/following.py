"""What a change of a member, or of a group's object, comes to: in the queue, for room that is held, and at a group's end.

Members mostly come, and are bound, one after the other: a gang's transaction is ten bindings, or a hundred. Each is counted as it
comes; what that comes to is looked at once, behind the last of them, and before anything else that the watch has told.

Owner: `PodGroups`. Cost: some 5 µs a member, and 20 a group.
"""

from __future__ import annotations

from rayched.api.stages import Stage
from rayched.core.attempt_outcomes import AttemptEnds
from rayched.core.cache.records import PodChanged
from rayched.core.groups.group_entries import GroupEntries
from rayched.core.groups.incomplete_groups import IncompleteGroups
from rayched.core.groups.membership import GroupMembership, GroupState
from rayched.core.groups.terminating_groups import TerminatingGroups


class GroupFollowing:
    """`settle` has to be called before anybody relies on what members have come to."""

    def __init__(
        self,
        ends: AttemptEnds,
        membership: GroupMembership,
        incomplete: IncompleteGroups,
        entries: GroupEntries,
        terminating: TerminatingGroups,
    ) -> None:
        self._ends, self._membership = ends, membership
        self._incomplete, self._entries, self._terminating = incomplete, entries, terminating
        self.open: GroupState | None = None
        """Members of it came or were bound, and it was not looked at since."""
        self._came = False
        """One of these waits."""
        self._at = 0.0
        """When the last of them came."""

    def member_changed(self, change: PodChanged, now: float) -> None:
        old, new = change
        state = self._membership.member_changed(change)
        if state is not self.open:
            self.settle()
        if state is None:
            return
        is_waiting = new is not None and new.uid in state.waiting
        came = is_waiting and (old is None or new is None or old.template is not new.template)
        if new is not None and new.stage is not Stage.OVER and (old is None or old.stage is Stage.PENDING):
            self.open, self._at = state, now
            self._came |= came
            return
        self.settle()
        self.group_changed(state, change, now, came=came)

    def settle(self) -> None:
        state, came = self.open, self._came
        if state is not None:
            self.open, self._came = None, False
            self.group_changed(state, None, self._at, came=came)

    def group_changed(
        self, state: GroupState, change: PodChanged | None, now: float, *, came: bool = False, eased: bool = False
    ) -> None:
        """By this change of a member, or by others. `came`: a member waits since now; `eased`: it may fit now."""
        self._incomplete.follow(state, change, now, self._ends.link)
        self._entries.follow(state, now, came=came, eased=eased)
        self._terminating.follow(state)
