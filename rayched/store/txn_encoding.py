"""TxnRequests of etcd put together as bytes: comparisons, reads and puts in protobuf's binary form.

A request takes a fraction of the time that its fields take when they are set one by one. What stands around keys, revisions and
values depends on their lengths alone, and many writes are alike in these.

Source: etcd API v3. Cost: under a microsecond an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from leader.etcd_shim import rpc
from rayched.api.wire import field_tag, varint

_COMPARE, _SUCCESS, _FAILURE = (field_tag(rpc.TxnRequest, field) for field in ("compare", "success", "failure"))
_COMPARE_KEY, _COMPARE_MOD_REVISION = field_tag(rpc.Compare, "key"), field_tag(rpc.Compare, "mod_revision")
_COMPARE_MOD: Final = rpc.Compare(target=rpc.Compare.MOD).SerializeToString()
_REQUEST_RANGE, _REQUEST_PUT = field_tag(rpc.RequestOp, "request_range"), field_tag(rpc.RequestOp, "request_put")
_REQUEST_DELETE_RANGE, _REQUEST_TXN = field_tag(rpc.RequestOp, "request_delete_range"), field_tag(rpc.RequestOp, "request_txn")
_SLASH: Final = ord("/")
# The key has one number in each of them.
_KEY, _VALUE, _LEASE = (field_tag(rpc.PutRequest, field) for field in ("key", "value", "lease"))


def nested_transaction(pieces: Sequence[bytes]) -> tuple[bytes, ...]:
    """A transaction of these comparisons and operations as an operation of another one, in pieces."""
    size = sum(map(len, pieces))
    transaction = varint(size)
    return _SUCCESS, varint(1 + len(transaction) + size), _REQUEST_TXN, transaction, *pieces


def put_operation(key: bytes, value: bytes, lease: int = 0) -> bytes:
    behind = _LEASE + varint(lease) if lease else b""
    before, between = _around_put(len(key), len(value), len(behind))
    return before + key + between + value + behind


def delete_operation(key: bytes) -> bytes:
    return _framed(_SUCCESS, _framed(_REQUEST_DELETE_RANGE, _framed(_KEY, key)))


@lru_cache(maxsize=1024)
def _around_put(key: int, value: int, lease: int) -> tuple[bytes, bytes]:
    """What stands before a key and between it and its value, of so many bytes each."""
    key_size, value_size = varint(key), varint(value)
    size = 2 + len(key_size) + key + len(value_size) + value + lease
    put = varint(size)
    operation = varint(1 + len(put) + size)
    return b"".join((_SUCCESS, operation, _REQUEST_PUT, put, _KEY, key_size)), _VALUE + value_size


def unchanged(key: bytes, mod_revision: int) -> bytes:
    """A comparison, and the read that answers where it does not hold. A key that ends with a slash stands for all below it."""
    if key[-1] == _SLASH:
        return _unchanged_below(key, mod_revision)
    revision = varint(mod_revision)
    before, between, behind = _around_unchanged(len(key), len(revision))
    return before + key + between + revision + behind + key


_OFTEN_MAX: Final = 8_192
unchanged_often: Final = lru_cache(maxsize=_OFTEN_MAX)(unchanged)


def _unchanged_below(prefix: bytes, revision: int) -> bytes:
    """No key below the prefix was written after the revision. The read tells one that was, without its value."""
    end = prefix[:-1] + bytes([_SLASH + 1])
    compare = rpc.Compare(target=rpc.Compare.MOD, result=rpc.Compare.LESS, key=prefix, range_end=end, mod_revision=revision + 1)
    read = rpc.RangeRequest(key=prefix, range_end=end, min_mod_revision=revision + 1, limit=1, keys_only=True)
    operation = rpc.RequestOp(request_range=read)
    return _framed(_COMPARE, compare.SerializeToString()) + _framed(_FAILURE, operation.SerializeToString())


@lru_cache(maxsize=1024)
def _around_unchanged(key: int, revision: int) -> tuple[bytes, bytes, bytes]:
    """What stands before a key, between it and its revision, and between that and the key again, of so many bytes each."""
    key_size = varint(key)
    size = 1 + len(key_size) + key
    compare = varint(len(_COMPARE_MOD) + size + 1 + revision)
    read_size = varint(size)
    operation = varint(1 + len(read_size) + size)
    return (
        b"".join((_COMPARE, compare, _COMPARE_MOD, _COMPARE_KEY, key_size)),
        _COMPARE_MOD_REVISION,
        b"".join((_FAILURE, operation, _REQUEST_RANGE, read_size, _KEY, key_size)),
    )


def _framed(tag: bytes, content: bytes) -> bytes:
    return b"".join((tag, varint(len(content)), content))
