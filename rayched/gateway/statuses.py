"""What went wrong, as Kubernetes' Status: an HTTP code, a reason for programs, a sentence for people, causes by field. Pure.

Source: apimachinery's Status and its reasons, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from rayched.api.errors import FieldError, ManifestErrors, quoted
from rayched.client.errors import ApiError
from rayched.gateway.served import ServedResource

INVALID_VALUE: Final = "FieldValueInvalid"
_BUDGET: Final = "DisruptionBudget"

_PLAIN: Final = {
    grpc.StatusCode.ABORTED: (409, "Conflict"),
    grpc.StatusCode.FAILED_PRECONDITION: (409, "Conflict"),
    grpc.StatusCode.OUT_OF_RANGE: (410, "Expired"),
    grpc.StatusCode.PERMISSION_DENIED: (403, "Forbidden"),
    grpc.StatusCode.UNAUTHENTICATED: (401, "Unauthorized"),
    grpc.StatusCode.UNAVAILABLE: (503, "ServiceUnavailable"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (504, "Timeout"),
    grpc.StatusCode.UNIMPLEMENTED: (501, "NotImplemented"),
    grpc.StatusCode.INVALID_ARGUMENT: (400, "BadRequest"),
}


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One defect."""

    field: str
    message: str
    reason: str = INVALID_VALUE


@dataclass(frozen=True, slots=True)
class StatusSubject:
    """What a failure is about."""

    resource: ServedResource
    name: str = ""


class StatusFailure(Exception):
    """A request is answered with a failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        subject: StatusSubject | None = None,
        causes: Sequence[StatusCause] = (),
        retry_after_seconds: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.subject = subject
        self.causes = tuple(causes)
        self.retry_after_seconds = retry_after_seconds

    def document(self) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if self.subject is not None:
            kind = self.subject.resource.kind
            word = kind.name if self.code == 422 else kind.plural
            details.update({"name": self.subject.name, "group": kind.group, "kind": word})
        if self.causes:
            details["causes"] = [
                {key: text for key, text in (("reason", one.reason), ("message", one.message), ("field", one.field)) if text}
                for one in self.causes
            ]
        if self.retry_after_seconds:
            details["retryAfterSeconds"] = self.retry_after_seconds
        found = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": {key: value for key, value in details.items() if value},
            "code": self.code,
        }
        return {key: value for key, value in found.items() if key != "details" or value}


def success(code: int, subject: StatusSubject, uid: str = "") -> dict[str, Any]:
    kind = subject.resource.kind
    details = {"name": subject.name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
        "code": code,
    }


def bad_request(message: str) -> StatusFailure:
    return StatusFailure(400, "BadRequest", message)


def not_found(subject: StatusSubject) -> StatusFailure:
    resource = subject.resource
    return StatusFailure(404, "NotFound", f'{resource.plural_with_group} "{subject.name}" not found', subject=subject)


def not_allowed(method: str) -> StatusFailure:
    message = f"the server does not allow this method on the requested resource: {method}"
    return StatusFailure(405, "MethodNotAllowed", message)


def unsupported_type(content_type: str, allowed: Sequence[str]) -> StatusFailure:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(allowed)}"
    return StatusFailure(415, "UnsupportedMediaType", f"{message}; found {content_type!r}")


def invalid(subject: StatusSubject, causes: Sequence[StatusCause]) -> StatusFailure:
    """An object that breaks rules: all of them at once."""
    kind = subject.resource.kind
    kind_text = f"{kind.name}.{kind.group}" if kind.group else kind.name
    lines = [f"{one.field}: {one.message}" if one.field else one.message for one in causes]
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    return StatusFailure(422, "Invalid", f'{kind_text} "{subject.name}" is invalid: {text}', subject=subject, causes=causes)


def of_manifest(errors: ManifestErrors, subject: StatusSubject) -> StatusFailure:
    """What is wrong with a document: fields that nobody knows make it no object at all, as with Kubernetes' strict decoding."""
    unknown = [error for error in errors.errors if error.unknown]
    if unknown:
        # "unknown field" is what clients look for.
        lines = [f'unknown field "{error.path}" ({error.message})' for error in unknown]
        kind = subject.resource.kind
        text = f"{kind.name} in version {quoted(kind.api_version)} cannot be handled as a {kind.name}"
        return bad_request(f"{text}: strict decoding error: {', '.join(lines)}")
    return invalid(subject, [_cause(error) for error in errors.errors])


def of_api_error(error: ApiError, subject: StatusSubject, *, creating: str = "") -> StatusFailure:
    """What a replica refused. `creating`: the namespace of an object that is to be created; what is not found is then that."""
    code = error.code
    if code is grpc.StatusCode.NOT_FOUND:
        if creating:
            return StatusFailure(404, "NotFound", f'namespaces "{creating}" not found')
        return not_found(subject)
    if code is grpc.StatusCode.ALREADY_EXISTS:
        message = f'{subject.resource.plural_with_group} "{subject.name}" already exists'
        return StatusFailure(409, "AlreadyExists", message, subject=subject)
    if code is grpc.StatusCode.INVALID_ARGUMENT and error.violations:
        return invalid(subject, [StatusCause(one.field, one.message) for one in error.violations])
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _exhausted(error, subject)
    if code is grpc.StatusCode.ABORTED:
        text = "the object has been modified; please apply your changes to the latest version and try again"
        message = f'Operation cannot be fulfilled on {subject.resource.plural_with_group} "{subject.name}": {text}'
        return StatusFailure(409, "Conflict", f"{message} ({error.message})", subject=subject)
    number, reason = _PLAIN.get(code, (500, "InternalError"))
    return StatusFailure(number, reason, error.message, subject=subject)


def of_stream_error(error: ApiError, subject: StatusSubject) -> StatusFailure:
    """Why nothing comes out of a pod. What cannot be had now is a bad request to Kubernetes' clients, which do not try again."""
    if error.code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED):
        return bad_request(error.message)
    if error.code is grpc.StatusCode.NOT_FOUND:
        return StatusFailure(404, "NotFound", error.message, subject=subject)
    return of_api_error(error, subject)


def _exhausted(error: ApiError, subject: StatusSubject) -> StatusFailure:
    if error.budget:
        # Without a delay: kubectl drain has a pause of its own and tells what it waits for.
        message = "Cannot evict pod as it would violate the pod's disruption budget."
        cause = StatusCause("", f"The disruption budget {error.budget} does not allow it now: {error.message}", _BUDGET)
        return StatusFailure(429, "TooManyRequests", message, subject=subject, causes=[cause])
    if error.retry_after_seconds is not None:
        seconds = max(1, round(error.retry_after_seconds))
        return StatusFailure(429, "TooManyRequests", error.message, subject=subject, retry_after_seconds=seconds)
    return StatusFailure(413, "RequestEntityTooLarge", error.message, subject=subject)


def _cause(error: FieldError) -> StatusCause:
    return StatusCause(error.path, error.message)
