"""Failures of calls: a status code, one line, and a detail for each defect; and the one table that turns exceptions into them.

Handlers raise ApiFailure for what they decide themselves. Everything else that is expected at the edge of a call stands in
`_CODES`; what does not is a bug: it is logged with its traceback, and the caller gets INTERNAL without one.

A failure travels as a google.rpc.Status in the trailing metadata. gRPC refuses trailers above 8 KiB, so details are cut where
they would not fit, and the last one then counts the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from rayched.api.errors import FieldError
from rayched.api.kinds import UnknownKind
from rayched.api.selectors import SelectorError
from rayched.pki.client_credentials import CERTIFICATE_KEY
from rayched.server.ports import Leader
from rayched.store.codec import PoisonedObject
from rayched.store.errors import Compacted, FutureRevision, RequestTooLarge, StoreBusy, StoreFull, StoreUnavailable
from rayched.store.keys import KeyTextError
from rayched.store.space import SpaceRefusal
from rayched.v1.services_pb2 import BudgetRefusal, FieldViolation, LeaderAddress, Outcome, ResumeFrom, SupersededAgent

_log = logging.getLogger(__name__)

DETAILS_KEY: Final = "grpc-status-details-bin"
DETAILS_BYTES_MAX: Final = 6_800
MESSAGE_CHARACTERS_MAX: Final = 500
"""Both together stay below the 8 KiB of trailers that gRPC accepts by default."""

Code = grpc.StatusCode
CODE_NAMES: Final = {code.value[0]: code.name for code in Code}

_CODES: Final[tuple[tuple[type[Exception], Any, str], ...]] = (
    (UnknownKind, Code.INVALID_ARGUMENT, ""),
    (SelectorError, Code.INVALID_ARGUMENT, ""),
    (KeyTextError, Code.INVALID_ARGUMENT, ""),
    (PoisonedObject, Code.DATA_LOSS, "the stored object cannot be read: "),
    (Compacted, Code.OUT_OF_RANGE, "the revision is no longer kept, list again: "),
    (FutureRevision, Code.OUT_OF_RANGE, "the revision has not happened, list again: "),
    (RequestTooLarge, Code.RESOURCE_EXHAUSTED, "too large for etcd: "),
    (StoreFull, Code.RESOURCE_EXHAUSTED, "etcd takes no more writes until somebody compacts and defragments it: "),
    (StoreBusy, Code.UNAVAILABLE, "etcd is busy, try again: "),
    (StoreUnavailable, Code.UNAVAILABLE, "etcd does not answer, try again: "),
)
"""Exception, status code, what is said before the exception's own text. The first that fits counts."""


