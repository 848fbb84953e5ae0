"""Reads of etcd that take several calls, as generators: a client carries out what they yield and sends the answer in. No I/O.

A client that gets a StoreError throws it in, and carries out what comes next; what the generator does not expect it raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from leader.etcd_requests import never
from leader.etcd_shim import rpc
from rayched.store.calls import ANY_KEY, Deadlines, page_of, page_request, revision_request, weight_of
from rayched.store.entries import Entry, Page, Reading, first_entry
from rayched.store.errors import RequestTooLarge, StoreFull
from rayched.store.page_size import PageSize
from rayched.store.transactions import WRITES_MAX

LIST_PAGE_LIMIT: Final = 2000

R = TypeVar("R")


class WantedRead(NamedTuple):
    """One call. Its type is that of the request: a RangeRequest or a TxnRequest that only reads."""

    request: Any
    is_page: bool = False

    def seconds_of(self, deadlines: Deadlines) -> float:
        return deadlines.page_seconds if self.is_page else deadlines.read_seconds


Reads: TypeAlias = Generator[WantedRead, Any, R]


def read_many(keys: Sequence[bytes]) -> Reads[Reading]:
    """These keys at one revision, as many a transaction as etcd takes."""
    entries: list[Entry | None] = []
    revision, newest = 0, revision_request(keys[0] if keys else ANY_KEY)
    parts = deque(keys[start : start + WRITES_MAX] for start in range(0, len(keys), WRITES_MAX))
    while parts:
        part = parts.popleft()
        request = reading_request(part, revision)
        try:
            answer = yield WantedRead(request)
        except RequestTooLarge:
            if len(part) < 2:
                raise
            middle = (len(part) + 1) // 2
            parts.extendleft((part[middle:], part[:middle]))
        except StoreFull:
            # Before etcd 3.5.2 no transaction is taken at the quota, not even one that reads.
            revision = revision or (yield WantedRead(newest)).header.revision
            for operation in request.success:
                operation.request_range.revision = revision
                entries.append(first_entry((yield WantedRead(operation.request_range))))
        else:
            entries += [first_entry(response.response_range) for response in answer.responses]
            revision = revision or answer.header.revision
    return Reading(tuple(entries), revision or (yield WantedRead(newest)).header.revision)


def list_pages(prefix: bytes, keys_only: bool) -> Reads[Page]:
    """Everything under the prefix at the revision of the first page, as one Page."""
    size, entries, revision, start_key = PageSize(LIST_PAGE_LIMIT), list[Entry](), 0, b""
    while True:
        answer = yield WantedRead(page_request(prefix, size.wanted, revision, start_key, keys_only), is_page=True)
        page = page_of(answer, revision)
        entries += page.entries
        revision = page.revision
        if page.next_key is None:
            return Page(tuple(entries), revision, None)
        start_key = page.next_key
        size.arrived(len(page.entries), weight_of(page))


def reading_request(part: Sequence[bytes], revision: int) -> Any:
    """The TxnRequest that reads these keys at a revision; 0: the newest. It has a side that is never taken: see `never`."""
    request = rpc.TxnRequest(failure=[never(part[0])])
    for key in part:
        read = request.success.add().request_range
        read.key, read.revision = key, revision
    return request
