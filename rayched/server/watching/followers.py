"""Those in this process who follow the cluster beside the hub: each gets what the hub's feed delivers, on a thread of its own.

A follower begins with the hub's present state as a `ListedAll`. One that is so slow that more than `CHANGES_WAITING_MAX` changes
wait for it gets no more of them; when it has taken what waits it is given the present state anew, so it costs bounded memory and
misses nothing that lasts.

The event loop offers; the follower's thread takes, and then lets deliveries gather for a moment: nobody who follows is in the way
of a pod. Cost: two wake-ups in GATHER_SECONDS at most, and for a prefix within the cluster's a comparison a change.
"""

from __future__ import annotations

import enum
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rayched.store.io.watcher import Handler
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll

CHANGES_WAITING_MAX: Final = 100_000
GATHER_SECONDS: Final = 0.02
_STOP_SECONDS_MAX: Final = 5.0

_log = logging.getLogger(__name__)


class _Word(enum.Enum):
    """What stands between deliveries."""

    END = enum.auto()
    LISTED_ANEW = enum.auto()
    """Changes were left out here."""


class WatchSubscriber:
    """One who follows. Made, ended and stopped on any thread; `offer` is the event loop's."""

    def __init__(
        self,
        prefix: bytes | None,
        handler: Handler,
        ask: Callable[[WatchSubscriber], None],
        leave: Callable[[WatchSubscriber], None],
        changes_max: int = CHANGES_WAITING_MAX,
    ) -> None:
        """`prefix` None: everything. On its own thread `ask` is called when it has to be listed to, and `leave` at its end."""
        self._prefix = prefix
        self._handler = handler
        self._ask = ask
        self._leave = leave
        self._changes_max = changes_max
        self._inbox: queue.SimpleQueue[Delivery | _Word] = queue.SimpleQueue()
        self._offered = 0
        self._taken = 0
        """Changes; the one is the loop's, the other the thread's, and each reads the other's."""
        self._overflowed = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return not self._stopping.is_set()

    def end(self) -> None:
        """As `stop`, without waiting."""
        self._stopping.set()
        self._inbox.put(_Word.END)

    def stop(self) -> None:
        self.end()
        if self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS_MAX)

    # ---- called on the event loop

    def offer(self, delivery: Delivery) -> None:
        if self._overflowed and not isinstance(delivery, ListedAll):
            return
        match delivery:
            case ListedAll():
                self._overflowed = False
            case Changed(changes) if self._offered - self._taken > self._changes_max:
                _log.warning("one who follows the cluster is %d changes behind and is listed to anew", self._changes_max)
                self._overflowed = True
                self._inbox.put(_Word.LISTED_ANEW)
                return
            case Changed(changes):
                if self._prefix is not None:
                    changes = tuple(change for change in changes if change.key.startswith(self._prefix))
                    if not changes:
                        return
                    delivery = replace(delivery, changes=changes)
                self._offered += len(changes)
        self._inbox.put(delivery)

    # ---- its own thread

    def _run(self) -> None:
        try:
            self._ask(self)
            while True:
                item = self._inbox.get()
                if self._stopping.is_set():
                    return
                if isinstance(item, _Word):
                    self._ask(self)
                else:
                    self._take(item)
                if self._inbox.empty():
                    self._stopping.wait(GATHER_SECONDS)
        except Exception:
            # As with a watch: whoever missed a delivery must not go on with the next one.
            _log.critical("one who follows the cluster failed", exc_info=True)
        finally:
            self._stopping.set()
            self._leave(self)

    def _take(self, delivery: Delivery) -> None:
        match delivery:
            case ListedAll(entries, revision):
                wanted = (entry for entry in entries if self._prefix is None or entry.key.startswith(self._prefix))
                delivery = ListedAll(tuple(sorted(wanted)), revision)
            case Changed(changes):
                self._taken += len(changes)
        self._handler(delivery)
