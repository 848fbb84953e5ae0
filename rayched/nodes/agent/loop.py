"""The agent's one loop: callbacks of other threads, input of shims, and times that have come."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import queue
import selectors
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from rayched.nodes.agent.shim.boot_timer import BootTimer, boottime

_PATIENCE_SECONDS: Final = 10.0
_FAULT_SECONDS: Final = 0.05

T = TypeVar("T")

log = logging.getLogger(__name__)


class LoopAnswer(Generic[T]):
    """What a call gives that is made in the loop's thread, for another one."""

    def __init__(self, post: Callable[[Callable[[], None]], None], call: Callable[[], T]) -> None:
        self._call = call
        self._found: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()
        post(self._work)

    def get(self, seconds: float) -> T:
        """Raises queue.Empty after that time, and what the call raises."""
        given = self._found.get(timeout=seconds)
        if isinstance(given, Exception):
            raise given
        return given

    def _work(self) -> None:
        try:
            self._found.put(self._call())
        except Exception as error:
            self._found.put(error)


class AgentLoop:
    """`post` may be called by any thread, the rest by the loop's own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._selector = selectors.DefaultSelector()
        self._wake_reading, self._wake_writing = os.pipe()
        os.set_blocking(self._wake_reading, False)
        os.set_blocking(self._wake_writing, False)
        self._selector.register(self._wake_reading, selectors.EVENT_READ, self._drain)
        self._timer = BootTimer()
        """As select counts no time in which the host sleeps."""
        self._selector.register(self._timer, selectors.EVENT_READ, self._timer.drain)
        self._stopped = False

    def post(self, callback: Callable[[], None]) -> None:
        self._posted.put(callback)
        # A pipe that is full wakes as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_writing, b"\0")

    def ask(self, call: Callable[[], T], seconds: float) -> T:
        """What it gives, in the loop's thread; for any other. Raises TimeoutError, and what it raises."""
        try:
            return LoopAnswer(self.post, call).get(seconds)
        except queue.Empty:
            raise TimeoutError(f"the loop has not answered within {seconds:g} s") from None

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._later, (self._clock() + seconds, next(self._numbers), callback))

    def watch(self, source: Any, ready: Callable[[], None]) -> None:
        """`source` has a fileno."""
        self._selector.register(source, selectors.EVENT_READ, ready)

    def look_after(self, link: Any, on: bool) -> None:
        """Watches it, or no longer. `link` has a fileno, and `ready` reads what there is."""
        if on:
            self.watch(link, link.ready)
        else:
            self.unwatch(link)

    def unwatch(self, source: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def stop(self) -> None:
        self._stopped = True

    def run(self, wakes_at: Callable[[], float], turn: Callable[[], None]) -> None:
        """Until stopped. `turn` is called after whatever happened, and when `wakes_at` has come."""
        while not self._stopped:
            soonest = min(wakes_at(), self._later[0][0] if self._later else float("inf"))
            patience = min(max(soonest - self._clock(), 0.0), _PATIENCE_SECONDS)
            self._timer.set(boottime() + patience)
            for key, _ in self._selector.select(patience if self._posted.empty() else 0.0):
                self._guarded(key.data)
            while not self._posted.empty():
                self._guarded(self._posted.get())
            while self._later and self._later[0][0] <= self._clock():
                self._guarded(heapq.heappop(self._later)[2])
            self._guarded(turn)

    def _guarded(self, call: Callable[[], None]) -> None:
        """What goes wrong with one thing, a full disk for example, shall not end the agent."""
        try:
            call()
        except Exception:
            log.exception("the agent goes on after a fault")
            # The same may come again at once.
            time.sleep(_FAULT_SECONDS)

    def close(self) -> None:
        self._selector.close()
        self._timer.close()
        os.close(self._wake_reading)
        os.close(self._wake_writing)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reading, 4096)
