"""A model of etcd for the simulation: plain dictionaries and the whole history, transactions and deliveries of a watch."""

from __future__ import annotations

from typing import Any

from leader.etcd_shim import kv, rpc
from rayched.store.entries import Change, Deleted, Entry
from rayched.store.errors import RequestTooLarge
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored

TXN_OPS_MAX, REQUEST_BYTES_MAX = 128, 3 << 19
"""etcd's defaults."""


class ModelStore:
    """history[i] holds the changes of revision i + 1."""

    def __init__(self) -> None:
        self.now: dict[bytes, Entry] = {}
        self.history: list[list[Change]] = [[]]
        self.txn_ops_max, self.request_bytes_max = TXN_OPS_MAX, REQUEST_BYTES_MAX

    @property
    def revision(self) -> int:
        return len(self.history)

    # ------------------------------------------------------------------------------------------------------------ users

    def put(self, key: bytes, value: bytes) -> int:
        return self._commit([(key, value)])

    def delete(self, key: bytes) -> int:
        return self._commit([(key, None)])

    def pod(self, key: bytes) -> Pod | None:
        entry = self.now.get(key)
        return None if entry is None else Stored.FromString(entry.value).object.pod

    def pods(self) -> dict[bytes, Pod]:
        """All readable pods; tests call the others bad-something."""
        return {
            key: Stored.FromString(entry.value).object.pod
            for key, entry in self.now.items()
            if b"/pods/" in key and b"/bad" not in key
        }

    # ------------------------------------------------------------------------------------------------------ transactions

    def txn(self, request: Any) -> Any:
        """The TxnResponse. Raises RequestTooLarge as etcd refuses."""
        if request.ByteSize() > self.request_bytes_max:
            raise RequestTooLarge("etcd: request is too large")
        check_operations(request, self.txn_ops_max)
        writes: list[tuple[bytes, bytes | None]] = []
        answer = self._run(request, writes)
        if writes:
            assert len({key for key, _ in writes}) == len(writes), "etcd refuses a key that is written twice"
            self._commit(writes)
        answer.header.revision = self.revision
        return answer

    def _run(self, request: Any, writes: list[tuple[bytes, bytes | None]]) -> Any:
        answer = rpc.TxnResponse()
        answer.succeeded = all(map(self._holds, request.compare))
        for op in request.success if answer.succeeded else request.failure:
            response = answer.responses.add()
            kind = op.WhichOneof("request")
            if kind == "request_txn":
                response.response_txn.CopyFrom(self._run(op.request_txn, writes))
            elif kind == "request_put":
                writes.append((op.request_put.key, op.request_put.value))
                response.response_put.SetInParent()
            elif kind == "request_delete_range":
                writes.append((op.request_delete_range.key, None))
                response.response_delete_range.SetInParent()
            else:
                response.response_range.SetInParent()
                entry = self._found(op.request_range)
                response.response_range.count = int(entry is not None)
                if entry is not None:
                    response.response_range.kvs.append(
                        kv.KeyValue(
                            key=entry.key,
                            value=entry.value,
                            create_revision=entry.create_revision,
                            mod_revision=entry.mod_revision,
                        )
                    )
        return answer

    def _holds(self, compare: Any) -> bool:
        if compare.target == rpc.Compare.VERSION:
            assert (compare.result, compare.version) == (rpc.Compare.GREATER, 0), (
                "that it is there is all that is asked of versions"
            )
            return compare.key in self.now
        if compare.range_end:
            assert compare.result == rpc.Compare.LESS
            return all(entry.mod_revision < compare.mod_revision for entry in self._below(compare))
        return self._mod(compare.key) == int(compare.mod_revision)

    def _below(self, asked: Any) -> list[Entry]:
        return [self.now[key] for key in sorted(self.now) if asked.key <= key < asked.range_end]

    def _found(self, asked: Any) -> Entry | None:
        if not asked.range_end:
            return self.now.get(asked.key)
        return next((one for one in self._below(asked) if one.mod_revision >= asked.min_mod_revision), None)

    def _mod(self, key: bytes) -> int:
        entry = self.now.get(key)
        return 0 if entry is None else entry.mod_revision

    def _commit(self, writes: list[tuple[bytes, bytes | None]]) -> int:
        revision = self.revision + 1
        changes: list[Change] = []
        for key, value in writes:
            old = self.now.get(key)
            if value is None:
                if old is not None:
                    del self.now[key]
                    changes.append(Deleted(key, revision))
            else:
                entry = self.now[key] = Entry(key, value, old.create_revision if old else revision, revision)
                changes.append(entry)
        self.history.append(changes)
        return revision

    # ----------------------------------------------------------------------------------------------------------- watch

    def changed(self, after: int, count: int) -> Changed | None:
        """Up to `count` revisions after one, as a watch would deliver them."""
        changes = [change for revision in self.history[after : after + count] for change in revision]
        through = min(after + count, self.revision)
        return Changed(tuple(changes), through) if through > after else None

    def listed(self) -> ListedAll:
        return ListedAll(tuple(self.now[key] for key in sorted(self.now)), self.revision)


def check_operations(request: Any, allowed: int) -> None:
    """Source: checkTxnRequest of etcd 3.4 and 3.5, where a nested transaction has what its parents leave."""
    own = max(len(request.compare), len(request.success), len(request.failure))
    if own > allowed:
        raise RequestTooLarge("etcd: too many operations in txn request")
    for operation in (*request.success, *request.failure):
        if operation.WhichOneof("request") == "request_txn":
            check_operations(operation.request_txn, allowed - own)
