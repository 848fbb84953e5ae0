"""The store's client for one event loop: the calls of StoreClient, with the same rules; see there."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

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
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    store_error,
)
from rayched.store.io.calling import patience, serialized_txn
from rayched.store.io.leases import AsyncLeaseKeepAlives
from rayched.store.readings import Reads, list_pages, read_many
from rayched.store.transactions import (
    Committed,
    Conflict,
    Guard,
    GuardedDelete,
    Outcome,
    TransactionRefused,
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


class WriteTimes(Protocol):
    """Is told how each write of an AsyncStoreClient went; `sent` by time.monotonic()."""

    def answered(self, sent: float) -> None: ...

    def unanswered(self, sent: float) -> None:
        """Not in time, or etcd has too many requests under way."""


class AsyncStoreClient:
    """As StoreClient, on a channel of grpc.aio, in that channel's event loop."""

    def __init__(self, channel: grpc.aio.Channel, deadlines: Deadlines | None = None, times: WriteTimes | None = None) -> None:
        self._kv = rpc.KVStub(channel)
        self._txn = serialized_txn(channel)
        self._lease = rpc.LeaseStub(channel)
        self._cluster = rpc.ClusterStub(channel)
        self._maintenance = rpc.MaintenanceStub(channel)
        self._calls = {rpc.RangeRequest: self._kv.Range, rpc.TxnRequest: self._kv.Txn}
        self._deadlines = deadlines or Deadlines()
        self._repeat = tenacity.AsyncRetrying(**patience(self._deadlines))
        self._times = times

    async def get(self, key: bytes) -> Entry | None:
        return first_entry(await self._read(self._kv.Range, rpc.RangeRequest(key=key)))

    async def get_many(self, keys: Sequence[bytes]) -> Reading:
        return await self._follow(read_many(keys))

    async def list_page(
        self, prefix: bytes, *, limit: int = PAGE_LIMIT, revision: int = 0, start_key: bytes = b"", keys_only: bool = False
    ) -> Page:
        request = page_request(prefix, limit, revision, start_key, keys_only)
        return page_of(await self._read(self._kv.Range, request, self._deadlines.page_seconds), revision)

    async def list_all(self, prefix: bytes, *, keys_only: bool = False) -> Page:
        return await self._follow(list_pages(prefix, keys_only))

    async def revision(self, key: bytes = ANY_KEY) -> int:
        answer = await self._read(self._kv.Range, revision_request(key))
        return int(answer.header.revision)

    async def commit(self, guard: Guard | None, writes: Sequence[Write]) -> list[Outcome]:
        return [outcome for batch in split(writes) for outcome in await self._commit(guard, batch)]

    async def _commit(self, guard: Guard | None, batch: Sequence[Write]) -> list[Outcome]:
        outcomes = await self.send(guard, batch)
        halves = halves_of_refused(batch, outcomes)
        return [outcome for half in halves for outcome in await self._commit(guard, half)] or outcomes

    async def send(self, guard: Guard | None, batch: Sequence[Write]) -> list[Outcome]:
        """One transaction; the batch is one of `split`. Never raises but for cancellation, after which nothing is known."""
        outcomes = await self._send_once(guard, batch)
        spared = bare_deletions(batch, outcomes)
        if spared:
            for place, outcome in zip(spared, await self._send_once(guard, list(spared.values())), strict=True):
                outcomes[place] = outcome
        if guard is None:
            for place, (write, outcome) in enumerate(zip(batch, outcomes, strict=True)):
                bare = spared.get(place, write)
                if isinstance(bare, GuardedDelete) and not bare.with_puts and _is_full(outcome):
                    outcomes[place] = await self._delete_in_full(bare)
        return outcomes

    async def _delete_in_full(self, write: GuardedDelete) -> Outcome:
        """Before etcd 3.5.2 no transaction is taken at the quota, not even one that deletes; a plain deletion is.

        It has no conditions of its own. Nothing else can be written meanwhile either, so what is read just before it holds.
        """
        try:
            conditions = ((write.key, write.mod_revision), *write.also)
            current, *also = [await self.get(key) for key, _ in conditions]
            if current is None:
                # Refused, and done all the same: etcd looks at its space a second time after it has deleted.
                return Committed(await self.revision(write.key))
            found = [0 if entry is None else entry.mod_revision for entry in (current, *also)]
            if found != [revision for _, revision in conditions]:
                return Conflict(current, tuple(also), await self.revision(write.key))
            answer = await self._write(self._kv.DeleteRange, rpc.DeleteRangeRequest(key=write.key))
            return Committed(int(answer.header.revision))
        except StoreError as error:
            return without_answer(error, [write])[0]

    async def _send_once(self, guard: Guard | None, batch: Sequence[Write]) -> list[Outcome]:
        try:
            answer = await self._write(self._txn, build(guard, batch))
        except StoreError as error:
            return without_answer(error, batch)
        return read(answer, batch)

    async def settle(self, guard: Guard | None, writes: Sequence[Write]) -> list[Outcome]:
        keys = keys_to_settle(guard, writes)
        reading = await self.get_many(keys)
        return settle(dict(zip(keys, reading.entries, strict=True)), reading.revision, guard, writes)

    async def txn(self, request: Any) -> Any:
        return await self._write(self._kv.Txn, request)

    async def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        answer = await self._write(self._kv.Put, rpc.PutRequest(key=key, value=value, lease=lease))
        return int(answer.header.revision)

    async def put_many(self, pairs: Sequence[tuple[bytes, bytes]], lease: int = 0) -> None:
        for request in put_requests(pairs, lease):
            await self._write(self._kv.Txn, request)

    async def delete(self, key: bytes) -> bool:
        return bool((await self._write(self._kv.DeleteRange, rpc.DeleteRangeRequest(key=key))).deleted)

    async def grant_lease(self, ttl_seconds: int) -> Lease:
        answer = await self._write(self._lease.LeaseGrant, rpc.LeaseGrantRequest(TTL=ttl_seconds))
        return Lease(answer.ID, answer.TTL)

    async def revoke_lease(self, lease: int) -> None:
        await self._write(self._lease.LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease))

    def keep_alives(self) -> AsyncLeaseKeepAlives:
        return AsyncLeaseKeepAlives(self._lease, self._deadlines.write_seconds)

    async def compact(self, revision: int) -> None:
        await self._write(self._kv.Compact, rpc.CompactionRequest(revision=revision))

    async def members(self) -> tuple[Member, ...]:
        return members_of(await self._read(self._cluster.MemberList, rpc.MemberListRequest()))

    async def status(self) -> MemberStatus:
        return status_of_member(await self._read(self._maintenance.Status, rpc.StatusRequest()))

    async def _read(self, call: Any, request: Any, timeout_seconds: float = 0.0) -> Any:
        attempt: Callable[..., Awaitable[Any]] = _once_async
        return await self._repeat(attempt, call, request, timeout_seconds or self._deadlines.read_seconds)

    async def _follow(self, reads: Reads[R]) -> R:
        try:
            wanted = next(reads)
            while True:
                call = self._calls[type(wanted.request)]
                try:
                    answer = await self._read(call, wanted.request, wanted.seconds_of(self._deadlines))
                except StoreError as error:
                    wanted = reads.throw(error)
                else:
                    wanted = reads.send(answer)
        except StopIteration as done:
            found: R = done.value
            return found

    async def _write(self, call: Any, request: Any) -> Any:
        sent = time.monotonic()
        try:
            answer = await _once_async(call, request, self._deadlines.write_seconds)
        except (StoreUnavailable, StoreBusy):
            if self._times is not None:
                self._times.unanswered(sent)
            raise
        if self._times is not None:
            self._times.answered(sent)
        return answer


def _is_full(outcome: Outcome) -> bool:
    return isinstance(outcome, TransactionRefused) and isinstance(outcome.error, StoreFull)


async def _once_async(call: Any, request: Any, timeout_seconds: float) -> Any:
    try:
        return await call(request, timeout=timeout_seconds)
    except grpc.RpcError as error:
        raise store_error(error) from error
