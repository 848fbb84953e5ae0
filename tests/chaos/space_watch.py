"""What becomes of etcd's file and of the leader's record while somebody fills etcd, looked at often."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from leader.channel import open_channel
from rayched.store.calls import MemberStatus
from rayched.store.errors import StoreError
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys

_LOOK_SECONDS: Final = 0.1


class SpaceWatch:
    """A context manager with a thread."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = endpoints
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="space watch", daemon=True)
        self._renewed_at = 0.0
        self._longest_pause = 0.0
        self.largest_file = 0
        self.in_use = 0
        self.alarms: set[str] = set()
        """Seen so far."""

    def __enter__(self) -> Self:
        self._renewed_at = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()

    def longest_pause(self) -> float:
        """The longest time, so far or at present, for which nobody has renewed the lead, in seconds."""
        with self._lock:
            return max(self._longest_pause, time.monotonic() - self._renewed_at)

    def _run(self) -> None:
        record, revision = Keys().record, 0
        with open_channel(self._endpoints) as channel:
            store = StoreClient(channel)
            while not self._stopped.wait(_LOOK_SECONDS):
                try:
                    self._note(store.status())
                    entry = store.get(record)
                except StoreError:
                    continue  # what is not seen counts as a pause
                if entry is not None and entry.mod_revision != revision:
                    revision, now = entry.mod_revision, time.monotonic()
                    with self._lock:
                        self._longest_pause = max(self._longest_pause, now - self._renewed_at)
                        self._renewed_at = now

    def _note(self, status: MemberStatus) -> None:
        self.largest_file = max(self.largest_file, status.database_bytes)
        self.in_use = status.in_use_bytes
        self.alarms |= set(status.alarms)
