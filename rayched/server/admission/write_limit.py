"""How much may be written at once, learnt from how soon etcd answers. Pure: times come in as arguments.

etcd takes in more than it can apply and then answers nobody: what is proposed waits in a line of its own, also when the caller
has long given up, and a renewal or a binding stands at the end of that line. So the line is kept short here. A limit on what is
under way grows by a step while answers come as soon as they did at best, and falls by a part as soon as they come later: additive
increase, multiplicative decrease, as TCP has it. Each replica does so for itself, and the same rule shares etcd between them.

One answer changes the limit in each round trip: that of a write sent after the last change, for an earlier one says nothing about
the present limit. The best round trip is that of the last ten to twenty seconds, so that an etcd that has become slower or faster
is known as such. It counts up to a quarter of a second: an etcd that takes longer is slow or has a line, which looks the same and
asks for the same.

Cost: a microsecond an answer.
"""

from __future__ import annotations

import math
from typing import Final

LIMIT_MIN: Final = 128.0
"""In units of weight, as all of them. A batch of a hundred small pods: with less nothing could be sent at all."""
LIMIT_MAX: Final = 1024.0
"""Answered in 20 ms these are 40,000 small pods a second; what a sudden flood can put into etcd before the first answer."""
_STEP: Final = 64.0
_LATE_FACTOR: Final = 0.7
_UNANSWERED_FACTOR: Final = 0.5
_DELAY_SECONDS_MAX: Final = 0.1
"""What an answer may take beyond the best one: how long the line may be."""
_BEST_SECONDS_MAX: Final = 0.25
_WINDOW_SECONDS: Final = 10.0


class WriteLimit:
    """The limit of one replica. Owned by one thread."""

    def __init__(self) -> None:
        self.weight = LIMIT_MIN
        """How much may be under way."""
        self._changed = -math.inf
        self._best = self._best_before = math.inf
        """The shortest round trips of this window and of the one before."""
        self._window_ends = -math.inf

    def heard(self, sent: float, now: float, *, used_up: bool) -> None:
        """An answer came; `used_up`: others wait for a place."""
        seconds = now - sent
        self._note(seconds, now)
        if sent < self._changed:
            return
        if seconds > self.seconds_allowed:
            self._change(self.weight * _LATE_FACTOR, now)
        elif used_up:
            self._change(self.weight + _STEP, now)

    def unanswered(self, sent: float, now: float) -> None:
        """There was no answer in time. The write may still stand in etcd's line."""
        if sent >= self._changed:
            self._change(self.weight * _UNANSWERED_FACTOR, now)

    @property
    def seconds_allowed(self) -> float:
        """What answers may take before less is sent."""
        return min(self._best, self._best_before, _BEST_SECONDS_MAX) + _DELAY_SECONDS_MAX

    def _change(self, weight: float, now: float) -> None:
        self.weight = min(max(weight, LIMIT_MIN), LIMIT_MAX)
        self._changed = now

    def _note(self, seconds: float, now: float) -> None:
        if now >= self._window_ends:
            # After a long silence what was before the silence says nothing either.
            self._best_before = self._best if now < self._window_ends + _WINDOW_SECONDS else math.inf
            self._best, self._window_ends = math.inf, now + _WINDOW_SECONDS
        self._best = min(self._best, seconds)
