"""Who leads, as seen by a replica that does not stand for election yet: it can tell its clients from its first second on.

Follows the record and the epoch in etcd and writes nothing. Cost: one connection and one thread until `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leader.channel import kept, open_channel
from leader.clock import SystemClock
from leader.etcd_requests import LockKeys
from leader.etcd_watch import KeyWatch
from leader.events import EpochChanged, Event, Listed, RecordChanged
from leader.observation import Observation
from leader.record import LeaderRecord, StoredEpoch
from rayched.store.keys import Keys


class RecordObserver:
    """`start`, then `close`, which may come without a start. `on_change` is called on a thread of its own."""

    def __init__(self, endpoints: Sequence[str], keys: Keys, on_change: Callable[[], object]) -> None:
        self._endpoints = kept(endpoints)
        self._keys = LockKeys(keys.record, keys.epoch)
        self._on_change = on_change
        self._seen = Observation()
        self._clock = SystemClock()
        self._channel: Any = None
        self._watch: KeyWatch | None = None

    def start(self) -> None:
        self._channel = open_channel(self._endpoints)
        self._watch = KeyWatch(self._channel, self._keys, self._observe)

    def close(self) -> None:
        """Idempotent."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
            self._channel.close()

    def seen(self) -> tuple[LeaderRecord | None, StoredEpoch | None]:
        """The record of whoever leads, and the epoch, which is perhaps another one's."""
        stored = self._seen.record
        return (stored.record if stored is not None and stored.record.holder else None), self._seen.epoch

    def _observe(self, event: Event) -> None:
        now = self._clock.now()
        match event:
            case RecordChanged(record, revision):
                self._seen.see_record(record, revision, now)
            case EpochChanged(epoch, revision):
                self._seen.see_epoch(epoch, revision)
            case Listed(view, went_back):
                if went_back:
                    self._seen.forget()
                self._seen.see(view, now)
        self._on_change()
