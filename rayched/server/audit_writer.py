"""Writes audit lines in a thread of its own, so that no call waits for a disk for long.

    event loop ── put ──▶ queue, bounded ──▶ thread ── append, many at once ──▶ audit_log.py
         ▲                                     │
         └────────── written ◀─────────────────┘

A call is answered when its line is written, or WAIT_SECONDS later. Where lines cannot be written, as on a full disk, the thread
tries again and again, calls do not wait, and the queue keeps what comes. What finds it full is lost and counted; a line of its
own says then how many are missing. `strict` says what becomes of calls that change something: with it they are refused while
lines cannot be written, or are lost untold.

Owner: one server, which closes it. `put` and `written` in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from rayched.access.audit_line import AuditEntry, AuditStage
from rayched.server.audit_log import AuditUnavailable

QUEUE_MAX: Final = 8_192
BATCH_MAX: Final = 256
WAIT_SECONDS: Final = 0.25
"""For which an answer waits for its line at most."""
RETRY_SECONDS: Final = 0.5
_TOLD_SECONDS: Final = 60.0
"""Between two lines in the replica's log on the same trouble."""
_CLOSE_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class AuditSink(Protocol):
    """Where lines go: all of some entries, or AuditUnavailable, after which the same come again."""

    def append(self, *entries: AuditEntry) -> None: ...

    def close(self) -> None: ...


class AuditWriter:
    """See the module."""

    def __init__(
        self,
        sink: AuditSink,
        replica: str,
        *,
        strict: bool = False,
        queue_max: int = QUEUE_MAX,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`replica`: its name in the lines; `clock`: seconds since 1970."""
        self.replica: Final = replica
        self.strict: Final = strict
        self.clock: Final = clock
        self._sink = sink
        self._queue_max = queue_max
        self._changed = threading.Condition()
        self._queue: deque[AuditEntry] = deque()
        self._put = self._done = self._lost = self._untold = 0
        """Entries ever taken, written and lost; of the last those that no line tells of."""
        self._failing = ""
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._told_at = -_TOLD_SECONDS
        self._thread = threading.Thread(target=self._write_all, name="audit-writer", daemon=True)
        self._thread.start()

    @property
    def lines(self) -> int:
        """Written."""
        return self._done

    @property
    def lost(self) -> int:
        """Not written, for there was no room."""
        return self._lost

    @property
    def waiting(self) -> int:
        """Not written yet."""
        return self._put - self._done

    @property
    def failing(self) -> str:
        """Why nothing can be written; empty: it can."""
        return self._failing

    @property
    def is_behind(self) -> bool:
        """What comes now could not be written down: nothing can, no place is left, or what is lost is not told yet."""
        return bool(self._failing) or self.waiting >= self._queue_max or self._untold > 0

    def put(self, entry: AuditEntry) -> int:
        """Takes an entry, and gives its number; 0: it is lost."""
        with self._changed:
            if self.waiting >= self._queue_max:
                self._lost += 1
                self._untold += 1
                self._tell(f"{self._untold} lines are lost: {self._failing or 'more calls come than can be written down'}")
                return 0
            self._queue.append(entry)
            self._put += 1
            self._changed.notify()
            return self._put

    async def written(self, number: int) -> None:
        """Returns when the entry with this number is written, or it has waited for long enough."""
        if not number or self._failing:
            return
        self._loop = asyncio.get_running_loop()
        # After the loop is known, for the thread looks at it after it has written.
        if self._done >= number:
            return
        waiter = self._loop.create_future()
        self._waiters.append((number, waiter))
        await asyncio.wait((waiter,), timeout=WAIT_SECONDS)

    def close(self) -> None:
        """Writes what is there, for a moment where that does not work. Idempotent; blocks."""
        with self._changed:
            self._stop.set()
            self._changed.notify()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.error("the audit log ends with %d lines that were not written", self.waiting)
            return
        if self.waiting:
            _log.error("the audit log ends with %d lines that were not written: %s", self.waiting, self._failing)

    # ---- in the thread

    def _write_all(self) -> None:
        try:
            while (taken := self._next()) is not None:
                batch, untold = taken
                # After those that were there before. Made once, as what was begun is gone on with.
                lines = [*batch, self._missing(untold)] if untold else batch
                if not self._are_written(lines):
                    return
                with self._changed:
                    self._untold -= untold
                    self._done += len(batch)
                self._wake()
        finally:
            self._sink.close()

    def _next(self) -> tuple[list[AuditEntry], int] | None:
        """Waits for some, or for some that are lost; None: it is over."""
        with self._changed:
            while not self._queue and not self._untold:
                if self._stop.is_set():
                    return None
                self._changed.wait()
            return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MAX))], self._untold

    def _are_written(self, lines: list[AuditEntry]) -> bool:
        """Tries until it works; False: it is to stop before."""
        while True:
            try:
                self._sink.append(*lines)
            except AuditUnavailable as error:
                with self._changed:
                    self._failing = str(error)
                    answered = "calls that change something are refused" if self.strict else "calls are answered all the same"
                    self._tell(f"nothing can be written, {answered}: {error}")
                if self._stop.wait(RETRY_SECONDS):
                    return False
                continue
            if self._failing:
                _log.warning("the audit log is written again")
                self._failing = ""
            return True

    def _missing(self, count: int) -> AuditEntry:
        return AuditEntry(time=time_text(self.clock()), id="", stage=AuditStage.LOST, replica=self.replica, peer="", lost=count)

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._advance)

    def _tell(self, what: str) -> None:
        """With the lock."""
        now = self.clock()
        if now - self._told_at >= _TOLD_SECONDS:
            self._told_at = now
            _log.error("audit log: %s", what)

    # ---- in the event loop

    def _advance(self) -> None:
        while self._waiters and self._waiters[0][0] <= self._done:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


def time_text(seconds: float) -> str:
    """RFC 3339, UTC, microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
