"""The inbox of a thread that owns some state: others put calls into it, and it waits for them and for sockets at one place.

A message on a socket that the owner waits for itself costs one switch of threads; one that another thread reads and puts here
costs two. Whoever puts something wakes the owner only where it sleeps.

Owner: one thread, which alone calls all methods but `put`. Cost: three system calls a wake-up.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable
from functools import partial


class Inbox:
    """Calls in the order in which they were put, and sockets to look at meanwhile."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._sleeps = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._watched: dict[int, Callable[[], object]] = {}

    def put(self, call: Callable[[], object]) -> None:
        """From any thread."""
        self._calls.append(call)
        # The owner looks for calls after it has said that it sleeps.
        if self._sleeps:
            os.eventfd_write(self._bell, 1)

    def watch(self, descriptor: int, events: int, look: Callable[[], object]) -> None:
        """`look` is put among the calls whenever one of the events (of `select.poll`) is there. Watching again changes both."""
        self._watched[descriptor] = look
        self._poll.register(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Before it is closed. What was ready is no longer looked at."""
        if self._watched.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def wait(self, seconds: float) -> None:
        """Returns when there is something to take, or the time is over; 0 looks at the sockets and does not wait."""
        if self._calls:
            seconds = 0.0
        self._sleeps = seconds > 0
        # In milliseconds, rounded up: what is due a moment later must not be looked for again and again.
        ready = self._poll.poll(0 if self._calls else -int(-1000 * seconds // 1))
        self._sleeps = False
        for descriptor, _ in ready:
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
            else:
                self._calls.append(partial(self._look, descriptor))

    def _look(self, descriptor: int) -> None:
        """It may have been forgotten since it was ready."""
        look = self._watched.get(descriptor)
        if look is not None:
            look()

    def has_any(self) -> bool:
        """Whether there is something to take, or a socket to look at."""
        return bool(self._calls) or bool(self._poll.poll(0))

    def take(self) -> Callable[[], object] | None:
        """The next call; None: there is none."""
        return self._calls.popleft() if self._calls else None


class LatestCalls:
    """Of calls that each say how something is from now on, only what was called last counts: an actor with several threads may
    begin a call before an earlier one.

    Owner: the loop.
    """

    def __init__(self) -> None:
        self._orders: dict[str, int] = {}

    def carry_out(self, what: str, order: int, call: Callable[[], None]) -> None:
        """`order`: above 0, and higher for a later call of the same caller about the same thing."""
        if order > self._orders.get(what, 0):
            self._orders[what] = order
            call()