class ApiFailure(Exception):
    """What a call ends with instead of an answer. `details` are packed into the status as they are."""

    def __init__(
        self, code: Any, message: str, details: Sequence[Message] = (), trailers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """`trailers`: further ones, as they are."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = tuple(details)
        self.trailers = tuple(trailers)

    @property
    def violations(self) -> list[FieldViolation]:
        return [detail for detail in self.details if isinstance(detail, FieldViolation)]

    @property
    def superseded_incarnation(self) -> int | None:
        """The one that is over; None: that is not why."""
        return next((detail.incarnation for detail in self.details if isinstance(detail, SupersededAgent)), None)

    def outcome(self) -> Outcome:
        """The failure as the outcome of one entry of a call on many; not cut, since it travels in a message."""
        delays = (detail.retry_delay.ToMilliseconds() for detail in self.details if isinstance(detail, RetryInfo))
        delay = next(delays, 0)
        code, violations = self.code.value[0], self.violations
        return Outcome(
            code=code,
            message=self.message,
            violations=violations,
            retry_after_milliseconds=delay,
            superseded_incarnation=self.superseded_incarnation,
        )


# ----------------------------------------------------------------------------------------------------------- to be raised


def invalid_fields(subject: str, errors: Sequence[FieldError]) -> ApiFailure:
    """All that is wrong with one object; `subject` is "Pod default/web"."""
    violations = [FieldViolation(object=subject, field=error.path, message=error.message) for error in errors]
    return ApiFailure(Code.INVALID_ARGUMENT, f"{subject}: {'; '.join(map(str, errors))}", violations)


def invalid(message: str) -> ApiFailure:
    return ApiFailure(Code.INVALID_ARGUMENT, message)


def not_found(subject: str) -> ApiFailure:
    return ApiFailure(Code.NOT_FOUND, f"{subject} not found")


def exists(message: str) -> ApiFailure:
    return ApiFailure(Code.ALREADY_EXISTS, message)


def conflict(message: str) -> ApiFailure:
    return ApiFailure(Code.ABORTED, message)


def forbidden_by_state(message: str) -> ApiFailure:
    return ApiFailure(Code.FAILED_PRECONDITION, message)


def denied(identity: str, call: str, why: str) -> ApiFailure:
    """The identity that a call carries may not make it."""
    return ApiFailure(Code.PERMISSION_DENIED, f"{identity} may not {call}: {why}")


def unauthenticated(why: str, serial: str = "") -> ApiFailure:
    """The connection's certificate is no caller's, or does not count any more; then its serial number goes along."""
    return ApiFailure(Code.UNAUTHENTICATED, why, trailers=((CERTIFICATE_KEY, serial),) if serial else ())


def denied_fields(subject: str, errors: Sequence[FieldError]) -> ApiFailure:
    """What of one object the caller may not say; `subject` is "Pod default/web"."""
    violations = [FieldViolation(object=subject, field=error.path, message=error.message) for error in errors]
    return ApiFailure(Code.PERMISSION_DENIED, f"{subject}: {'; '.join(map(str, errors))}", violations)


def superseded(subject: str, incarnation: int) -> ApiFailure:
    """What an agent is told whose node another one has registered since: that `incarnation`, under which it asks, is over."""
    message = f"{subject}: its agent has been superseded by another one"
    return ApiFailure(Code.FAILED_PRECONDITION, message, [SupersededAgent(incarnation=incarnation)])


def over_limit(message: str, retry_seconds: float | None = None) -> ApiFailure:
    """With a time after which there may be room, trying again may go better."""
    return ApiFailure(Code.RESOURCE_EXHAUSTED, message, [_retry_after(retry_seconds)] if retry_seconds else [])


def no_room(subject: object, refusal: SpaceRefusal) -> ApiFailure:
    """etcd's space is kept for what has to go on. Nothing was done."""
    return ApiFailure(Code.RESOURCE_EXHAUSTED, f"{subject}: {refusal.why}", [_retry_after(refusal.retry_seconds)])


def refused_by_budget(message: str, refusal: BudgetRefusal, retry_seconds: float) -> ApiFailure:
    """Trying again after that time may go better."""
    return ApiFailure(Code.RESOURCE_EXHAUSTED, message, [refusal, _retry_after(retry_seconds)])


def overloaded(why: str, retry_seconds: float) -> ApiFailure:
    """Nothing was done, and after that time there may be room."""
    message = f"{why}, nothing of this one was done; try again in {retry_seconds:.1f} s"
    return ApiFailure(Code.RESOURCE_EXHAUSTED, message, [_retry_after(retry_seconds)])


def unavailable(message: str) -> ApiFailure:
    return ApiFailure(Code.UNAVAILABLE, message)


def not_now(message: str, retry_seconds: float) -> ApiFailure:
    """Nothing was done, and after that time, or elsewhere, it may be possible."""
    return ApiFailure(Code.UNAVAILABLE, message, [_retry_after(retry_seconds)])


def ask_the_leader(leader: Leader, why: str) -> ApiFailure:
    """Only the leader answers; its address goes along."""
    detail = LeaderAddress(holder=leader.holder, address=leader.address, epoch=leader.epoch)
    return ApiFailure(Code.FAILED_PRECONDITION, f"{why}: ask the leader {leader.holder} at {leader.address}", [detail])


def watch_ended(code: Any, message: str, resume_from: int, first_available: int = 0) -> ApiFailure:
    """A watch that has to begin anew: from `resume_from`, or with a list where that is no longer kept."""
    return ApiFailure(code, message, [ResumeFrom(revision=resume_from, first_available=first_available)])


def _retry_after(seconds: float) -> RetryInfo:
    delay = Duration()
    delay.FromMilliseconds(int(seconds * 1000))
    return RetryInfo(retry_delay=delay)


# ------------------------------------------------------------------------------------------------------------ at the edge


def failure_of(error: Exception, call: str) -> ApiFailure:
    """The failure that the caller of `call` gets for any exception."""
    if isinstance(error, ApiFailure):
        return error
    for kind, code, prefix in _CODES:
        if isinstance(error, kind):
            return ApiFailure(code, f"{prefix}{error}")
    _log.error("%s failed: %s", call, error, exc_info=error)
    return ApiFailure(Code.INTERNAL, f"internal error in {call}; the replica's log has the cause")


def trailers(failure: ApiFailure) -> tuple[tuple[str, str | bytes], ...]:
    """The trailing metadata of a failure."""
    if not failure.details:
        return failure.trailers
    status = Status(code=failure.code.value[0], message=one_line(failure.message))
    size = status.ByteSize()
    for index, detail in enumerate(failure.details):
        packed = AnyMessage()
        packed.Pack(detail)
        size += packed.ByteSize() + 4
        if size > DETAILS_BYTES_MAX:
            rest = AnyMessage()
            rest.Pack(FieldViolation(message=f"and {len(failure.details) - index} more"))
            status.details.append(rest)
            break
        status.details.append(packed)
    return ((DETAILS_KEY, status.SerializeToString()), *failure.trailers)


def one_line(message: str) -> str:
    """The message without line breaks and cut to what a trailer may hold."""
    text = " ".join(message.split())
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else text[: MESSAGE_CHARACTERS_MAX - 4] + " ..."
