"""What is sent to etcd and in which order, and which part of the core gets each answer.

What has to be sent again goes first, then preemptions, groups, bindings and those of other schedulers, statuses, what groups are
told, then events: each waits while there is anything of those before it, as far as the window of transactions has room.

Owner: the SchedulerCore. Cost: beyond that of the parts about 1 µs a write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from rayched.core.attempt_outcomes import AttemptEnds
from rayched.core.groups.pod_groups import PodGroups
from rayched.core.parts import CoreParts
from rayched.core.term import Term
from rayched.core.writes.bindings import AttemptEnd, EndedAttempt
from rayched.core.writes.pod_patches import OP_BIND, OP_PREEMPT, OP_STATUS
from rayched.core.writes.preemptions import PreemptionRefusal
from rayched.core.writes.window import Send
from rayched.store.event_writes import OP_EVENT
from rayched.store.transactions import Fenced, Guard, GuardedPut


class WriteSender:
    """Takes writes from the parts of the core, and gives them their outcomes."""

    RULE_BINDINGS_ARE_GUARDED: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self, parts: CoreParts, term: Term, ends: AttemptEnds, groups: PodGroups, epoch_key: bytes) -> None:
        self._clock, self._wall_clock = parts.ports.clock, parts.ports.wall_clock
        self._cache, self._window = parts.cache, parts.window
        self._statuses, self._events = parts.statuses, parts.events
        self._bindings, self._preemptions = parts.bindings, parts.preemptions
        self._term, self._ends, self._groups, self._epoch_key = term, ends, groups, epoch_key

    @property
    def is_pressed(self) -> bool:
        """Pods wait for their decision, or for the store's answer about it."""
        link = self._ends.link
        if self._bindings.n_under_way:
            return True
        return link is not None and (len(link) > 0 or link.counts.get("active", 0) > 0)

    def send(self, now: float) -> tuple[Send, ...]:
        """Transactions to send now; those that cannot be built are answered at once. The belief was read just before."""
        sends = list(self._write(now))
        for send in sends:
            self._ends.measures.sent(send.number, send.op, send.n_writes, now)
        for send in [send for send in sends if send.problem is not None]:
            sends.remove(send)
            self.answered(send.number, send.problem)
        return tuple(sends)

    def answered(self, number: int, answer: Any) -> None:
        """The TxnResponse of a sent transaction, or the StoreError in its place."""
        ended: list[EndedAttempt] = []
        now = self._clock()
        outcomes = self._window.answered(number, answer, now)
        self._ends.measures.answered(number, answer, outcomes, now)
        for write, outcome in outcomes:
            if isinstance(outcome, Fenced):
                self._term.fenced(self._term.epoch)
            if not isinstance(write, GuardedPut):
                if self._groups.is_mine(write):
                    self._groups.outcome(write, outcome, now)
                continue
            if self._bindings.is_mine(write):
                end = self._bindings.outcome(write, outcome)
                if end is not None:
                    ended.append(end)
                continue
            if self._bindings.foreign.is_mine(write):
                self._bindings.foreign.outcome(write, outcome)
                continue
            if self._statuses.is_mine(write):
                uid = self._statuses.outcome(write, outcome, now)
                if uid is not None:
                    self._bindings.status_settled(uid)
                continue
            if self._events.is_mine(write):
                self._events.outcome(write, outcome, now)
                continue
            if self._groups.is_mine(write):
                self._groups.outcome(write, outcome, now)
                continue
            if self._preemptions.is_mine(write):
                self._ends.room_answered(write, outcome, now)
        self._ends.end_all(ended)

    def _write(self, now: float) -> Iterator[Send]:
        """What may be sent now. Belief was read just before."""
        now_unix, epoch = self._wall_clock(), self._term.epoch
        guard = Guard(self._epoch_key, epoch)
        yield from self._window.send_again(now)
        yield from self._make_room(guard, now_unix)
        if self._groups.is_placing:
            yield from self._groups.send_placements(guard, now, now_unix)
        ended: list[EndedAttempt] = []
        while self._window.room and self._bindings.n_unsent:
            writes = self._bindings.batch(epoch, now_unix, ended)
            if not writes:
                break
            yield self._window.send(writes, guard if self.RULE_BINDINGS_ARE_GUARDED else None, op=OP_BIND)
        foreign = self._bindings.foreign
        while self._window.room and foreign:
            writes = foreign.batch(epoch, now, now_unix, self._bindings.next_id)
            if writes:
                yield self._window.send(writes, guard, op=OP_BIND)
        self._ends.end_all(ended)
        while self._window.room and not self._bindings.n_unsent:
            writes = self._statuses.batch(epoch, now, now_unix)
            if not writes:
                break
            yield self._window.send(writes, guard, op=OP_STATUS, once=True)
        if self._groups.is_used:
            yield from self._groups.send_conditions(guard, now, now_unix)
        if self._window.room and not self._bindings.n_unsent:
            events = self._events.batch(epoch, self._cache.revision, now, self.is_pressed)
            if events:
                yield self._window.send(events, guard, op=OP_EVENT, once=True)

    def _make_room(self, guard: Guard, now_unix: float) -> Iterator[Send]:
        """Preemptions go before bindings: those who wait for them are the more urgent ones."""
        void: list[str] = []
        refused: list[PreemptionRefusal] = []
        while self._window.room and len(self._preemptions):
            writes = self._preemptions.batch(guard.epoch, now_unix, void, refused)
            if not writes:
                break
            yield self._window.send(writes, guard, op=OP_PREEMPT)
        self._ends.end_all(EndedAttempt(uid, AttemptEnd.AGAIN) for uid in void)
        for refusal in refused:
            self._ends.room_refused(refusal.room, refusal.problem, self._clock())
        # Nothing that ends would wake them.
        stranded = filter(None, map(self._cache.pod, self._preemptions.take_stranded()))
        names = tuple(record.name for record in stranded if self._ends.is_to_be_tried(record))
        if self._ends.link is not None and names:
            self._ends.link.activate(names)
