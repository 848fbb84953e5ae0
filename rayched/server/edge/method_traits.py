"""What the edge has to know of each method before it reads anything: its level, its rate, its largest request. Pure.

A method without a row is of the last level, CATCH_ALL, so that what is new takes nothing from what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from rayched.server.edge.fairness import PriorityLevel

REQUEST_BYTES_MAX: Final = 1_310_720
"""1.25 MiB: above the limits of objects and batches, so that exceeding those is told in the API's own words."""
REPORT_BYTES_MAX: Final = 4 << 20
"""Of a node's report on a thousand pods. gRPC itself lets no more in."""
SMALL_REQUEST_BYTES_MAX: Final = 64 << 10
"""Of a question without an object in it that anybody may ask."""


class RateKind(Enum):
    """Calls whose rates are limited together."""

    NONE = "none"
    WRITES = "writes"
    READS = "reads"
    WATCHES = "watches"
    """Their starts."""
    HEARTBEATS = "heartbeats"
    EXPLANATIONS = "explanations"
    """What the deciding thread works out: Explain, and the basis of a plan."""
    QUEUE_LISTS = "queue lists"


@dataclass(frozen=True, slots=True)
class MethodTraits:
    """One method."""

    level: PriorityLevel
    rate: RateKind
    request_bytes_max: int = REQUEST_BYTES_MAX
    alone: bool = False
    """One at a time in a replica."""
    keeps_seat: bool = False
    """A stream that has its seats until it says that it has settled; others have them until their request is read."""


_WRITE: Final = MethodTraits(PriorityLevel.WRITE, RateKind.WRITES)
_READ: Final = MethodTraits(PriorityLevel.READ, RateKind.READS)
_REPORT: Final = MethodTraits(PriorityLevel.NODE, RateKind.WRITES, REPORT_BYTES_MAX)
_STREAM: Final = MethodTraits(PriorityLevel.CATCH_ALL, RateKind.READS)
_EXEMPT: Final = MethodTraits(PriorityLevel.EXEMPT, RateKind.NONE, SMALL_REQUEST_BYTES_MAX)

_METHODS: Final[Mapping[str, MethodTraits]] = MappingProxyType(
    {
        "Submission.Submit": _WRITE,
        "Submission.SubmitMany": _WRITE,
        "Submission.Apply": _WRITE,
        "Submission.Get": _READ,
        "Submission.List": _READ,
        "Submission.Delete": _WRITE,
        "Eviction.Evict": _WRITE,
        "Watch.Watch": MethodTraits(PriorityLevel.WATCH, RateKind.WATCHES, keeps_seat=True),
        "Nodes.Register": _REPORT,
        "Nodes.Heartbeat": MethodTraits(PriorityLevel.NODE, RateKind.HEARTBEATS, REPORT_BYTES_MAX),
        "Nodes.UpdateNodeStatus": _REPORT,
        "Nodes.UpdatePodStatus": _REPORT,
        "Nodes.WatchNode": MethodTraits(PriorityLevel.NODE, RateKind.WATCHES, keeps_seat=True),
        # Signs of life and statuses go first: see write_gate.py.
        "Nodes.ReportEvents": MethodTraits(PriorityLevel.CATCH_ALL, RateKind.WRITES, REPORT_BYTES_MAX),
        "Admin.Cordon": _WRITE,
        "Admin.Taint": _WRITE,
        "Admin.Label": _WRITE,
        "Admin.Scale": _WRITE,
        "Leadership.GetLeader": _READ,
        "Leadership.WatchLeader": MethodTraits(PriorityLevel.READ, RateKind.READS),
        "Scheduling.GetSchedulerStatus": _READ,
        "Scheduling.GetPlanBasis": MethodTraits(PriorityLevel.CATCH_ALL, RateKind.EXPLANATIONS, alone=True),
        "Scheduling.GetAllocatedResources": _READ,
        "Scheduling.Explain": MethodTraits(PriorityLevel.CATCH_ALL, RateKind.EXPLANATIONS, alone=True),
        "Scheduling.Bind": _WRITE,
        "Scheduling.ListQueue": MethodTraits(PriorityLevel.READ, RateKind.QUEUE_LISTS),
        "Logs.Get": _STREAM,
        "Exec.Stream": _STREAM,
        "PortForward.Stream": _STREAM,
        "Usage.GetUsage": _STREAM,
        "AgentStreams.Attend": MethodTraits(PriorityLevel.NODE, RateKind.READS),
        "AgentStreams.Serve": MethodTraits(PriorityLevel.NODE, RateKind.NONE),
        "Access.WhoAmI": MethodTraits(PriorityLevel.EXEMPT, RateKind.READS, SMALL_REQUEST_BYTES_MAX),
        "Access.CanI": _READ,
        "Access.Grant": _WRITE,
        "Access.RevokeGrant": _WRITE,
        "Access.ListGrants": _READ,
        "Access.IssueToken": _WRITE,
        "Access.ListTokens": _READ,
        "Access.RevokeToken": _WRITE,
        "Access.SignCertificate": _WRITE,
        "Access.RevokeCertificate": _WRITE,
        "Access.Readmit": _WRITE,
        "Access.ListRevocations": _READ,
        "Health.Check": _EXEMPT,
        "Health.List": _EXEMPT,
        "Health.Watch": _EXEMPT,
        "ServerReflection.ServerReflectionInfo": MethodTraits(PriorityLevel.CATCH_ALL, RateKind.READS, SMALL_REQUEST_BYTES_MAX),
    }
)


def traits_of(method: str) -> MethodTraits:
    """Of a name such as "Submission.Submit"."""
    return _METHODS.get(method, _STREAM)
