"""A group as one entry of the queue.

Pure. Owner: `PodGroups`.
"""

from __future__ import annotations

from rayched.core.cache.records import PodRecord
from rayched.core.exchange.messages import PendingPodGone, PendingPodSeen
from rayched.core.exchange.queue_session import QueueLink
from rayched.core.groups.membership import GroupState


def enter(state: GroupState, record: PodRecord | None, link: QueueLink, now: float) -> None:
    """The group enters the queue, with this member standing for it; without one it does not."""
    state.is_held = False
    if record is None or state.group is None:
        state.since = None
        return
    state.uid, state.is_told, state.has_failed = state.group.metadata.uid, True, False
    state.since = now if state.since is None else state.since
    state.template = record.template.id
    state.size = max(1, len(state.waiting))
    _tell(state, record, link, state.group.spec.priority, state.since, is_new=True)


def leave(state: GroupState, link: QueueLink) -> None:
    """The group leaves the queue. One that was handed out does so when its turn comes: till then it may be back."""
    if link.is_handed_out(state.uid) and state.group is not None and state.group.metadata.uid == state.uid:
        return
    link.tell(PendingPodGone(state.uid, state.entry_name))
    state.is_told, state.since = False, None


def stand_in(state: GroupState, record: PodRecord, link: QueueLink, now: float) -> None:
    """This member stands for the group from now on: its plugins decide what may help. The queue also hears how many wait by now,
    which bounds the back-off."""
    size = max(1, len(state.waiting))
    if (record.template.id, size) == (state.template, state.size) or not link.is_known(state.uid) or state.group is None:
        return
    state.template, state.size = record.template.id, size
    _tell(state, record, link, state.group.spec.priority, now, is_new=False)


def _tell(state: GroupState, record: PodRecord, link: QueueLink, priority: int, since: float, *, is_new: bool) -> None:
    """What the queue has to know of the group, with this member's template."""
    seen = PendingPodSeen(state.uid, state.entry_name, state.template, priority, since, is_new=is_new, members=state.size)
    link.tell(seen, (record.template,))
