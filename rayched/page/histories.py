"""What the page remembers of the last hour: how the scheduler was doing second by second, and who led when. Pure.

Both begin when somebody first looks, and are lost with the process: the truth is elsewhere. Times are Unix seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rayched.v1.services_pb2 import GetSchedulerStatusResponse

RESULTS: Final = ("scheduled", "unschedulable", "error")
QUEUES: Final = ("active", "backoff", "unschedulable", "gated", "in_flight")
FINE_SAMPLES_MAX: Final = 300
COARSE_SAMPLES_MAX: Final = 360
COARSE_SECONDS: Final = 10.0
TERMS_MAX: Final = 1_000

Sample = list[float | int | None]
"""Time; attempts a second by result, None where they are not known; pods by queue."""


class StatusHistory:
    """Samples of the scheduler: the last five minutes one by one, the last hour every ten seconds."""

    def __init__(self) -> None:
        self._fine: deque[Sample] = deque(maxlen=FINE_SAMPLES_MAX)
        self._coarse: deque[Sample] = deque(maxlen=COARSE_SAMPLES_MAX)
        self._before: tuple[float, int, tuple[int, ...]] | None = None

    def see(self, status: GetSchedulerStatusResponse, now: float) -> Sample:
        """The sample. Attempts a second are those since the sample before it, where that is of the same term."""
        attempts = tuple(int(status.attempts[result]) if result in status.attempts else 0 for result in RESULTS)
        rates: Sequence[float | None] = [None] * len(RESULTS)
        if self._before is not None:
            at, epoch, counted = self._before
            grew = all(after >= before for after, before in zip(attempts, counted, strict=True))
            if epoch == status.epoch and grew and now > at:
                rates = [(after - before) / (now - at) for after, before in zip(attempts, counted, strict=True)]
        self._before = (now, status.epoch, attempts)
        pending = status.pending_pods
        sample: Sample = [now, *rates, *(int(pending[queue]) if queue in pending else 0 for queue in QUEUES)]
        self._fine.append(sample)
        if not self._coarse or now - float(self._coarse[-1][0] or 0.0) >= COARSE_SECONDS:
            self._coarse.append(sample)
        return sample

    def miss(self) -> None:
        """Nobody knows how many attempts were made since."""
        self._before = None

    def plain(self) -> dict[str, Any]:
        return {"fine": list(self._fine), "coarse": list(self._coarse)}


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """One holder under one epoch. `until` is None while it leads."""

    holder: str
    epoch: int
    since: float
    until: float | None = None

    def plain(self) -> dict[str, Any]:
        return {"holder": self.holder, "epoch": self.epoch, "since": self.since, "until": self.until}


class LeaderTimeline:
    """Terms in the order of their epochs."""

    def __init__(self) -> None:
        self._terms: deque[LeaderTerm] = deque(maxlen=TERMS_MAX)
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

    def _end(self, last: LeaderTerm, at: float) -> None:
        # Clocks of two hosts: a term does not end before it began.
        self._terms[-1] = replace(last, until=max(last.since, at))
        self.sequence += 1

    def plain(self) -> list[dict[str, Any]]:
        return [term.plain() for term in self._terms]
