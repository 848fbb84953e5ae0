"""Compaction of etcd by the leader: every 5 minutes, to the revision that was current 10 minutes before.

Without it etcd keeps every version of every object until its quota is full, and then refuses even leases. A watcher that is more
than 10 minutes behind has to list again.

A thread of its own; a compaction that fails is tried at the next turn.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from leader.channel import open_channel
from rayched.store.client import StoreClient
from rayched.store.errors import Compacted, StoreError

PERIOD_SECONDS: Final = 300.0
KEPT_PERIODS: Final = 2

log = logging.getLogger("rayched.replica")


class Compactor:
    """Compacts while `leads` says so. `start` and `stop` once."""

    def __init__(self, endpoints: Sequence[str], leads: Callable[[], bool], period_seconds: float = PERIOD_SECONDS) -> None:
        self._endpoints = tuple(endpoints)
        self._leads = leads
        self._period_seconds = period_seconds
        self._stopped = threading.Event()
        self._revisions: deque[int] = deque(maxlen=KEPT_PERIODS + 1)
        """Revisions current at the last turns, oldest first; a standby keeps them too, and so has a past when it leads."""
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with open_channel(self._endpoints) as channel:
            store = StoreClient(channel)
            while not self._stopped.wait(self._period_seconds):
                self._turn(store)

    def _turn(self, store: StoreClient) -> None:
        try:
            self._revisions.append(store.revision())
            if self._leads() and len(self._revisions) > KEPT_PERIODS:
                store.compact(self._revisions[0])
                log.info("etcd compacted to revision %d", self._revisions[0])
        except Compacted:
            log.debug("etcd is compacted further already")
        except StoreError as error:
            log.warning("etcd was not compacted: %s", error)
