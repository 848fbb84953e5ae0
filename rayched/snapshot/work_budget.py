"""What one attempt may cost: signs of life within long work, and an end to work that takes too long.

Whoever works for longer than some 0.1 ms at a stretch calls `spend` between two steps, where everything that it keeps is whole.
There the attempt may end with AttemptOverBudget: what was computed so far stays, so the next attempt has less to do. Outside an
attempt `spend` gives signs of life and raises nothing.

Owner: the thread that decides. Cost: 0.2 µs a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, Protocol

TICK_SECONDS: Final = 0.01
"""Signs of life are given so often at most."""


class AttemptAwaits(BaseException):
    """An attempt needs what workers were asked for, and is made again when that is over. Nothing failed, so nobody handles it."""

    def __init__(self, work: AwaitedWork) -> None:
        super().__init__("workers are asked for a part of it")
        self.work = work


class AwaitedWork(Protocol):
    """What workers were asked for."""

    @property
    def is_over(self) -> bool:
        """Everything was answered, or is not waited for any longer."""

    @property
    def until(self) -> float:
        """When it is over at the latest. Seconds, CLOCK_BOOTTIME."""


class AttemptOverBudget(BaseException):
    """An attempt took longer than it may. No plugin's fault, so nobody between the step and the attempt's end handles it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"takes more than {seconds:g} s of the scheduler's time")
        self.seconds = seconds


def _nobody() -> None:
    pass


def _no_time() -> float:
    return 0.0


class WorkBudget:
    """The time of one thread. Times in seconds, of the given clock."""

    __slots__ = ("_allowed", "_began", "_clock", "_progress", "_ticked", "_until", "may_await", "took")

    def __init__(self) -> None:
        """Without a clock no time passes, and nothing is over budget."""
        self._clock: Callable[[], float] = _no_time
        self._progress: Callable[[], None] = _nobody
        self._allowed = inf
        self._began: float | None = None
        self._until = inf
        self._ticked = -inf
        self.may_await = False
        """Whoever began the work makes it again after AttemptAwaits."""
        self.took = 0.0
        """By the work that was ended last."""

    def use(self, clock: Callable[[], float], progress: Callable[[], None]) -> None:
        """`progress` is a sign of life."""
        self._clock, self._progress = clock, progress

    def begin(self, seconds: float, *, may_await: bool = False) -> None:
        """Work that may take so long. Whoever begins it ends it, whatever happens."""
        self._began = now = self._clock()
        self._allowed, self._until = seconds, now + seconds
        self.may_await = may_await

    def end(self) -> None:
        """From now on nothing is over budget. Idempotent."""
        if self._began is not None:
            self.took = self._clock() - self._began
            self._began, self._until = None, inf
        self.may_await = False

    def now(self) -> float:
        """What the thread has computed, in seconds, from any beginning."""
        return self._clock()

    @contextmanager
    def of(self, seconds: float) -> Iterator[None]:
        """The same for a block."""
        self.begin(seconds)
        try:
            yield
        finally:
            self.end()

    def spend(self) -> None:
        """Between two steps of long work. Raises AttemptOverBudget."""
        now = self._clock()
        if now >= self._until:
            self._until = inf
            raise AttemptOverBudget(self._allowed)
        if now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self._progress()

    def breathe(self) -> None:
        """Between two steps of work that has to be done whole, or would have to begin anew."""
        # The last lines of `spend` once more: that runs between all steps of the engine, and a call would slow it.
        now = self._clock()
        if now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self._progress()
