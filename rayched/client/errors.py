"""ApiError: what a call on rayched ended with instead of an answer, in one line, with each defect on its own.

Made from gRPC's errors here and nowhere else, so users of the client never import grpc to handle a failure; `code` is
grpc.StatusCode, whose names stand in the header of services.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from rayched.pki.client_credentials import CERTIFICATE_KEY
from rayched.v1.services_pb2 import BudgetRefusal, FieldViolation, LeaderAddress, Outcome, ResumeFrom, SupersededAgent

_DETAILS_KEY: Final = "grpc-status-details-bin"
_NEVER_CONNECTED: Final = ("failed to connect", "Connection refused")
_NO_CONNECTION: Final = (*_NEVER_CONNECTED, "Socket closed", "Endpoint closing", "recvmsg:")
_BY_NUMBER: Final = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class Violation:
    """One defect of one object."""

    object: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class ApiError(Exception):
    """A call failed. `str()` is one line for a person."""

    def __init__(self, code: Any, message: str, violations: Sequence[Violation] = ()) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.violations = tuple(violations)
        self.leader_address = ""
        """FAILED_PRECONDITION: the replica that can answer, where the one asked cannot."""
        self.budget = ""
        """RESOURCE_EXHAUSTED: the budget that refused an eviction."""
        self.retry_after_seconds: float | None = None
        """RESOURCE_EXHAUSTED: when trying again may go better; None: it will not."""
        self.resume_revision = 0
        """Of a watch: everything before this revision was sent."""
        self.first_available_revision = 0
        """OUT_OF_RANGE of a watch: where a new one can begin."""
        self.superseded_incarnation: int | None = None
        """FAILED_PRECONDITION: this incarnation of the node's agent, under which it was asked for, is not the present one; None:
        that is not why."""
        self.certificate_serial = ""
        """UNAUTHENTICATED: of the certificate that has expired or is revoked, hexadecimal."""
        self.has_newer_certificate = False
        """The client's files hold another one by now, with which the call may go better."""
        self.no_connection = False
        """No connection was made, or it did not last."""
        self.never_sent = False
        """No connection could be made, so no replica has seen the call."""
        self.may_have_been_done = False
        """An attempt before the one that failed so had no answer, and may have done what was asked."""

    def __str__(self) -> str:
        return f"{self.message} ({self.code.name})"


class ClientClosed(ApiError):
    """The client was closed on this side."""

    def __init__(self) -> None:
        super().__init__(grpc.StatusCode.CANCELLED, "the client is closed")


def api_error(error: Any, endpoints: str) -> ApiError:
    """The ApiError for an RpcError of a call to one of `endpoints`."""
    code = error.code() or grpc.StatusCode.UNKNOWN
    text = " ".join((error.details() or code.name).split())
    never_sent = code is grpc.StatusCode.UNAVAILABLE and any(part in text for part in _NEVER_CONNECTED)
    no_connection = code is grpc.StatusCode.UNAVAILABLE and any(part in text for part in _NO_CONNECTION)
    if no_connection:
        text = f"no rayched answers at {endpoints}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = f"no answer in time from {endpoints}"
    result = ApiError(code, text)
    result.never_sent, result.no_connection = never_sent, no_connection
    for key, packed in error.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            _add_details(result, packed)
        elif key == CERTIFICATE_KEY:
            result.certificate_serial = str(packed)
    return result


def outcome_error(outcome: Outcome) -> ApiError | None:
    """The error of one entry of a call on many; None when it went well."""
    if not outcome.code:
        return None
    code = _BY_NUMBER.get(outcome.code, grpc.StatusCode.UNKNOWN)
    found = ApiError(code, outcome.message, [_violation(detail) for detail in outcome.violations])
    if outcome.retry_after_milliseconds:
        found.retry_after_seconds = outcome.retry_after_milliseconds / 1000
    if outcome.HasField("superseded_incarnation"):
        found.superseded_incarnation = outcome.superseded_incarnation
    return found


def _add_details(result: ApiError, packed: bytes) -> None:
    try:
        status = Status.FromString(packed)
    except DecodeError:
        return
    violations = []
    for detail in status.details:
        if detail.Is(FieldViolation.DESCRIPTOR):
            violations.append(_violation(FieldViolation.FromString(detail.value)))
        elif detail.Is(LeaderAddress.DESCRIPTOR):
            result.leader_address = LeaderAddress.FromString(detail.value).address
        elif detail.Is(BudgetRefusal.DESCRIPTOR):
            result.budget = BudgetRefusal.FromString(detail.value).budget
        elif detail.Is(SupersededAgent.DESCRIPTOR):
            result.superseded_incarnation = SupersededAgent.FromString(detail.value).incarnation
        elif detail.Is(RetryInfo.DESCRIPTOR):
            result.retry_after_seconds = RetryInfo.FromString(detail.value).retry_delay.ToMilliseconds() / 1000
        elif detail.Is(ResumeFrom.DESCRIPTOR):
            resume = ResumeFrom.FromString(detail.value)
            result.resume_revision, result.first_available_revision = resume.revision, resume.first_available
    result.violations = tuple(violations)


def _violation(detail: FieldViolation) -> Violation:
    return Violation(detail.object, detail.field, detail.message)
