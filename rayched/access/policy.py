"""The policy: which role may make which call about which kind of object, and where. One literal table; all else is denied.

A row is a call, the kinds it is about, and a cell for each role. A call that is about no object has the kind `-`.

| cell | the role may |
|---|---|
| - | not |
| own | in the namespaces of the grant; of the kind Namespace, those themselves |
| star | if the grant is for all namespaces |
| all | everywhere |
| node | about its own node and the pods on it, as node_rules.py says |
| self | about itself |

`any` is whoever has an identity, with or without a grant; `node` is an agent, `replica` a replica that asks in its own name. A
call that a replica passes on is judged by the rights of whom it asks for.

A call of the API that has no row stops the server's start, and so does a row of no call: `check_policy`.

Source: the cells are docs/adr/0032; viewer and submitter are Kubernetes' `view` and `edit` as far as there is something to view.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from google.protobuf.descriptor import ServiceDescriptor

from rayched.api.kinds import KINDS


class AccessRole(enum.StrEnum):
    """A column of the table."""

    ANY = "any"
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    NODE = "node"
    REPLICA = "replica"
    MONITOR = "monitor"
    """No column: what it may read over HTTP is in http_policy.py."""


class AccessScope(enum.Enum):
    """A cell of the table; absent: the role may not."""

    OWN = "own"
    STAR = "star"
    ALL = "all"
    NODE = "node"
    SELF = "self"


class PolicyError(Exception):
    """The table does not fit the API, or itself; one line a fault."""


NO_KIND: Final = "-"
"""Of calls that are about no object."""

_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "workloads": (
        "Pod",
        "PodDisruptionBudget",
        "Service",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
        "Job",
        "PodGroup",
    ),
    "controllers": (
        "PodDisruptionBudget",
        "Service",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
        "Job",
        "PodGroup",
    ),
    "scaled": ("ReplicaSet", "ReplicationController", "StatefulSet", "Job"),
    "unscaled": (
        "Pod",
        "PodDisruptionBudget",
        "PodGroup",
        "Service",
        "Event",
        "Node",
        "Namespace",
        "PriorityClass",
        "RuntimeClass",
    ),
    "classes": ("PriorityClass", "RuntimeClass"),
    "cluster": ("Node", "Namespace", "PriorityClass", "RuntimeClass"),
}

_TABLE: Final = """
call                           kinds        any   viewer  submitter  operator  admin  node  replica
Submission.Submit              workloads    -     -       own        -         all    -     -
Submission.Submit              Event        -     -       -          all       all    -     -
Submission.Submit              cluster      -     -       -          -         all    -     -
Submission.SubmitMany          workloads    -     -       own        -         all    -     -
Submission.SubmitMany          Event        -     -       -          all       all    -     -
Submission.SubmitMany          cluster      -     -       -          -         all    -     -
Submission.Apply               workloads    -     -       own        -         all    -     -
Submission.Apply               Event        -     -       -          all       all    -     -
Submission.Apply               cluster      -     -       -          -         all    -     -
Submission.Get                 Pod          -     own     own        all       all    node  -
Submission.Get                 controllers  -     own     own        all       all    -     -
Submission.Get                 Event        -     own     own        all       all    -     -
Submission.Get                 Namespace    -     own     own        all       all    -     -
Submission.Get                 classes      -     all     all        all       all    all   -
Submission.Get                 Node         -     -       -          all       all    node  -
Submission.List                Pod          -     own     own        all       all    node  -
Submission.List                controllers  -     own     own        all       all    -     -
Submission.List                Event        -     own     own        all       all    -     -
Submission.List                Namespace    -     own     own        all       all    -     -
Submission.List                classes      -     all     all        all       all    all   -
Submission.List                Node         -     -       -          all       all    node  -
Submission.Delete              workloads    -     -       own        -         all    -     -
Submission.Delete              Event        -     -       -          -         all    -     -
Submission.Delete              cluster      -     -       -          -         all    -     -
Eviction.Evict                 Pod          -     -       own        all       all    -     -
Watch.Watch                    Pod          -     own     own        all       all    node  -
Watch.Watch                    controllers  -     own     own        all       all    -     -
Watch.Watch                    Event        -     own     own        all       all    -     -
Watch.Watch                    Namespace    -     own     own        all       all    -     -
Watch.Watch                    classes      -     all     all        all       all    all   -
Watch.Watch                    Node         -     -       -          all       all    node  -
Nodes.Register                 Node         -     -       -          -         all    node  -
Nodes.Heartbeat                Node         -     -       -          -         all    node  -
Nodes.UpdateNodeStatus         Node         -     -       -          -         all    node  -
Nodes.UpdatePodStatus          Node         -     -       -          -         all    node  -
Nodes.WatchNode                Node         -     -       -          -         all    node  -
Nodes.ReportEvents             Node         -     -       -          -         all    node  -
Admin.Cordon                   Node         -     -       -          all       all    -     -
Admin.Taint                    Node         -     -       -          all       all    -     -
Admin.Label                    Pod          -     -       own        -         all    -     -
Admin.Label                    controllers  -     -       -          -         all    -     -
Admin.Label                    Event        -     -       -          -         all    -     -
Admin.Label                    Namespace    -     -       -          -         all    -     -
Admin.Label                    classes      -     -       -          -         all    -     -
Admin.Label                    Node         -     -       -          all       all    -     -
Admin.Scale                    scaled       -     -       own        -         all    -     -
Admin.Scale                    unscaled     -     -       -          -         all    -     -
Leadership.GetLeader           -            all   -       -          -         -      -     -
Leadership.WatchLeader         -            all   -       -          -         -      -     -
Scheduling.GetSchedulerStatus  -            -     all     all        all       all    -     -
Scheduling.GetPlanBasis        -            -     star    star       all       all    -     -
Scheduling.GetAllocatedResources  -         -     -       -          all       all    -     -
Scheduling.Explain             Pod          -     own     own        all       all    -     -
Scheduling.Bind                Pod          -     -       -          all       all    -     -
Scheduling.ListQueue           Pod          -     own     own        all       all    -     -
Logs.Get                       Pod          -     own     own        all       all    -     -
Exec.Stream                    Pod          -     -       own        -         all    -     -
PortForward.Stream             Pod          -     -       own        -         all    -     -
Usage.GetUsage                 Node         -     star    star       all       all    -     -
Usage.GetUsage                 -            -     star    star       all       all    -     -
AgentStreams.Attend            Node         -     -       -          -         all    node  -
AgentStreams.Serve             -            -     -       -          -         all    all   -
Access.WhoAmI                  -            all   -       -          -         -      -     -
Access.CanI                    -            self  -       -          all       all    -     -
Access.Grant                   -            -     -       -          -         all    -     -
Access.RevokeGrant             -            -     -       -          -         all    -     -
Access.ListGrants              -            -     self    self       all       all    -     -
Access.IssueToken              -            -     self    self       self      all    -     -
Access.ListTokens              -            -     self    self       self      all    -     -
Access.RevokeToken             -            -     self    self       self      all    -     -
Access.SignCertificate         -            self  -       -          -         all    -     -
Access.RevokeCertificate       -            -     -       -          -         all    -     -
Access.Readmit                 -            -     -       -          -         all    -     -
Access.ListRevocations         -            -     -       -          all       all    -     -
Health.Check                   -            all   -       -          -         -      -     -
Health.List                    -            all   -       -          -         -      -     -
Health.Watch                   -            all   -       -          -         -      -     -
ServerReflection.ServerReflectionInfo  -    all   -       -          -         -      -     -
"""

_ROLES: Final[tuple[AccessRole, ...]] = tuple(role for role in AccessRole if role is not AccessRole.MONITOR)
_NO_SCOPE: Final = "-"

Cells = Mapping[AccessRole, AccessScope]
"""What each role may; a role that is not in it may not."""


def read_table(text: str) -> Mapping[str, Mapping[str, Cells]]:
    """By call and kind. Raises PolicyError for a row that cannot be read, or a second one of the same call and kind."""
    head, *lines = [line.split() for line in text.splitlines() if line.strip()]
    if head != ["call", "kinds", *(role.value for role in _ROLES)]:
        raise PolicyError(f"the policy's first line is {' '.join(head)}")
    known = {kind.name for kind in KINDS} | {NO_KIND}
    table: dict[str, dict[str, Cells]] = {}
    for call, group, *words in lines:
        if len(words) != len(_ROLES):
            raise PolicyError(f"the policy's row {call} {group} has {len(words)} cells, want {len(_ROLES)}")
        cells = {role: _scope(call, word) for role, word in zip(_ROLES, words, strict=True) if word != _NO_SCOPE}
        for kind in _GROUPS.get(group, (group,)):
            if kind not in known:
                raise PolicyError(f"the policy's row {call}: {kind} is no kind")
            if table.setdefault(call, {}).setdefault(kind, cells) is not cells:
                raise PolicyError(f"the policy has two rows for {call} of {kind}")
    return MappingProxyType(table)


def _scope(call: str, word: str) -> AccessScope:
    try:
        return AccessScope(word)
    except ValueError:
        raise PolicyError(f"the policy's row {call}: {word} is none of -, own, star, all, node, self") from None


POLICY: Final = read_table(_TABLE)


def check_policy(services: Iterable[ServiceDescriptor], table: Mapping[str, Mapping[str, Cells]] = POLICY) -> None:
    """Raises PolicyError for a call of these services that the table does not have, and for a row whose call none of them has."""
    calls = {f"{service.name}.{method.name}" for service in services for method in service.methods}
    faults = [f"the call {call} has no row in the policy: nobody may make it" for call in sorted(calls - table.keys())]
    faults += [f"the policy has a row for {call}, which is no call" for call in sorted(table.keys() - calls)]
    if faults:
        raise PolicyError("; ".join(faults))


def cells_of(call: str, kind: str) -> Cells:
    """What each role may; empty where the table has no such row."""
    return POLICY.get(call, {}).get(kind, {})


def roles_for(call: str) -> frozenset[AccessRole]:
    """Roles that may make the call about something."""
    return frozenset(role for cells in POLICY.get(call, {}).values() for role in cells)
