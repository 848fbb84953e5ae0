"""Who may what: what the agent of a node may ask for, one row a call. A call that has no row here is refused. Pure.

| call | of an agent |
|---|---|
| Register, Heartbeat, UpdateNodeStatus, WatchNode, ReportEvents | its own node alone |
| Attend | as its own node alone; Serve has the session that was offered to it |
| Register | no label and no taint that others rely on, no owners, not unschedulable; allocatable: first_size.py |
| UpdatePodStatus | pods on its own node, without the scheduler's condition PodScheduled |
| Get, List, Watch | its own Node and the pods on it, RuntimeClasses, PriorityClasses |
| who leads, who it is, what it may, whether the server is of use | yes |
| SignCertificate | of its own identity, as the policy says |
| all others | no |

The rules hold for calls of a node's identity, beside the policy's rows (call_guard.py). Where nothing proves identities, that of
a node takes rights away and gives none.

Source: the NodeRestriction admission and the node authorizer of Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from rayched.access.object_rules import RESTRICTED_DOMAINS, is_of, is_reserved
from rayched.api.errors import quoted
from rayched.api.identity import node_identity, node_of
from rayched.api.kinds import NODE, POD, PRIORITY_CLASS, RUNTIME_CLASS, UnknownKind, by_name, unwrap
from rayched.server.errors import denied
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import UpdatePodStatusRequest

_ALLOWED_LABELS: Final = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    }
)
_ALLOWED_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_READABLE: Final = frozenset({RUNTIME_CLASS.name, PRIORITY_CLASS.name})
_SCHEDULERS_CONDITION: Final = "PodScheduled"

RULE_NODE_RULES: bool = True
"""Broken by tests alone."""

Judge = Callable[[str, Any], str]
"""The node and a message; why not, empty: it may."""


def _nothing(_: str, __: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class NodeCallRule:
    """What is asked of a request, and of the answer before it is sent."""

    request: Judge = _nothing
    response: Judge = _nothing


def label_fault(key: str) -> str:
    """Why a node may not give itself this label; empty: it may."""
    for restricted in RESTRICTED_DOMAINS:
        if is_of(key, restricted):
            return f"label {quoted(key)}: only administrators set labels of {restricted}"
    if not is_reserved(key):
        return ""
    if key in _ALLOWED_LABELS or any(is_of(key, one) for one in _ALLOWED_DOMAINS):
        return ""
    allowed = ", ".join((*sorted(_ALLOWED_LABELS), *(f"{one}/*" for one in _ALLOWED_DOMAINS)))
    return f"label {quoted(key)}: a node may not give it to itself; of kubernetes.io and k8s.io allowed are {allowed}"


def taint_fault(key: str) -> str:
    """Why a node may not come with this taint; empty: it may when it is created."""
    if is_reserved(key):
        return f"taint {quoted(key)}: taints of kubernetes.io and k8s.io are set by the cluster, not by a node"
    return ""


def _own(named: Callable[[Any], str]) -> Judge:
    return lambda node, request: _another(node, named(request))


def _another(node: str, name: str) -> str:
    return "" if name == node else f"node {quoted(name)} is another's"


def _registers(node: str, request: Any) -> str:
    found: Node = request.node
    faults = [_another(node, found.metadata.name)]
    bad = [key for key in sorted(found.metadata.labels) if label_fault(key)]
    if len(bad) > 1:
        faults.append(f"labels {', '.join(map(quoted, bad))}: a node may not give these to itself")
    else:
        faults += map(label_fault, bad)
    faults += (taint_fault(taint.key) for taint in found.spec.taints)
    if found.spec.unschedulable:
        faults.append("spec.unschedulable: is for administrators to set")
    if found.metadata.owner_references:
        # Whoever collects garbage would remove a node whose owner is gone.
        faults.append("metadata.ownerReferences: a node may not say whose it is")
    return "; ".join(fault for fault in faults if fault)


def _lives(node: str, request: Any) -> str:
    return "; ".join(filter(None, (_another(node, name) for name in request.nodes)))


def _reports_pods(node: str, request: Any) -> str:
    assert isinstance(request, UpdatePodStatusRequest)
    for update in request.updates:
        if any(one.type == _SCHEDULERS_CONDITION for one in update.status.conditions):
            return f"pod {update.namespace}/{update.name}: condition {_SCHEDULERS_CONDITION} is the scheduler's"
    return _another(node, request.node)


def _gets(node: str, request: Any) -> str:
    kind = _kind(request.key.kind)
    if kind in _READABLE or kind == POD.name or (kind == NODE.name and request.key.name == node):
        return ""
    return f"{request.key.kind} {quoted(request.key.name)} is not among what it may read"


def _got(node: str, response: Any) -> str:
    found = unwrap(response.object)
    if isinstance(found, Pod) and found.spec.node_name != node:
        return f"pod {found.metadata.namespace}/{found.metadata.name} is on another node, or on none"
    return ""


def _reads_many(node: str, request: Any) -> str:
    kind, terms = _kind(request.kind), {one.strip() for one in request.field_selector.split(",")}
    wanted = {POD.name: f"spec.nodeName={node}", NODE.name: f"metadata.name={node}"}.get(kind)
    if kind in _READABLE or (wanted is not None and wanted in terms):
        return ""
    if wanted is None:
        return f"{quoted(request.kind)} is not among what it may read"
    return f"{kind}: it may read those with the field selector {wanted} alone, found {quoted(request.field_selector)}"


def _kind(name: str) -> str:
    """Empty for what is no kind; the call itself says so."""
    try:
        return by_name(name).name if name else ""
    except UnknownKind:
        return ""


NODE_RULES: Final[Mapping[str, NodeCallRule]] = MappingProxyType(
    {
        "Nodes.Register": NodeCallRule(_registers),
        "Nodes.Heartbeat": NodeCallRule(_lives),
        "Nodes.UpdateNodeStatus": NodeCallRule(_own(lambda request: request.name)),
        "Nodes.UpdatePodStatus": NodeCallRule(_reports_pods),
        "Nodes.WatchNode": NodeCallRule(_own(lambda request: request.name)),
        "Nodes.ReportEvents": NodeCallRule(_own(lambda request: request.node)),
        "AgentStreams.Attend": NodeCallRule(_own(lambda request: request.node)),
        "AgentStreams.Serve": NodeCallRule(),
        "Submission.Get": NodeCallRule(_gets, _got),
        "Submission.List": NodeCallRule(_reads_many),
        "Watch.Watch": NodeCallRule(_reads_many),
        "Access.WhoAmI": NodeCallRule(),
        "Access.CanI": NodeCallRule(),
        "Access.SignCertificate": NodeCallRule(),
        "Leadership.GetLeader": NodeCallRule(),
        "Leadership.WatchLeader": NodeCallRule(),
        "Health.Check": NodeCallRule(),
        "Health.List": NodeCallRule(),
        "Health.Watch": NodeCallRule(),
    }
)


def refuse_call(identity: str, call: str) -> None:
    """Before anything of the request is read. Raises PERMISSION_DENIED."""
    node = _judged(identity)
    if node is not None and call not in NODE_RULES:
        raise denied(identity, call, "is not among what the agent of a node may do")


def refuse_request(identity: str, call: str, request: Any) -> None:
    """Raises PERMISSION_DENIED."""
    node = _judged(identity)
    if node is not None:
        _refuse(node, call, NODE_RULES[call].request(node, request))


def refuse_response(identity: str, call: str, response: Any) -> None:
    """Raises PERMISSION_DENIED."""
    node = _judged(identity)
    if node is not None:
        _refuse(node, call, NODE_RULES[call].response(node, response))


def _judged(identity: str) -> str | None:
    return node_of(identity) if RULE_NODE_RULES else None


def _refuse(node: str, call: str, fault: str) -> None:
    if fault:
        raise denied(node_identity(node), call, fault)
