"""Ending the term of a leader that is gone, before its lease runs out.

Waiting for the lease is waiting for certainty that nobody needs: every write is guarded by the epoch, so a takeover is safe at
any time, even while the old leader lives. Whoever has evidence that a leader is gone removes its record:

    If lease of record = L & mod_revision of epoch = E    Then delete record, put note    Else read both keys
    then revoke L

L and E are what that leader had published. A successor has another epoch and another lease, so its record is never touched. The
lease goes last: a renewal that is still on its way falls under it or is refused. The epoch stays as it is; a leader that was
taken for dead and lives writes its record again under the same epoch, if it is faster than the followers, whom the watch of the
record wakes.

The note says who ended the term of whom, and why, for people and for counts; nothing decides by it.
"""

from __future__ import annotations

import contextlib
import enum
import json
from dataclasses import dataclass
from typing import Any

import grpc

from leader import effects as fx
from leader.etcd_requests import LockKeys, at_revision, reads
from leader.etcd_shim import rpc
from leader.events import Written
from leader.record import RecordError, load_fields

RULE_REVOKES_ONLY_WHAT_WAS_HELD: bool = True
"""Broken by tests alone."""


class Evidence(enum.Enum):
    """Why a leader is taken for gone."""

    DEAD = "dead"
    """Its process has ended, as the kernel says to whoever holds a pidfd of it."""
    REFUSED = "refused"
    """Its connection broke, and nobody listens at its address any more."""
    SILENT = "silent"
    """It neither renewed nor answered for a while. Proves nothing."""


@dataclass(frozen=True, slots=True)
class HeldTerm:
    """The term that a leader has published: the etcd lease that its record lies under, and its epoch."""

    lease_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RevocationNote:
    """Value of the note's key."""

    epoch: int
    """That was ended."""
    evidence: Evidence
    by: str
    """Who acted."""
    detail: str = ""

    def to_json(self) -> bytes:
        fields = {"epoch": self.epoch, "evidence": self.evidence.value, "by": self.by, "detail": self.detail}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> RevocationNote:
        """Raises RecordError."""
        fields = load_fields(value, "note of a revocation")
        try:
            return cls(int(str(fields["epoch"])), Evidence(fields["evidence"]), str(fields["by"]), str(fields["detail"]))
        except (KeyError, ValueError) as error:
            raise RecordError(f"note of a revocation: {error}") from error


def held_by(request: fx.Request, written: Written, lease_id: int) -> HeldTerm:
    """The term under which a request of its holder has written the record."""
    return HeldTerm(lease_id, request.guard if isinstance(request, fx.Renew) else written.revision)


def build_revocation(held: HeldTerm, keys: LockKeys, note: RevocationNote) -> Any:
    """The TxnRequest that removes the record of exactly this term."""
    lease = rpc.Compare(key=keys.record, target=rpc.Compare.LEASE, result=rpc.Compare.EQUAL, lease=held.lease_id)
    guard = [lease, at_revision(keys.epoch, held.epoch)] if RULE_REVOKES_ONLY_WHAT_WAS_HELD else []
    writes = [rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=keys.record))]
    if keys.note:
        writes.append(rpc.RequestOp(request_put=rpc.PutRequest(key=keys.note, value=note.to_json())))
    return rpc.TxnRequest(compare=guard, success=writes, failure=reads(keys))


def revoke(channel: grpc.Channel, keys: LockKeys, held: HeldTerm, note: RevocationNote, timeout_seconds: float) -> bool:
    """Ends this term. False: it had ended, or passed to another epoch or lease. Raises grpc.RpcError: it may have been ended."""
    answer = rpc.KVStub(channel).Txn(build_revocation(held, keys, note), timeout=timeout_seconds)
    if answer.succeeded:
        # The record is gone already, and the lease goes by itself where this fails.
        with contextlib.suppress(grpc.RpcError):
            rpc.LeaseStub(channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=held.lease_id), timeout=timeout_seconds)
    return bool(answer.succeeded)
