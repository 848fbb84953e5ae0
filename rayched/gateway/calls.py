"""One request about objects, taken apart, and what it is answered with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rayched.api.errors import ManifestErrors
from rayched.api.kinds import NODE, AnyObject, unwrap
from rayched.api.manifest import read_object
from rayched.client.gateway_client import AsyncGatewayClient
from rayched.gateway.paths import ResourcePath
from rayched.gateway.queries import INCLUDE_METADATA, AcceptedForm
from rayched.gateway.statuses import StatusSubject, bad_request, of_manifest

Document = dict[str, Any]

_STRICT, _WARN, _IGNORE = "Strict", "Warn", "Ignore"
_CHOSEN_BY_SERVER: Final = ("uid", "creationTimestamp", "generation", "selfLink", "managedFields")
_UNKNOWN_MAX: Final = 64
"""Fields that nobody knows and that are left out: each costs a copy of the document."""
_STEP: Final = re.compile(r'\.?([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')


@dataclass(frozen=True, slots=True)
class GatewayCall:
    """What a request asks for, and of whom."""

    path: ResourcePath
    client: AsyncGatewayClient
    query: Mapping[str, str]
    body: bytes
    content_type: str
    form: AcceptedForm
    now: float
    """Unix seconds."""
    warnings: list[str] = field(default_factory=list)
    """For people; each becomes a header."""

    @property
    def subject(self) -> StatusSubject:
        return StatusSubject(self.path.resource, self.path.name)

    @property
    def include(self) -> str:
        return self.query.get("includeObject", INCLUDE_METADATA)


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    code: int
    document: Document


def read_manifest(call: GatewayCall, document: Document, *, creating: bool = False) -> AnyObject:
    """The object that a body describes, at the place that the path says. Raises StatusFailure."""
    kind, path = call.path.resource.kind, call.path
    document = {"apiVersion": kind.api_version, "kind": kind.name, **document}
    if (document["apiVersion"], document["kind"]) != (kind.api_version, kind.name):
        found = f"{document['apiVersion']}, Kind={document['kind']}"
        raise bad_request(
            f"the object in the body is {found}, and the request's place is for {kind.api_version}, Kind={kind.name}"
        )
    given = document.get("metadata") or {}
    if not isinstance(given, dict):
        raise bad_request("metadata: must be an object")
    metadata = document["metadata"] = dict(given)
    _place(metadata, "namespace", path.namespace)
    _place(metadata, "name", path.name)
    if creating:
        for name in _CHOSEN_BY_SERVER:
            metadata.pop(name, None)
        if kind is not NODE:
            document.pop("status", None)
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    return _read(call, document, StatusSubject(path.resource, name))


def _place(metadata: Document, field_name: str, expected: str) -> None:
    if not expected:
        return
    found = metadata.get(field_name)
    if found not in (None, "", expected):
        raise bad_request(f"the {field_name} of the object ({found}) does not match the {field_name} on the URL ({expected})")
    metadata[field_name] = expected


def _read(call: GatewayCall, document: Document, subject: StatusSubject) -> AnyObject:
    validation = call.query.get("fieldValidation") or _WARN
    if validation not in (_STRICT, _WARN, _IGNORE):
        raise bad_request(f'fieldValidation: found "{validation[:40]}", want {_STRICT}, {_WARN} or {_IGNORE}')
    try:
        found = read_object(document)
    except ManifestErrors as errors:
        unknown = [error for error in errors.errors if error.unknown]
        if validation == _STRICT or not 0 < len(unknown) <= _UNKNOWN_MAX:
            raise of_manifest(errors, subject) from None
        rest = document
        for error in unknown:
            rest = _without(rest, error.path)
        if validation == _WARN:
            call.warnings.extend(f'unknown field "{error.path}"' for error in unknown)
        try:
            found = read_object(rest)
        except ManifestErrors as left:
            raise of_manifest(left, subject) from None
    if validation != _IGNORE:
        call.warnings.extend(str(warning) for warning in found.warnings)
    return unwrap(found.object)


def _without(document: Any, path: str) -> Any:
    """A copy without the field at a path of a FieldError. The same where the path leads nowhere: it was cut down."""
    step = _STEP.match(path)
    if step is None:
        return document
    rest = path[step.end() :]
    key: Any = int(step[2]) if step[2] else step[1] or re.sub(r"\\(.)", r"\1", step[3])
    if isinstance(document, list):
        if not (isinstance(key, int) and key < len(document)):
            return document
        return [_without(item, rest) if at == key else item for at, item in enumerate(document)]
    if not isinstance(document, dict) or key not in document:
        return document
    if not rest:
        return {name: value for name, value in document.items() if name != key}
    return {name: _without(value, rest) if name == key else value for name, value in document.items()}
