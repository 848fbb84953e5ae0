"""Several elections, one store and a network between them, in simulated time from one seed.

Each candidate has a clock of its own with its own rate and offset. Calls and answers take time, may be lost or cut off; watch
events arrive in order but late; a candidate may be paused. The store collects a record whose etcd lease ran out. A leading
candidate writes all the time, under the epoch it believes in. Times of the arena are nanoseconds of true time.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from leader import effects as fx
from leader import events as ev
from leader.clock import Instant
from leader.config import ElectionConfig
from leader.election import Election
from tests.leader.model import ModelStore

SECOND = 10**9


@dataclass
class Seat:
    """One candidate."""

    name: str
    election: Election
    rate: float = 1.0
    offset_ns: int = 0
    paused_until: int = 0
    requests_pass: bool = True
    answers_pass: bool = True
    watch_passes: bool = True
    drain_ns: int = 5_000_000
    due_ns: int | None = None
    timer: int = 0
    belief: tuple[int, int] | None = None
    working: bool = False
    terms: int = 0
    calls: int = 0
    watch_free_at: int = 0
    effects: list[fx.Effect] = field(default_factory=list)

    def local_ns(self, now: int) -> int:
        return int(now * self.rate) + self.offset_ns

    def believes(self, now: int) -> int:
        """The epoch it would write under now; 0: none."""
        return self.belief[0] if self.belief is not None and self.local_ns(now) < self.belief[1] else 0


class Arena:
    def __init__(
        self, configs: list[ElectionConfig], seed: int, *, loss: float = 0.0, delay_ms: tuple[float, float] = (0.2, 5.0)
    ):
        self.random = random.Random(seed)
        self.now = 0
        self.loss = loss
        self.delay_ms = delay_ms
        self.store = ModelStore()
        self.ttl_ns = max(config.store_ttl_seconds for config in configs) * SECOND
        self.lease_ends = 0
        self.epochs: list[int] = []
        self.writes: list[tuple[int, int]] = []
        """Epoch and time of each write of the work that the store took."""
        self.refused = 0
        self.overlaps = 0
        self._number = itertools.count()
        self._plan: list[tuple[int, int, Callable[[], None]]] = []
        self.seats = [
            Seat(config.identity, Election(config, f"of-{config.identity}", self.random.random), offset_ns=index * 7 * SECOND)
            for index, config in enumerate(configs)
        ]

    def start(self) -> Arena:
        for seat in self.seats:
            self.give(seat, ev.Started())
        self.after(0, self._work_everywhere)
        return self

    def after(self, delay_ns: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._plan, (self.now + delay_ns, next(self._number), what))

    def run(self, seconds: float) -> Arena:
        until = self.now + round(seconds * SECOND)
        while self._plan and self._plan[0][0] <= until:
            self.now, _, what = heapq.heappop(self._plan)
            what()
            believers = {seat.name for seat in self.seats if seat.believes(self.now)}
            self.overlaps += len(believers) > 1
        self.now = until
        return self

    def run_until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Seconds that it took."""
        began = self.now
        while not condition():
            assert self.now - began < seconds * SECOND, "it did not come true in time"
            self.run(0.01)
        return (self.now - began) / SECOND

    def leader(self) -> Seat | None:
        leaders = [seat for seat in self.seats if seat.believes(self.now)]
        return leaders[0] if len(leaders) == 1 else None

    def give(self, seat: Seat, event: ev.Event) -> None:
        """An event reaches a candidate, after its pause if it has one."""
        if self.now < seat.paused_until:
            self.after(seat.paused_until - self.now, lambda: self.give(seat, event))
            return
        at = Instant(seat.local_ns(self.now), self.now // 1000)
        for effect in seat.election.step(at, event):
            if not isinstance(effect, fx.ArmTimer | fx.PublishBelief | fx.Renewed | fx.Note):
                seat.effects.append(effect)
            self._perform(seat, effect)

    def _perform(self, seat: Seat, effect: fx.Effect) -> None:
        match effect:
            case fx.Get() | fx.Acquire() | fx.Renew() | fx.BeginTerm() | fx.Release():
                seat.calls += 1
                self._call(seat, effect)
            case fx.ArmTimer(due_ns):
                seat.timer += 1
                if due_ns is not None:
                    true_due = int((due_ns - seat.offset_ns) / seat.rate) + 1
                    number = seat.timer
                    self.after(max(0, true_due - self.now), lambda: self._tick(seat, number))
            case fx.PublishBelief(epoch, valid_until_ns):
                seat.belief = (epoch, valid_until_ns)
            case fx.WithdrawBelief():
                seat.belief = None
            case fx.StartLeading():
                seat.working, seat.terms = True, seat.terms + 1
            case fx.StopLeading():
                self.after(seat.drain_ns, lambda: self._drained(seat))

    def _drained(self, seat: Seat) -> None:
        seat.working = False
        self.give(seat, ev.Drained())

    def _tick(self, seat: Seat, number: int) -> None:
        if seat.timer == number:
            self.give(seat, ev.Tick())

    def _delay(self) -> int:
        low, high = self.delay_ms
        return int((low + (high - low) * self.random.random() ** 3) * 1e6)

    def _call(self, seat: Seat, request: fx.Request) -> None:
        if not seat.requests_pass or self.random.random() < self.loss:
            return
        self.after(self._delay(), lambda: self._arrive(seat, request))

    def _arrive(self, seat: Seat, request: fx.Request) -> None:
        before = self.store.revision
        outcome = self.store.perform(request)
        if self.store.revision != before:
            if not isinstance(request, fx.Release):
                self.lease_ends = self.now + self.ttl_ns
                ends = self.lease_ends
                self.after(self.ttl_ns, lambda: self._collect(ends))
            if not isinstance(request, fx.Renew):
                self.epochs.append(self.store.revision)
            self._spread()
        if seat.answers_pass and self.random.random() >= self.loss:
            self.after(self._delay(), lambda: self.give(seat, ev.Answered(request.number, outcome)))

    def _collect(self, lease_end: int) -> None:
        record = self.store.record
        if lease_end == self.lease_ends and record is not None and record.record.holder:
            self.store.delete_record()
            self._spread()

    def _spread(self) -> None:
        view = self.store.view()
        for seat in self.seats:
            if seat.watch_passes:
                seat.watch_free_at = max(seat.watch_free_at, self.now + self._delay())
                events = (ev.RecordChanged(view.record, view.revision), ev.EpochChanged(view.epoch, view.revision))
                for event in events:
                    self.after(seat.watch_free_at - self.now, lambda seat=seat, event=event: self.give(seat, event))

    def _work_everywhere(self) -> None:
        """Each candidate that believes to lead sends a write; it arrives later, and is guarded."""
        for seat in self.seats:
            epoch = seat.believes(self.now)
            if epoch and self.now >= seat.paused_until:
                self.after(self._delay() * 20, lambda epoch=epoch: self._write(epoch))
        self.after(50_000_000, self._work_everywhere)

    def _write(self, epoch: int) -> None:
        if self.store.epoch is not None and self.store.epoch.mod_revision == epoch:
            self.writes.append((epoch, self.now))
        else:
            self.refused += 1
