"""How much of each call the audit log tells. Pure.

| level | calls |
|---|---|
| none | signs of life and health |
| request | those that change who may what |
| metadata | all others |

A refusal is told at every level. A watch that is opened again is not, where the same one was told of shortly before.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.json_format import MessageToDict

from rayched.access.audit_line import AuditLevel

REQUEST_BYTES_MAX: Final = 16 << 10
_NONE: Final = frozenset({"Nodes.Heartbeat", "Health.Check", "Health.List", "Health.Watch"})
_REQUEST: Final = frozenset(
    {
        "Access.Grant",
        "Access.RevokeGrant",
        "Access.IssueToken",
        "Access.RevokeToken",
        "Access.SignCertificate",
        "Access.RevokeCertificate",
        "Access.Readmit",
    }
)


def level_of(call: str) -> AuditLevel:
    """Of a name such as "Submission.Submit"."""
    if call in _NONE:
        return AuditLevel.NONE
    return AuditLevel.REQUEST if call in _REQUEST else AuditLevel.METADATA


def may_be_renewal(request: Any) -> bool:
    """A watch that says that it goes on where another one ended, as those of clients whose connection broke do."""
    return "start_revision" in request.DESCRIPTOR.fields_by_name and request.start_revision > 0


def request_shown(call: str, request: Any) -> dict[str, Any] | None:
    """What a line has of the request; None: nothing."""
    if call not in _REQUEST:
        return None
    if (size := request.ByteSize()) > REQUEST_BYTES_MAX:
        return {"left out": f"{size} bytes, at most {REQUEST_BYTES_MAX} are shown"}
    return MessageToDict(request, preserving_proto_field_name=True)
