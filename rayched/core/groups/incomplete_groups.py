"""Gangs that were bound and have fewer members than they need: their lost rooms wait for them, and they may end as a whole.

* When a member that ran goes and the minimum is missed by that, its room is held on its node, as if another pod of its kind were
  nominated there: pods of no higher priority leave it free. The group's own cycle has it. So it is for `hold_seconds` of the
  group, or until that is whole again.
* With `release_seconds` the members that are left are told to end, all of them, when the group has been incomplete for so long:
  a part that waits is worth less than nothing. What one leader began the next one finishes at once.

What is held goes with the term: the next leader does not know who was there.

No I/O. Owner: the SchedulerCore. Cost: nothing while no group is incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final

from rayched.api.incomplete_groups import hold_seconds, release_seconds
from rayched.api.kinds import POD_GROUP
from rayched.api.occurrences import Subject
from rayched.api.stages import Stage
from rayched.core.cache.records import PodChanged
from rayched.core.exchange.queue_session import QueueLink
from rayched.core.groups.membership import GroupState
from rayched.core.parts import CoreParts
from rayched.core.writes import event_reasons as occurrences
from rayched.core.writes.pod_patches import released_value
from rayched.snapshot.templates import PodTemplate
from rayched.store.transactions import BYTES_MAX, WRITES_MAX, Committed, Conflict, GuardedPut, Outcome
from rayched.v1.storage_pb2 import LeaderWrite

OP_RELEASE: Final = "group-release"
"""What the leader's write that ends a member of an incomplete group is for."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Room that a member had."""

    uid: str
    """Under which it is nominated: no pod's."""
    template: PodTemplate
    node_name: str
    until: float


