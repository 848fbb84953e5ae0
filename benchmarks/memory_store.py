"""The store of depth `scheduler`: what the SchedulerActor asks of etcd, answered from dictionaries in its own process.

A transaction is judged as etcd would: every comparison against the revisions as they are. What commits comes back as an answer,
and as encoded bytes through the watch, on a thread of its own as there. Everything that happened is kept, for whoever judges the
run afterwards.

Cost: about 3 µs a write, in the scheduler's process.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from leader.etcd_shim import rpc
from rayched.store.entries import Change, Deleted, Entry
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll

DELIVERY_CHANGES_MAX: Final = 512
"""Changes in one delivery; etcd's messages hold about as many."""


class MemoryStore:
    """Transactions come from one thread, `put` and `delete` from another; a lock keeps revisions in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[bytes, Entry] = {}
        self.revision = 1
        self.history: list[Change] = []
        self._happening: list[Change] = []
        """Of the revision under way."""
        self.changes: queue.SimpleQueue[tuple[Change, ...]] = queue.SimpleQueue()
        """For the watch: one item a revision."""
        self._newest_below: dict[bytes, int] = {}
        """By prefixes that were compared as a whole: when a key below was written last."""
        self._committed: dict[int, Any] = {}
        """The answer to a transaction of so many writes that all commit."""

    def listed(self) -> ListedAll:
        return ListedAll(tuple(self._entries.values()), self.revision)

    def get(self, key: bytes) -> Entry | None:
        return self._entries.get(key)

    def put_all(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """At one revision."""
        with self._lock:
            self.revision += 1
            for key, value in pairs:
                self._put(key, value)
            self._tell()

    def delete(self, key: bytes) -> None:
        with self._lock:
            if self._entries.pop(key, None) is not None:
                self.revision += 1
                self._happening.append(Deleted(key, self.revision))
                self._tell()

    def alter(self, key: bytes, change: Callable[[bytes], bytes]) -> None:
        """Nothing where the key is gone."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self.revision += 1
                self._put(key, change(entry.value))
                self._tell()

    def txn_future(self, request: bytes) -> Future[Any]:
        """As StoreClient.txn_future; the answer is there at once."""
        future: Future[Any] = Future()
        with self._lock:
            future.set_result(self._txn(rpc.TxnRequest.FromString(request)))
            self._tell()
        return future

    def grant_lease_future(self, ttl_seconds: int) -> Future[Any]:  # noqa: ARG002
        """Never answered: without a lease no events are written, as kube-scheduler was measured."""
        return Future()

    # ---------------------------------------------------------------------------------------------------------- private

    def _txn(self, request: Any) -> Any:
        if not self._holds(request.compare):
            return rpc.TxnResponse(succeeded=False, responses=[self._found(op) for op in request.failure])
        passed: list[bool] = []
        operations: list[Any] = []
        for op in request.success:
            nested = op.request_txn
            holds = self._holds(nested.compare)
            passed.append(holds)
            if holds:
                operations.extend(nested.success)
        if operations:
            self.revision += 1
        for operation in operations:
            if operation.HasField("request_delete_range"):
                self._delete(operation.request_delete_range.key)
                continue
            written = operation.request_put
            self._put(written.key, written.value)
        answer = rpc.TxnResponse(succeeded=True)
        if all(passed):
            known = self._committed.get(len(passed))
            if known is None:
                known = self._committed[len(passed)] = rpc.TxnResponse(succeeded=True)
                for _ in passed:
                    known.responses.add().response_txn.succeeded = True
            answer.CopyFrom(known)
        else:
            for op, holds in zip(request.success, passed, strict=True):
                told = answer.responses.add().response_txn
                told.succeeded = holds
                if not holds:
                    told.responses.extend(self._found(failed) for failed in op.request_txn.failure)
        answer.header.revision = self.revision
        return answer

    def _holds(self, comparisons: Any) -> bool:
        entries = self._entries
        for one in comparisons:
            if one.range_end:
                if self._newest(one.key) >= one.mod_revision:
                    return False
                continue
            entry = entries.get(one.key)
            if (0 if entry is None else entry.mod_revision) != one.mod_revision:
                return False
        return True

    def _newest(self, prefix: bytes) -> int:
        """When a key below the prefix was written last. One that has gone counts as well: nobody deletes what is compared so."""
        newest = self._newest_below.get(prefix)
        if newest is None:
            newest = max((entry.mod_revision for key, entry in self._entries.items() if key.startswith(prefix)), default=0)
            self._newest_below[prefix] = newest
        return newest

    def _found(self, op: Any) -> Any:
        response = rpc.ResponseOp()
        response.response_range.SetInParent()
        asked = op.request_range
        entry = self._written_below(asked) if asked.range_end else self._entries.get(asked.key)
        if entry is not None:
            response.response_range.kvs.add(
                key=entry.key, value=entry.value, create_revision=entry.create_revision, mod_revision=entry.mod_revision
            )
        return response

    def _written_below(self, asked: Any) -> Entry | None:
        """A key below the prefix that was written since."""
        there = (entry for key, entry in self._entries.items() if key.startswith(asked.key))
        return next((entry for entry in there if entry.mod_revision >= asked.min_mod_revision), None)

    def _delete(self, key: bytes) -> None:
        if self._entries.pop(key, None) is not None:
            self._happening.append(Deleted(key, self.revision))

    def _put(self, key: bytes, value: bytes) -> None:
        old = self._entries.get(key)
        entry = self._entries[key] = Entry(key, value, self.revision if old is None else old.create_revision, self.revision)
        self._happening.append(entry)
        for prefix in self._newest_below:
            if key.startswith(prefix):
                self._newest_below[prefix] = self.revision

    def _tell(self) -> None:
        if self._happening:
            self.history.extend(self._happening)
            self.changes.put(tuple(self._happening))
            self._happening.clear()


class MemoryWatcher:
    """As store.Watcher: a list, then all changes; what has gathered meanwhile is one delivery."""

    def __init__(
        self, store: MemoryStore, handler: Callable[[Delivery], None], delivered: Callable[[Sequence[Change]], None]
    ) -> None:
        """`delivered` is told what was handed over, after it was."""
        self._store = store
        self._handler = handler
        self._delivered = delivered
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """It never keeps anything back."""

    def _run(self) -> None:
        self._handler(self._store.listed())
        changes = self._store.changes
        while True:
            batch = list(changes.get())
            while len(batch) < DELIVERY_CHANGES_MAX:
                try:
                    batch.extend(changes.get_nowait())
                except queue.Empty:
                    break
            self._handler(Changed(tuple(batch), batch[-1].mod_revision))
            self._delivered(batch)
