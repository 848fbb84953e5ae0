"""What a change in the cache means for attempts, writes and nominations, and what of it goes to the queue.

Owner: the SchedulerCore. Cost: about 2 µs for a pod that comes, 1 µs for one that is seen bound.
"""

from __future__ import annotations

from collections.abc import Iterable

from rayched.api.stages import BOUND, PENDING
from rayched.core.attempt_outcomes import AttemptEnds
from rayched.core.cache.cache import PROGRESS_OBJECTS
from rayched.core.cache.records import CacheChange, PodChanged, PodRecord, nominated_in
from rayched.core.exchange.queue_session import TIME_STEP_SECONDS, QueueLink
from rayched.core.groups.pod_groups import PodGroups
from rayched.core.parts import CoreParts
from rayched.core.writes import event_reasons as occurrences
from rayched.core.writes.bindings import AttemptEnd, EndedAttempt
from rayched.framework.cluster_event import ASSIGNED_POD_ADD
from rayched.scheduler.attempt import Attempt, AttemptPhase


class CacheNews:
    """Passes each change of the cache on to attempts, writes, nominations and the queue's log."""

    def __init__(self, parts: CoreParts, ends: AttemptEnds, groups: PodGroups) -> None:
        self._clock, self._wall_clock, self._progress = parts.ports.clock, parts.ports.wall_clock, parts.ports.progress
        self._snapshot, self._scheduler, self._feed = parts.snapshot, parts.scheduler, parts.feed
        self._statuses, self._events = parts.statuses, parts.events
        self._bindings, self._preemptions = parts.bindings, parts.preemptions
        self._ends, self._groups = ends, groups

    def absorb(self, changes: Iterable[CacheChange]) -> None:
        """Changes of the cache, in order."""
        now, link = self._clock(), self._ends.link
        may_be_plain = link is not None and self._is_quiet()
        following = self._groups.following
        for count, change in enumerate(self._ends.measures.timed(changes), 1):
            if not count % PROGRESS_OBJECTS:
                self._progress()
            if not isinstance(change, PodChanged) or _is_member(change):
                self._groups.absorb(change, now)
                may_be_plain = link is not None and self._is_quiet()
            elif following.open is not None:
                following.settle()
            if link is not None and may_be_plain and isinstance(change, PodChanged):
                plain = self._plain_pod(change, link, now)
                if plain is not None:
                    now += plain
                    continue
            if self._is_nobodys(change):
                now += TIME_STEP_SECONDS
                continue
            # Of a pod that got its node the queue learns first that its attempt has ended: nothing else of it matters then.
            is_bound = isinstance(change, PodChanged) and change.new is not None and change.new.stage is BOUND
            if is_bound and isinstance(change, PodChanged):
                self._pod_changed(change)
            if link is not None:
                for told in occurrences.of_change(change, self._snapshot):
                    self._events.emit(told, now, self._wall_clock())
                if is_bound and isinstance(change, PodChanged) and self._is_told_shortly(change, link):
                    continue
                link.tell_all(self._feed.told(change, now))
                now += TIME_STEP_SECONDS
            if not is_bound and isinstance(change, PodChanged):
                self._pod_changed(change)
            may_be_plain = link is not None and self._is_quiet()
        following.settle()

    def _is_quiet(self) -> bool:
        """No pod is nominated, waits for a write of its status or is having room made for it."""
        return not self._scheduler.nominations.of and self._statuses.is_quiet and self._preemptions.is_quiet

    def _plain_pod(self, change: PodChanged, link: QueueLink, now: float) -> float | None:
        """The short way of most changes, while all is quiet: a pending pod comes, or one that was bound here is seen on its node.

        Gives how much later the next pod counts as having come; None: the change goes the long way, which does the same.
        """
        old, new = change
        if new is None:
            return None
        if old is None:
            if new.stage is not PENDING or new.kept is None or new.kept.nominated:
                return None
            template = new.template
            # Of a member the queue knows the group, which comes before who comes after.
            if template.pod_group:
                return TIME_STEP_SECONDS
            if self._scheduler.knows(template.scheduler_name):
                link.tell(*self._feed.pending_pod(new, now))
                return TIME_STEP_SECONDS
            return 0.0
        if new.stage is not BOUND or old.stage is not PENDING or (old.kept is not None and old.kept.nominated):
            return None
        uid = new.uid
        if link.concerns(uid) or self._scheduler.attempt(uid) is not None:
            return None
        self._ends.measures.forget(uid)
        if self._feed.tells_of_bindings:
            link.assigned(ASSIGNED_POD_ADD, new.template, new.node_name)
        return 0.0

    def _is_nobodys(self, change: CacheChange) -> bool:
        """Ignored: a new pending pod of another scheduler."""
        if not isinstance(change, PodChanged) or change.old is not None or change.new is None:
            return False
        new = change.new
        return new.stage is PENDING and not nominated_in(new) and not self._feed.is_queued(new)

    def _is_told_shortly(self, change: PodChanged, link: QueueLink) -> bool:
        """Most bindings: the queue knows already what became of the attempt, and learns of the event."""
        new = change.new
        if new is None or link.is_known(new.uid) or not self._feed.is_plain_binding(change):
            return False
        if self._feed.tells_of_bindings:
            link.assigned(ASSIGNED_POD_ADD, new.template, new.node_name)
        return True

    def _pod_changed(self, change: PodChanged) -> None:
        record = change.new or change.old
        if record is None:
            return
        uid = record.uid
        if self._statuses.seen(uid):
            self._bindings.status_settled(uid)
        if change.new is not None and change.new.stage is PENDING:
            if self._scheduler.attempt(uid) is None:
                self._scheduler.nominations.status_seen(uid, record.template, nominated_in(change.old), nominated_in(record))
            return
        self._scheduler.nominations.forget(uid)
        self._preemptions.cancel(uid)
        self._statuses.drop(uid)
        attempt = self._scheduler.attempt(uid)
        if attempt is not None:
            self._attempt_overtaken(attempt, change.new)
        elif self._ends.link is not None:
            self._ends.link.ended(uid)
        self._ends.measures.forget(uid)

    def _attempt_overtaken(self, attempt: Attempt, record: PodRecord | None) -> None:
        """The watch shows what became of the pod before the answer of its binding does."""
        if record is not None and _is_its_binding(record, attempt):
            self._scheduler.bound(attempt)
            self._ends.end(EndedAttempt(attempt.uid, AttemptEnd.BOUND, attempt))
        else:
            self._scheduler.roll_back(attempt)
            if self._ends.link is not None:
                self._ends.link.ended(attempt.uid)
        self._bindings.cancel(attempt.uid)


def _is_member(change: PodChanged) -> bool:
    """The pod belongs to a group."""
    record = change.new or change.old
    return record is not None and record.template.pod_group != ""


def _is_its_binding(record: PodRecord, attempt: Attempt) -> bool:
    """The pod is on its node by this very attempt; where the id is gone with a later write, the node tells."""
    if attempt.phase is not AttemptPhase.BINDING or record.node_name != attempt.node_name:
        return False
    return record.bound_by in (attempt.id, "")
