"""The store's client for threads: single calls on etcd, each with a deadline, with errors of our own.

Threads may share one; it does not own its channel. A read that fails for want of an answer is repeated until
`Deadlines.patience_seconds` have passed; a write never is: what became of it is its Outcome. What etcd refuses because it is too
much at once is taken apart. `AsyncStoreClient` has the same methods for one event loop.

Cost: 0.3 ms a call on an idle machine; batches of 100 writes with four transactions in flight reach 100,000 writes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
import tenacity

from leader.etcd_shim import rpc
from rayched.store.calls import (
    ANY_KEY,
    PAGE_LIMIT,
    Deadlines,
    Lease,
    Member,
    MemberStatus,
    members_of,
    page_of,
    page_request,
    put_requests,
    revision_request,
    status_of_member,
)
from rayched.store.entries import Entry, Page, Reading, first_entry
from rayched.store.errors import (
    RequestTooLarge,
    StoreError,
    store_error,
)
from rayched.store.io.calling import patience, serialized_txn
from rayched.store.io.leases import LeaseKeepAlives
from rayched.store.readings import Reads, list_pages, read_many
from rayched.store.transactions import (
    Guard,
    Outcome,
    Write,
    bare_deletions,
    build,
    halves_of_refused,
    keys_to_settle,
    read,
    settle,
    split,
    without_answer,
)

R = TypeVar("R")
_ALARM_GET, _ALARM_DEACTIVATE = (
    rpc.AlarmRequest.DESCRIPTOR.enum_types_by_name["AlarmAction"].values_by_name[name].number for name in ("GET", "DEACTIVATE")
)


class PendingCommit:
    """A transaction under way. `outcomes` waits for it; a callback gets this object, on a thread of gRPC."""

    def __init__(self, call: Any, writes: Sequence[Write]) -> None:
        self.writes: Final = writes
        self._call = call

    def done(self) -> bool:
        return bool(self._call.done())

    def outcomes(self) -> list[Outcome]:
        """One for each write, in order. Never raises: what failed as a whole is Unknown or Refused."""
        try:
            return read(self._call.result(), self.writes)
        except (grpc.RpcError, grpc.FutureCancelledError, StoreError) as error:
            return without_answer(store_error(error), self.writes)

    def add_done_callback(self, callback: Callable[[PendingCommit], None]) -> None:
        self._call.add_done_callback(lambda _: callback(self))


class StoreClient:
    """Synchronous calls."""

    def __init__(self, channel: grpc.Channel, deadlines: Deadlines | None = None) -> None:
        self._kv = rpc.KVStub(channel)
        self._txn = serialized_txn(channel)
        self._lease = rpc.LeaseStub(channel)
        self._cluster = rpc.ClusterStub(channel)
        self._maintenance = rpc.MaintenanceStub(channel)
        self._calls = {rpc.RangeRequest: self._kv.Range, rpc.TxnRequest: self._kv.Txn}
        self._deadlines = deadlines or Deadlines()
        self._repeat = tenacity.Retrying(**patience(self._deadlines))

    def get(self, key: bytes) -> Entry | None:
        """The key's entry, read linearizably."""
        return first_entry(self._read(self._kv.Range, rpc.RangeRequest(key=key)))

    def get_many(self, keys: Sequence[bytes]) -> Reading:
        """These keys at one revision."""
        return self._follow(read_many(keys))

    def list_page(
        self,
        prefix: bytes,
        *,
        limit: int = PAGE_LIMIT,
        revision: int = 0,
        start_key: bytes = b"",
        end_key: bytes = b"",
        keys_only: bool = False,
    ) -> Page:
        """One page, up to `end_key` where it is given. Go on with its `next_key` and `revision`.

        Raises Compacted when that revision is gone.
        """
        request = page_request(prefix, limit, revision, start_key, keys_only, end_key)
        return page_of(self._read(self._kv.Range, request, self._deadlines.page_seconds), revision)

    def list_all(self, prefix: bytes, *, keys_only: bool = False) -> Page:
        """All pages, at the revision of the first."""
        return self._follow(list_pages(prefix, keys_only))

    def revision(self, key: bytes = ANY_KEY) -> int:
        """The newest revision, as a read of this key tells it, which nobody need have."""
        answer = self._read(self._kv.Range, revision_request(key))
        return int(answer.header.revision)

    def commit(self, guard: Guard | None, writes: Sequence[Write]) -> list[Outcome]:
        """Any number of writes, in as many transactions as it takes, one after the other. One outcome each, in order.

        Never raises: what failed as a whole is Unknown or Refused.
        """
        return [outcome for batch in split(writes) for outcome in self._commit(guard, batch)]

    def _commit(self, guard: Guard | None, batch: Sequence[Write]) -> list[Outcome]:
        outcomes = self.send(guard, batch).outcomes()
        halves = halves_of_refused(batch, outcomes)
        if halves:
            return [outcome for half in halves for outcome in self._commit(guard, half)]
        spared = bare_deletions(batch, outcomes)
        if spared:
            for place, outcome in zip(spared, self.send(guard, list(spared.values())).outcomes(), strict=True):
                outcomes[place] = outcome
        return outcomes

    def send(self, guard: Guard | None, batch: Sequence[Write]) -> PendingCommit:
        """One transaction, not waited for; the batch is one of `split`. Several may be in flight, in any order of arrival."""
        try:
            content = build(guard, batch)
        except RequestTooLarge as error:
            return PendingCommit(_failed(error), batch)
        return PendingCommit(self.txn_future(content), batch)

    def settle(self, guard: Guard | None, writes: Sequence[Write]) -> list[Outcome]:
        """What became of writes whose outcome is Unknown, as far as it can be known now."""
        keys = keys_to_settle(guard, writes)
        reading = self.get_many(keys)
        return settle(dict(zip(keys, reading.entries, strict=True)), reading.revision, guard, writes)

    def txn(self, request: Any) -> Any:
        """A TxnRequest of one's own, once; StoreUnavailable leaves open whether it happened."""
        return self._write(self._kv.Txn, request)

    def txn_future(self, request: bytes) -> Any:
        """As `txn`, of a TxnRequest that is serialised, without waiting: a grpc.Future that raises gRPC's own errors."""
        return self._txn.future(request, timeout=self._deadlines.write_seconds)

    def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        """Put unconditionally; the revision."""
        return int(self._write(self._kv.Put, rpc.PutRequest(key=key, value=value, lease=lease)).header.revision)

    def put_many(self, pairs: Sequence[tuple[bytes, bytes]], lease: int = 0) -> None:
        """Put unconditionally, 100 a transaction."""
        for request in put_requests(pairs, lease):
            self._write(self._kv.Txn, request)

    def delete(self, key: bytes) -> bool:
        """Delete unconditionally; whether it was there."""
        return bool(self._write(self._kv.DeleteRange, rpc.DeleteRangeRequest(key=key)).deleted)

    def grant_lease(self, ttl_seconds: int) -> Lease:
        answer = self._write(self._lease.LeaseGrant, rpc.LeaseGrantRequest(TTL=ttl_seconds))
        return Lease(answer.ID, answer.TTL)

    def grant_lease_future(self, ttl_seconds: int) -> Any:
        """As `grant_lease`, without waiting: a grpc.Future of the LeaseGrantResponse."""
        return self._lease.LeaseGrant.future(rpc.LeaseGrantRequest(TTL=ttl_seconds), timeout=self._deadlines.write_seconds)

    def revoke_lease(self, lease: int) -> None:
        """Deletes its keys at once. Raises LeaseNotFound when it is gone already."""
        self._write(self._lease.LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease))

    def keep_alives(self) -> LeaseKeepAlives:
        """A stream that renews leases; the caller closes it."""
        return LeaseKeepAlives(self._lease, self._deadlines.write_seconds)

    def compact(self, revision: int) -> None:
        """Forget what was before this revision. Raises Compacted when that was done already."""
        self._write(self._kv.Compact, rpc.CompactionRequest(revision=revision))

    def members(self) -> tuple[Member, ...]:
        return members_of(self._read(self._cluster.MemberList, rpc.MemberListRequest()))

    def status(self) -> MemberStatus:
        return status_of_member(self._read(self._maintenance.Status, rpc.StatusRequest()))

    def defragment(self, timeout_seconds: float) -> None:
        """Returns free space of the answering member's file to the file system. The member answers no request meanwhile."""
        _once(self._maintenance.Defragment, rpc.DefragmentRequest(), timeout_seconds)

    def disarm_nospace(self) -> int:
        """Etcd takes writes again, until its quota is reached anew; how many alarms of members were raised."""
        alarms = self._write(self._maintenance.Alarm, rpc.AlarmRequest(action=_ALARM_GET)).alarms
        raised = [alarm for alarm in alarms if alarm.alarm == rpc.NOSPACE]
        for alarm in raised:
            request = rpc.AlarmRequest(action=_ALARM_DEACTIVATE, memberID=alarm.memberID, alarm=rpc.NOSPACE)
            self._write(self._maintenance.Alarm, request)
        return len(raised)

    def _read(self, call: Any, request: Any, timeout_seconds: float = 0.0) -> Any:
        return self._repeat(_once, call, request, timeout_seconds or self._deadlines.read_seconds)

    def _follow(self, reads: Reads[R]) -> R:
        """Carry out the reads of a generator."""
        try:
            wanted = next(reads)
            while True:
                try:
                    answer = self._read(self._calls[type(wanted.request)], wanted.request, wanted.seconds_of(self._deadlines))
                except StoreError as error:
                    wanted = reads.throw(error)
                else:
                    wanted = reads.send(answer)
        except StopIteration as done:
            found: R = done.value
            return found

    def _write(self, call: Any, request: Any) -> Any:
        return _once(call, request, self._deadlines.write_seconds)


def _failed(error: StoreError) -> Future[Any]:
    """A call that was not made."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _once(call: Any, request: Any, timeout_seconds: float) -> Any:
    try:
        return call(request, timeout=timeout_seconds)
    except grpc.RpcError as error:
        raise store_error(error) from error
