"""What the page remembers of the last hour: how the scheduler was doing second by second, and who led when. Pure.

Both begin when somebody first looks, and are lost with the process: the truth is elsewhere. Times are Unix seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rayched.v1.services_pb2 import DurationHistogram, GetSchedulerStatusResponse

RESULTS: Final = ("scheduled", "unschedulable", "error")
QUEUES: Final = ("active", "backoff", "unschedulable", "gated", "in_flight")
FINE_SAMPLES_MAX: Final = 300
COARSE_SAMPLES_MAX: Final = 360
COARSE_SECONDS: Final = 10.0
TERMS_MAX: Final = 1_000
FENCED_MAX: Final = 1_000
REPLICAS_MAX: Final = 100
"""Whose fenced writes are counted: those that were looked at last."""

QUANTILES: Final = (0.5, 0.99)
"""Of the time that an attempt takes which binds its pod, and then of the time from a pod's first attempt to its binding."""

Sample = list[float | int | None]
"""Time; attempts a second by result, None where they are not known; pods by queue; QUANTILES of two times in seconds, None where
no pod was bound."""


class StatusHistory:
    """Samples of the scheduler: the last five minutes one by one, the last hour every ten seconds."""

    def __init__(self) -> None:
        self._fine: deque[Sample] = deque(maxlen=FINE_SAMPLES_MAX)
        self._coarse: deque[Sample] = deque(maxlen=COARSE_SAMPLES_MAX)
        self._before: tuple[float, GetSchedulerStatusResponse] | None = None

    def see(self, status: GetSchedulerStatusResponse, now: float) -> Sample:
        """The sample. What is a difference is that to the sample before it, where that is of the same term."""
        rates: Sequence[float | None] = [None] * len(RESULTS)
        quantiles: Sequence[float | None] = [None] * (2 * len(QUANTILES))
        if self._before is not None:
            at, before = self._before
            attempts = [_count(status, result) - _count(before, result) for result in RESULTS]
            if status.epoch == before.epoch and min(attempts) >= 0 and now > at:
                rates = [count / (now - at) for count in attempts]
                pairs = ((status.attempt_durations, before.attempt_durations), (status.sli_durations, before.sli_durations))
                quantiles = [quantile(after, older, part) for after, older in pairs for part in QUANTILES]
        self._before = (now, status)
        pending = status.pending_pods
        waiting = (int(pending[queue]) if queue in pending else 0 for queue in QUEUES)
        sample: Sample = [now, *rates, *waiting, *quantiles]
        self._fine.append(sample)
        if not self._coarse or now - float(self._coarse[-1][0] or 0.0) >= COARSE_SECONDS:
            self._coarse.append(sample)
        return sample

    def miss(self) -> None:
        """Nobody knows how many attempts were made since."""
        self._before = None

    def plain(self) -> dict[str, Any]:
        return {"fine": list(self._fine), "coarse": list(self._coarse)}


def quantile(after: DurationHistogram, before: DurationHistogram, part: float) -> float | None:
    """In seconds, of what came into a histogram between two looks; None: nothing did.

    Within a bucket what came lies evenly; above all bounds it is the last one. Source: PromQL's histogram_quantile.
    """
    if len(after.counts) != len(after.bounds) + 1:
        return None
    older = before.counts if len(before.counts) == len(after.counts) else [0] * len(after.counts)
    counts = [max(0, new - old) for new, old in zip(after.counts, older, strict=True)]
    rank, passed, low = part * sum(counts), 0, 0.0
    if not rank:
        return None
    for bound, count in zip(after.bounds, counts, strict=False):
        if count and passed + count >= rank:
            return round(low + (bound - low) * (rank - passed) / count, 6)
        passed, low = passed + count, bound
    return low


def _count(status: GetSchedulerStatusResponse, result: str) -> int:
    return int(status.attempts[result]) if result in status.attempts else 0


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """One holder under one epoch. `until` is None while it leads."""

    holder: str
    epoch: int
    since: float
    until: float | None = None

    def plain(self) -> dict[str, Any]:
        return {"holder": self.holder, "epoch": self.epoch, "since": self.since, "until": self.until}


@dataclass(frozen=True, slots=True)
class FencedWrites:
    """Writes of a replica that the store refused because their epoch was over."""

    at: float
    """When they were first seen."""
    replica: str
    count: int


class LeaderTimeline:
    """Terms in the order of their epochs, and the writes that were fenced."""

    def __init__(self) -> None:
        self._terms: deque[LeaderTerm] = deque(maxlen=TERMS_MAX)
        self._fenced: deque[FencedWrites] = deque(maxlen=FENCED_MAX)
        self._fenced_of: dict[str, int] = {}
        self.sequence = 0

    @property
    def terms(self) -> tuple[LeaderTerm, ...]:
        return tuple(self._terms)

    def see(self, holder: str, epoch: int, acquired_at: float, now: float) -> None:
        """Who leads now; "" for nobody. A term is over when that is first seen, and at the latest when the next one begins."""
        last = self._terms[-1] if self._terms else None
        if last is not None and last.until is None and (last.holder, last.epoch) != (holder, epoch):
            self._end(last, now)
        if holder and (last is None or epoch > last.epoch):
            # That nobody leads may be heard of after somebody does again.
            if last is not None and (self._terms[-1].until or now) > acquired_at:
                self._end(last, acquired_at)
            self._terms.append(LeaderTerm(holder, epoch, acquired_at))
            self.sequence += 1

    def see_fenced(self, replica: str, total: int, now: float) -> None:
        """How many writes of a replica were fenced since its process began. Those before the first look have no known time."""
        before = self._fenced_of.pop(replica, total)
        self._fenced_of[replica] = total
        if len(self._fenced_of) > REPLICAS_MAX:
            del self._fenced_of[next(iter(self._fenced_of))]
        # Fewer than before: those of a new process.
        count = total - before if total >= before else total
        if count:
            self._fenced.append(FencedWrites(now, replica, count))
            self.sequence += 1

    def _end(self, last: LeaderTerm, at: float) -> None:
        # Clocks of two hosts: a term does not end before it began.
        self._terms[-1] = replace(last, until=max(last.since, at))
        self.sequence += 1

    def plain(self) -> dict[str, Any]:
        fenced = [[writes.at, writes.replica, writes.count] for writes in self._fenced]
        return {"terms": [term.plain() for term in self._terms], "fenced": fenced}
