"""What etcd refuses or fails to do, as exceptions of our own. Made from gRPC's errors here and nowhere else.

`NotApplied` errors promise that a write did not happen. Any other failure of a write leaves open whether it did.
"""

from __future__ import annotations

import re
from typing import Final

import grpc


class StoreError(Exception):
    """A call on etcd failed. The message is one line."""


class StoreUnavailable(StoreError):
    """No answer in time, or none at all: etcd is down, cut off or electing. Reads may be repeated; of a write it is not known
    whether it happened."""


class NotApplied(StoreError):
    """etcd refused the request as it is; nothing was written."""


class StoreFull(NotApplied):
    """etcd's space quota is used up: it refuses every write until somebody compacts, defragments and disarms its alarm."""


class RequestTooLarge(NotApplied):
    """The request is larger, or has more operations, than this etcd takes."""


class StoreBusy(NotApplied):
    """etcd has too many requests under way and refused this one; to be repeated later."""


class RequestRefused(NotApplied):
    """etcd found the request itself wrong, for example one key written twice in one transaction."""


class StoreDenied(RequestRefused):
    """etcd has users, and this one may not do that."""


class LeaseNotFound(NotApplied):
    """The lease has expired or was revoked."""


class Compacted(StoreError):
    """The revision asked for is no longer kept. `compact_revision` is the oldest that is, 0 when etcd did not say it."""

    def __init__(self, message: str, compact_revision: int = 0) -> None:
        super().__init__(message)
        self.compact_revision = compact_revision


class FutureRevision(StoreError):
    """The revision asked for has not happened yet: it was made up, or etcd lost what it had."""


_BY_TEXT: Final[tuple[tuple[re.Pattern[str], type[StoreError]], ...]] = (
    (re.compile("revision has been compacted"), Compacted),
    (re.compile("is a future revision"), FutureRevision),
    (re.compile("database space exceeded"), StoreFull),
    (re.compile("request is too large|too many operations|larger than max"), RequestTooLarge),
    (re.compile("too many requests"), StoreBusy),
    (re.compile("requested lease not found"), LeaseNotFound),
    (re.compile("user name is empty|invalid auth token"), StoreDenied),
)
_BY_CODE: Final[dict[grpc.StatusCode, type[StoreError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: RequestRefused,
    grpc.StatusCode.FAILED_PRECONDITION: RequestRefused,
    grpc.StatusCode.PERMISSION_DENIED: StoreDenied,
    grpc.StatusCode.UNAUTHENTICATED: StoreDenied,
    grpc.StatusCode.UNIMPLEMENTED: RequestRefused,
    grpc.StatusCode.NOT_FOUND: RequestRefused,
}


def store_error(error: BaseException) -> StoreError:
    """The error of ours for one that a gRPC call raised. What is not understood counts as unavailable: nothing is known then."""
    if isinstance(error, StoreError):
        return error
    code, text = status_of(error)
    for pattern, kind in _BY_TEXT:
        if pattern.search(text):
            return kind(f"etcd: {text}")
    return _BY_CODE.get(code, StoreUnavailable)(f"etcd: {code.name}: {text}" if text else f"etcd: {code.name}")


def status_of(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """Code and text of an error of a call, on one line; CANCELLED for a call cancelled on this side."""
    code = error.code() if isinstance(error, grpc.RpcError) and hasattr(error, "code") else grpc.StatusCode.CANCELLED
    details = error.details() if isinstance(error, grpc.RpcError) and hasattr(error, "details") else str(error)
    return code or grpc.StatusCode.UNKNOWN, " ".join((details or "").removeprefix("etcdserver: ").split())
