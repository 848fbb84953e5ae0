"""Lists, page by page at one revision: selected in this process, read from etcd linearizably.

The first page's revision is kept in the continue token, so that all pages show one moment however many writes come between; when
etcd has compacted it, OUT_OF_RANGE asks for a new list. A token goes on with its own list only and is opaque to the caller.

A page ends at its limit, or before, at about 2 MiB. Objects that cannot be read are skipped with a line in the log.

Cost: 2 µs an object read, whether selected or not.
"""

from __future__ import annotations

import base64
import binascii
import logging
from typing import Final

from google.protobuf.message import DecodeError

from rayched.api.kinds import by_name, unwrap
from rayched.server.errors import ApiFailure, Code, invalid
from rayched.server.objects import Objects
from rayched.server.watching.selection import Selection, select
from rayched.store.calls import weight_of
from rayched.store.codec import PoisonedObject, decode_entry
from rayched.store.entries import Entry
from rayched.store.errors import Compacted, FutureRevision
from rayched.store.page_size import PageSize
from rayched.v1.services_pb2 import ContinueToken, ListRequest, ListResponse
from rayched.v1.workloads_pb2 import Object

_log = logging.getLogger(__name__)

PAGE_MAX: Final = 500
PAGE_BYTES_MAX: Final = 2 << 20
_READ_AT_ONCE: Final = 500
_FIRST_AT_ONCE: Final = 64
"""Entries, before their weight is known: 16 MiB of the largest pods."""


async def list_page(objects: Objects, request: ListRequest) -> ListResponse:
    """One page of a list."""
    if not request.kind:
        by_name(request.kind)
    if request.limit < 0:
        raise invalid(f"limit: found {request.limit}, want 1 to {PAGE_MAX}, or 0 for the most")
    if request.revision < 0:
        raise invalid(f"revision: found {request.revision}, want a revision of the store, or 0 for the present")
    selection = select(request.kind, request.namespace, request.label_selector, request.field_selector)
    limit = min(request.limit or PAGE_MAX, PAGE_MAX)
    token = _token(getattr(request, "continue"), selection)
    assert selection.kind is not None
    prefix = objects.keys.prefix(selection.kind, request.namespace)
    last_key = token.after_key
    response = ListResponse(revision=token.revision or request.revision)
    size = 0
    pages = PageSize(PAGE_MAX, _FIRST_AT_ONCE, PAGE_BYTES_MAX)
    try:
        while True:
            # Without a selector every key counts, so no more are read than fit.
            wanted = min(limit - len(response.objects) if selection.by_key else _READ_AT_ONCE, pages.wanted)
            start_key = last_key + b"\0" if last_key else b""
            page = await objects.store.list_page(prefix, limit=wanted, revision=response.revision, start_key=start_key)
            response.revision = page.revision
            pages.arrived(len(page.entries), weight_of(page))
            for entry in page.entries:
                if len(response.objects) >= limit or size >= PAGE_BYTES_MAX:
                    break
                last_key = entry.key
                item = _readable(entry)
                if item is not None and selection.matches(unwrap(item)):
                    response.objects.append(item)
                    size += len(entry.value)
            if not page.entries or (page.next_key is None and last_key == page.entries[-1].key):
                return response
            if len(response.objects) >= limit or size >= PAGE_BYTES_MAX:
                _go_on_after(response, last_key, selection)
                return response
    except Compacted:
        text = f"the list's revision {token.revision or request.revision} is no longer kept; list again from the start"
        raise ApiFailure(Code.OUT_OF_RANGE, text) from None
    except FutureRevision:
        text = f"revision: {request.revision} has not happened yet; list without one, or later"
        raise ApiFailure(Code.OUT_OF_RANGE, text) from None


def _readable(entry: Entry) -> Object | None:
    try:
        return decode_entry(entry)
    except PoisonedObject as error:
        _log.warning("left out of a list: %s", error)
        return None


def _go_on_after(response: ListResponse, key: bytes, selection: Selection) -> None:
    token = ContinueToken(revision=response.revision, after_key=key, query=selection.digest())
    setattr(response, "continue", base64.urlsafe_b64encode(token.SerializeToString()).decode())


def _token(text: str, selection: Selection) -> ContinueToken:
    """The token of a request, an empty one for the first page; refuses what no answer contained."""
    if not text:
        return ContinueToken()
    try:
        token = ContinueToken.FromString(base64.urlsafe_b64decode(text.encode()))
    except (binascii.Error, ValueError, DecodeError):
        raise invalid("continue: is no token of a list's answer") from None
    if token.revision <= 0 or not token.after_key:
        raise invalid("continue: is no token of a list's answer")
    if token.query != selection.digest():
        raise invalid("continue: belongs to a list of another kind, namespace or selector")
    return token
