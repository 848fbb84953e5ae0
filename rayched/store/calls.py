"""Requests to etcd and what their answers say: what the synchronous and the asyncio client share. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from leader.etcd_shim import rpc
from rayched.store.entries import Page, entry_of
from rayched.store.keys import prefix_end
from rayched.store.transactions import WRITES_MAX

ANY_KEY: Final = b"\0"
"""No key of ours. Where etcd has users they may not read it."""
PAGE_LIMIT: Final = 500
"""Keys of a page of a list, where the caller does not say."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that one attempt at a call may take, and how long a read is tried again before StoreUnavailable is raised.

    Short, because an attempt that hangs on a dead member is not resent; an attempt on a living one takes milliseconds.
    """

    read_seconds: float = 1.0
    page_seconds: float = 5.0
    write_seconds: float = 2.0
    patience_seconds: float = 5.0
    pause_seconds_min: float = 0.02
    pause_seconds_max: float = 0.5


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as granted; etcd may have lengthened the time to live to its minimum."""

    id: int
    ttl_seconds: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the etcd cluster."""

    id: int
    name: str
    client_urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What the member that answered says of itself. `leader_id` is 0 while it knows no leader."""

    member_id: int
    version: str
    database_bytes: int
    """Of the file: this is what the quota limits. It shrinks by defragmentation alone."""
    leader_id: int
    revision: int
    in_use_bytes: int
    """Of the file; the rest is free for new data. Shrinks by compaction."""
    quota_bytes: int
    """0 before etcd 3.6, which does not say it here."""
    alarms: tuple[str, ...]
    """Names of the alarms that are raised, by any member: NOSPACE, CORRUPT."""


def revision_request(key: bytes) -> Any:
    """A read for the sake of the newest revision, which the members have to agree on; nobody need have the key."""
    return rpc.RangeRequest(key=key, count_only=True)


def page_request(prefix: bytes, limit: int, revision: int, start_key: bytes, keys_only: bool, end_key: bytes = b"") -> Any:
    """`end_key`: the first key that is not wanted; empty: all below the prefix are."""
    end = end_key or prefix_end(prefix)
    return rpc.RangeRequest(key=max(prefix, start_key), range_end=end, limit=limit, revision=revision, keys_only=keys_only)


def page_of(answer: Any, revision: int) -> Page:
    """`revision` as asked for; 0 stands for the newest, which the answer names."""
    entries = tuple(map(entry_of, answer.kvs))
    next_key = entries[-1].key + b"\0" if answer.more and entries else None
    return Page(entries, revision or answer.header.revision, next_key)


def weight_of(page: Page) -> int:
    """Its bytes, but for what is around the keys and values."""
    return sum(len(entry.key) + len(entry.value) for entry in page.entries)


def put_requests(pairs: Sequence[tuple[bytes, bytes]], lease: int) -> Iterator[Any]:
    """TxnRequests that put these pairs unconditionally; the last value of a key given twice wins."""
    rest = iter(dict(pairs).items())
    while batch := list(islice(rest, WRITES_MAX)):
        request = rpc.TxnRequest()
        for key, value in batch:
            put = request.success.add().request_put
            put.key, put.value, put.lease = key, value, lease
        yield request


def members_of(answer: Any) -> tuple[Member, ...]:
    return tuple(Member(member.ID, member.name, tuple(member.clientURLs)) for member in answer.members)


_ALARM: Final = re.compile(r"alarm:(\w+)")


def status_of_member(answer: Any) -> MemberStatus:
    alarms = sorted({name for text in answer.errors for name in _ALARM.findall(text)})
    return MemberStatus(
        answer.header.member_id,
        answer.version,
        answer.dbSize,
        answer.leader,
        answer.header.revision,
        # Before etcd 3.4 nobody knows how much of the file is free.
        answer.dbSizeInUse or answer.dbSize,
        answer.dbSizeQuota,
        tuple(alarms),
    )
