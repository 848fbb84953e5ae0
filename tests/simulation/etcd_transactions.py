"""Transactions of etcd as its model reads them: taken apart once, checked, and the way that is taken through one."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.simulation.etcd_errors import duplicate_key, too_many_operations

Operation = tuple[str | None, Any]
"""The kind of request and the request; of a transaction what was read of it."""


class Transaction(NamedTuple):
    """A request, taken apart once: many look at it."""

    compare: list[Any]
    success: list[Operation]
    failure: list[Operation]


class Path(NamedTuple):
    """Which branch of a transaction is taken; transactions in it are paths as well."""

    holds: bool
    taken: list[Operation]


def read_transaction(request: Any) -> Transaction:
    return Transaction(list(request.compare), _operations(request.success), _operations(request.failure))


def _operations(ops: Any) -> list[Operation]:
    found: list[Operation] = []
    for op in ops:
        kind = op.WhichOneof("request")
        content = None if kind is None else getattr(op, kind)
        found.append((kind, read_transaction(content) if kind == "request_txn" else content))
    return found


def check_operations(transaction: Transaction, most: int) -> None:
    operations = max(map(len, transaction))
    if operations > most:
        raise too_many_operations()
    for kind, op in (*transaction.success, *transaction.failure):
        if kind == "request_txn":
            check_operations(op, most - operations)


def keys_written(ops: list[Operation]) -> tuple[set[bytes], list[tuple[bytes, bytes]]]:
    """Keys put and ranges deleted by these operations. Raises where a key may be written twice."""
    deleted = [(op.key, op.range_end) for kind, op in ops if kind == "request_delete_range"]
    put: set[bytes] = set()

    def check(key: bytes) -> None:
        if any(in_range(key, first, end) for first, end in deleted):
            raise duplicate_key()

    for kind, op in ops:
        if kind != "request_txn":
            continue
        then_put, then_deleted = keys_written(op.success)
        else_put, else_deleted = keys_written(op.failure)
        if not put.isdisjoint(then_put) or not (else_put - then_put).isdisjoint(put):
            raise duplicate_key()
        for key in then_put | else_put:
            check(key)
        put |= then_put | else_put
        deleted += then_deleted + else_deleted
    for kind, op in ops:
        if kind == "request_put":
            key = op.key
            if key in put:
                raise duplicate_key()
            check(key)
            put.add(key)
    return put, deleted


def in_range(key: bytes, first: bytes, range_end: bytes) -> bool:
    if not range_end:
        return key == first
    return key >= first and (range_end == b"\0" or key < range_end)
