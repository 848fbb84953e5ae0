"""A real etcd in the place of the model store: the same calls, and the history as etcd's own watch told it."""

from __future__ import annotations

import threading
from typing import Any

import grpc

from rayched.store.entries import Change
from rayched.store.io.watcher import Watcher
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll
from tests.core.model_store import ModelStore
from tests.patience import patient_store

WATCH_SECONDS = 20.0


class EtcdStore(ModelStore):
    """What is below the prefix of an etcd that nobody else writes to."""

    def __init__(self, channel: grpc.Channel, prefix: bytes) -> None:
        super().__init__()
        self._client = patient_store(channel)
        self._told = threading.Condition()
        self._watcher = Watcher(channel, prefix, self._deliver)
        self._is_listed = False
        self._watcher.start()
        with self._told:
            assert self._told.wait_for(lambda: self._is_listed, WATCH_SECONDS), "etcd told nothing"

    def close(self) -> None:
        self._watcher.stop()

    def put(self, key: bytes, value: bytes) -> int:
        return self._seen(self._client.put(key, value))

    def delete(self, key: bytes) -> int:
        self._client.delete(key)
        return self._seen(self._client.revision())

    def txn(self, request: Any) -> Any:
        """Raises what the store raises."""
        answer = self._client.txn(request)
        self._seen(answer.header.revision)
        return answer

    def _seen(self, revision: int) -> int:
        """Once the watch has told of this revision."""
        with self._told:
            assert self._told.wait_for(lambda: len(self.history) >= revision, WATCH_SECONDS), f"no word of revision {revision}"
        return revision

    def _deliver(self, delivery: Delivery) -> None:
        with self._told:
            if isinstance(delivery, ListedAll):
                assert not delivery.entries and not self._is_listed, "somebody else writes there"
                self.history = [[] for _ in range(delivery.revision)]
                self._is_listed = True
            elif isinstance(delivery, Changed):
                for change in delivery.changes:
                    self._apply(change)
                self._reach(delivery.revision)
            self._told.notify_all()

    def _apply(self, change: Change) -> None:
        self._reach(change.mod_revision)
        self.history[change.mod_revision - 1].append(change)
        if hasattr(change, "value"):
            self.now[change.key] = change
        else:
            self.now.pop(change.key, None)

    def _reach(self, revision: int) -> None:
        while len(self.history) < revision:
            self.history.append([])