class IncompleteGroups:
    """All of them, as of now."""

    RULE_RELEASES_END_ALL: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self, parts: CoreParts, incarnation: str) -> None:
        self._cache, self._scheduler, self._snapshot = parts.cache, parts.scheduler, parts.snapshot
        self._events, self._feed, self._incarnation = parts.events, parts.feed, incarnation
        self._wall_clock = parts.ports.wall_clock
        self._since: dict[str, tuple[GroupState, float]] = {}
        """Since when a group is incomplete, by namespace/name."""
        self._held: dict[str, list[HeldPlace]] = {}
        self._number = 0
        self._sent: dict[str, str] = {}
        """Members that are told to end, by attempt."""
        self._told: dict[str, int] = {}
        """Members that were told, or refused it: which revision the cache has to reach before they are told once more."""

    def __len__(self) -> int:
        return len(self._since)

    def clear(self) -> None:
        """A term begins or is over."""
        self._since.clear()
        self._held.clear()
        self._sent.clear()
        self._told.clear()

    def is_incomplete(self, state: GroupState) -> bool:
        """A gang of which members run, and with those whose binding is committed and not seen yet they are too few."""
        if not state.is_gang or not state.bound:
            return False
        lacking = state.min_count - state.satisfied
        if lacking <= 0 or len(state.waiting) < lacking:
            return lacking > 0
        # Of several bindings that were seen at once the cache knows before the group does.
        on = self._scheduler.occupancy.on
        return sum(on(uid) is not None for uid in state.waiting) < lacking

    # --------------------------------------------------------------------------------------------------------- following

    def follow(self, state: GroupState, change: PodChanged | None, now: float, link: QueueLink | None) -> None:
        """The group changed, by this change of a member or by one of its object."""
        if link is None or state.in_flight:
            return
        if not self.is_incomplete(state):
            if self._since.pop(state.name, None) is not None or state.name in self._held:
                self._let_go(state.name, link)
            if not self._since:
                self._told.clear()
            return
        assert state.group is not None
        if state.name not in self._since:
            self._since[state.name] = state, now
            self._tell(state, now)
        old = None if change is None else change.old
        if change is None or old is None or old.stage is not Stage.BOUND or old.uid in state.bound or old.uid in state.done:
            return
        new = change.new
        seconds = hold_seconds(state.group)
        if (new is None or new.stage is Stage.OVER) and seconds and self._snapshot.row_of(old.node_name) is not None:
            place = HeldPlace(f"held:{old.uid}", old.template, old.node_name, now + seconds)
            self._held.setdefault(state.name, []).append(place)
            self._hold(place)

    def lend(self, state: GroupState) -> None:
        """The group's own cycle begins: it may have what is held for it."""
        for place in self._held.get(state.name, ()):
            self._scheduler.nominations.forget(place.uid)

    def take_back(self, state: GroupState) -> None:
        """The cycle placed nobody: it is held further on."""
        for place in self._held.get(state.name, ()):
            self._hold(place)

    @contextmanager
    def lent(self, state: GroupState) -> Iterator[None]:
        """For a block in which nobody is placed, but what the group could have is looked at."""
        self.lend(state)
        try:
            yield
        finally:
            self.take_back(state)

    def placed(self, state: GroupState) -> None:
        """The cycle placed members: they have what they need."""
        self._held.pop(state.name, None)

    def next_due(self) -> float | None:
        """When room is let go, or members are told to end."""
        dues = [place.until for places in self._held.values() for place in places]
        dues += [due for state, since in self._since.values() if (due := self._release_at(state, since)) is not None]
        return min(dues, default=None)

    def expire(self, now: float, link: QueueLink | None) -> None:
        """Room that was held for long enough is everybody's."""
        for name, places in list(self._held.items()):
            over = [place for place in places if place.until <= now]
            self._held[name] = [place for place in places if place.until > now]
            self._free(over, link)
            if not self._held[name]:
                del self._held[name]

    def _let_go(self, name: str, link: QueueLink) -> None:
        self._free(self._held.pop(name, []), link)

    def _free(self, places: list[HeldPlace], link: QueueLink | None) -> None:
        for place in places:
            self._scheduler.nominations.forget(place.uid)
            if link is not None:
                link.tell_all(self._feed.undone(place.uid, place.template, place.node_name))

    def _hold(self, place: HeldPlace) -> None:
        self._scheduler.nominations.nominate(place.uid, place.template, place.node_name)

    def _tell(self, state: GroupState, now: float) -> None:
        message = f"{state.satisfied} of {state.min_count} members run or have succeeded"
        self._events.emit(occurrences.group_incomplete(subject_of(state), message), now, self._wall_clock())

    # --------------------------------------------------------------------------------------------------------- releasing

    def _release_at(self, state: GroupState, since: float) -> float | None:
        seconds = None if state.group is None else release_seconds(state.group)
        if seconds is None or not self._to_end(state):
            return None
        return since if state.released else since + seconds

    def _to_end(self, state: GroupState) -> list[str]:
        under_way, told, revision = set(self._sent.values()), self._told, self._cache.revision
        members = sorted({*state.bound, *state.released})
        if not self.RULE_RELEASES_END_ALL:
            members = members[: len(members) // 2]
        return [uid for uid in members if uid in state.bound and uid not in under_way and told.get(uid, 0) <= revision]

    def batch(self, epoch: int, now: float, now_unix: float) -> list[GuardedPut]:
        """Members that are to be told to end now. They count as sent."""
        writes: list[GuardedPut] = []
        size = 0
        for state, since in self._since.values():
            due = self._release_at(state, since)
            if due is None or due > now or state.in_flight:
                continue
            uids = self._to_end(state)
            if not state.released:
                message = f"its {len(uids)} members end: it was incomplete for {now - since:.0f} s"
                self._events.emit(occurrences.group_released(subject_of(state), message), now, now_unix)
            for uid in uids:
                record = self._cache.pod(uid)
                if record is None or len(writes) == WRITES_MAX or size > BYTES_MAX // 2:
                    continue
                self._number += 1
                attempt = f"{self._incarnation}-release-{self._number}"
                write = LeaderWrite(op=OP_RELEASE, epoch=epoch, attempt=attempt, decided_at_revision=self._cache.revision)
                value = released_value(record.value, state.name, write, now_unix)
                size += len(value)
                self._sent[attempt] = uid
                writes.append(GuardedPut(record.key, record.mod_revision, value, attempt=attempt))
        return writes

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome) -> None:
        """Told to end or not: the cache will show it, and who is left is told once more."""
        uid = self._sent.pop(write.attempt)
        if isinstance(outcome, Committed):
            self._told[uid] = outcome.revision
        elif isinstance(outcome, Conflict) and outcome.current is not None:
            self._told[uid] = outcome.current.mod_revision


def subject_of(state: GroupState) -> Subject:
    """What an Event about the group is about."""
    assert state.group is not None
    namespace, _, name = state.name.partition("/")
    return Subject(POD_GROUP.name, namespace, name, state.group.metadata.uid, POD_GROUP.api_version)
