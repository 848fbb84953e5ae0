"""What ListWatchCore asks of its carrier, and what it delivers to its consumer: values, no I/O.

Effects come in order. A request is for the carrier, which calls etcd and reports the answer to the core; a delivery is for
the consumer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from rayched.store.entries import Change, Entry
from rayched.store.errors import Compacted, FutureRevision, store_error

STREAM_METADATA: Final = (("hasleader", "true"),)
"""Goes with each stream that is opened."""


class Break(enum.Enum):
    """Why following ended for the moment."""

    STREAM_ENDED = "the stream ended"
    SILENT = "the stream was silent and did not answer"
    REFUSED = "etcd cancelled the watch"
    COMPACTED = "the next revision was compacted"
    SET_BACK = "etcd's history is not the one followed"
    LIST_FAILED = "a page of the list failed"


@dataclass(frozen=True, slots=True)
class CallFailure:
    """How a call ended, if not with an answer. `lost` is COMPACTED or SET_BACK when etcd does not have the revision asked for."""

    message: str
    lost: Break | None = None

    @classmethod
    def of(cls, error: BaseException) -> CallFailure:
        """What an error of a call means here."""
        known = store_error(error)
        match known:
            case Compacted():
                return cls(str(known), Break.COMPACTED)
            case FutureRevision():
                return cls(str(known), Break.SET_BACK)
            case _:
                return cls(str(known))


@dataclass(frozen=True, slots=True)
class FetchPage:
    """Request: call Range, then `page_arrived` or `page_failed`; but only `stream_ended` if the stream has ended meanwhile."""

    request: Any
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Request: open a watch stream, send the request; then `stream_message` for each message and `stream_ended` at the end."""

    stream: int
    request: Any
    metadata: tuple[tuple[str, str], ...] = STREAM_METADATA


@dataclass(frozen=True, slots=True)
class SendOnStream:
    """Request: send on an open stream."""

    stream: int
    request: Any


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Request: give the stream up; what still comes from it is ignored."""

    stream: int


@dataclass(frozen=True, slots=True)
class ListedAll:
    """Delivery: all there is, as of `revision`, in the order of the keys."""

    entries: tuple[Entry, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Changed:
    """Delivery: one or more whole revisions in order, up to and including `revision`."""

    changes: tuple[Change, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Broken:
    """Delivery: following is interrupted; repeated for each attempt that fails."""

    reason: Break
    message: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """Delivery: the stream is open; everything up to `revision` has been delivered, the rest follows."""

    revision: int


Request = FetchPage | OpenStream | SendOnStream | CloseStream
Delivery = ListedAll | Changed | Broken | Resumed
Effect = Request | Delivery
