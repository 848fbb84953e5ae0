"""The election's requests as etcd transactions, and etcd's answers as the election's outcomes. Without I/O.

Every request is one Txn over the two keys. Its guard compares mod_revisions; an absent key has mod_revision 0. Where the
guard does not hold the same Txn reads both keys, so a refusal always says what is there instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from leader import effects as fx
from leader.etcd_shim import kv, rpc
from leader.events import EpochChanged, Found, Outcome, RecordChanged, Refused, Written
from leader.record import View, read_stored_epoch, read_stored_record

RULE_RELEASES_ARE_GUARDED: bool = True
"""Broken by tests alone."""


@dataclass(frozen=True, slots=True)
class LockKeys:
    """Where the two values lie."""

    record: bytes
    epoch: bytes
    note: bytes = b""
    """Of the last revocation (revocation.py); empty: none is kept."""

    def __post_init__(self) -> None:
        if not self.record or not self.epoch or self.record == self.epoch:
            raise ValueError(f"lock keys: {self.record!r} and {self.epoch!r}, want two different keys")


def never(key: bytes) -> Any:
    """Stands where a transaction without a guard never goes: then it is none that only reads. `key`: one that is read there.

    Where such a one runs while its caller gives up, by a deadline or by its death, etcd 3.5.1 and others of its time end
    themselves. Source: etcd-io/etcd#14110. A deletion, not a put, as at its quota etcd takes no transaction with a put; of a key
    that nobody has, but that lies where a user of etcd may write who may read the other one.
    """
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key + b"\0"))


def build(request: fx.Request, keys: LockKeys, lease_id: int) -> Any:
    """The TxnRequest. Records of a holder are bound to the etcd lease; the epoch and a released record are not."""
    match request:
        case fx.Get():
            return rpc.TxnRequest(success=reads(keys), failure=[never(keys.record)])
        case fx.Acquire(record_revision=record_revision, epoch_revision=epoch_revision):
            guard = [at_revision(keys.record, record_revision), at_revision(keys.epoch, epoch_revision)]
            puts = [_put(keys.record, request.record.to_json(), lease_id), _put(keys.epoch, request.epoch.to_json(), 0)]
        case fx.Renew():
            guard = [at_revision(keys.epoch, request.guard)]
            puts = [_put(keys.record, request.record.to_json(), lease_id)]
        case fx.BeginTerm():
            guard = [at_revision(keys.epoch, request.guard)]
            puts = [_put(keys.record, request.record.to_json(), lease_id), _put(keys.epoch, request.epoch.to_json(), 0)]
        case fx.Release():
            guard = [at_revision(keys.epoch, request.guard)] if RULE_RELEASES_ARE_GUARDED else []
            puts = [_put(keys.record, request.record.to_json(), 0), _put(keys.epoch, request.epoch.to_json(), 0)]
    return rpc.TxnRequest(compare=guard, success=puts, failure=reads(keys))


def read_outcome(request: fx.Request, answer: Any, keys: LockKeys) -> Outcome:
    """What the TxnResponse says."""
    if isinstance(request, fx.Get):
        return Found(_view(answer, keys))
    return Written(answer.header.revision) if answer.succeeded else Refused(_view(answer, keys))


def read_watch_events(events: Iterable[Any], keys: LockKeys) -> list[RecordChanged | EpochChanged]:
    """The last event of each key: what was overwritten within one message concerns nobody."""
    last: dict[bytes, RecordChanged | EpochChanged] = {}
    for event in events:
        key, revision, gone = event.kv.key, event.kv.mod_revision, event.type == kv.Event.DELETE
        if key == keys.record:
            last[key] = RecordChanged(None if gone else read_stored_record(event.kv.value, revision, event.kv.lease), revision)
        elif key == keys.epoch:
            last[key] = EpochChanged(None if gone else read_stored_epoch(event.kv.value, revision), revision)
    return list(last.values())


def _view(answer: Any, keys: LockKeys) -> View:
    found = {pair.key: pair for response in answer.responses for pair in response.response_range.kvs}
    record, epoch = found.get(keys.record), found.get(keys.epoch)
    return View(
        read_stored_record(record.value, record.mod_revision, record.lease) if record else None,
        read_stored_epoch(epoch.value, epoch.mod_revision) if epoch else None,
        answer.header.revision,
    )


def reads(keys: LockKeys) -> list[Any]:
    """Of both values, as a transaction's operations."""
    return [rpc.RequestOp(request_range=rpc.RangeRequest(key=key)) for key in (keys.record, keys.epoch)]


def _put(key: bytes, value: bytes, lease_id: int) -> Any:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease_id))


def at_revision(key: bytes, mod_revision: int) -> Any:
    """The comparison that holds while nobody has written the key since."""
    return rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=mod_revision)
