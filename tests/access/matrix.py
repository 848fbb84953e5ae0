"""The matrix of access as it was typed by hand, and a request for each of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from rayched.access.binding_table import BindingTable
from rayched.access.bindings import RoleBinding, read_binding
from rayched.access.identity import Identity
from rayched.v1 import access_pb2, services_pb2, streams_pb2, workloads_pb2

DOMAIN: Final = "rayched-test"
COLUMNS: Final = ("nobody", "viewer", "submitter", "operator", "admin", "node", "replica", "everywhere")
SCOPES: Final = ("own", "foreign", "all")
IDENTITIES: Final = {
    "nobody": f"spiffe://{DOMAIN}/user/nobody",
    "viewer": f"spiffe://{DOMAIN}/user/vera",
    "submitter": f"spiffe://{DOMAIN}/user/sam",
    "operator": f"spiffe://{DOMAIN}/user/olga",
    "admin": f"spiffe://{DOMAIN}/user/ada",
    "node": f"spiffe://{DOMAIN}/node/node-1",
    "replica": f"spiffe://{DOMAIN}/replica/replica-0",
    "everywhere": f"spiffe://{DOMAIN}/user/eve",
}
NAMESPACES: Final = {"own": "team-a", "foreign": "team-b", "all": ""}
NODES: Final = {"own": "node-1", "foreign": "node-2", "all": ""}
CLUSTER_KINDS: Final = ("Node", "Namespace", "PriorityClass", "RuntimeClass")
_FIELDS: Final = {
    "Pod": "pod",
    "Node": "node",
    "Namespace": "namespace",
    "PriorityClass": "priority_class",
    "PodDisruptionBudget": "pod_disruption_budget",
    "RuntimeClass": "runtime_class",
    "Service": "service",
    "ReplicaSet": "replica_set",
    "StatefulSet": "stateful_set",
    "PodGroup": "pod_group",
    "ReplicationController": "replication_controller",
    "Job": "job",
    "Event": "event",
}


class MatrixCell(NamedTuple):
    """One question and its answer: Y may, n may not, a may ask."""

    call: str
    kind: str
    column: str
    scope: str
    letter: str

    def __str__(self) -> str:
        return f"{self.column} {self.call} {self.kind} {self.scope}"


def cells() -> Iterator[MatrixCell]:
    """Those of the file, in order."""
    for line in (Path(__file__).parent / "matrix.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        call, kinds, *answers = line.split()
        assert len(answers) == len(COLUMNS), line
        for kind in kinds.split(","):
            for column, letters in zip(COLUMNS, answers, strict=True):
                assert len(letters) == len(SCOPES) and set(letters) <= set("Yna."), line
                yield from (
                    MatrixCell(call, kind, column, scope, letter)
                    for scope, letter in zip(SCOPES, letters, strict=True)
                    if letter != "."
                )


def binding(column: str, role: str, *namespaces: str, **more: Any) -> RoleBinding:
    message = access_pb2.RoleBinding(subject=IDENTITIES[column], role=role, namespaces=namespaces, **more)
    return read_binding(message)


def bindings() -> list[RoleBinding]:
    """Those that the columns stand for."""
    return [
        binding("viewer", "viewer", "team-a"),
        binding("submitter", "submitter", "team-a"),
        binding("operator", "operator"),
        binding("admin", "admin"),
        binding("everywhere", "viewer", "*"),
    ]


def table_of(*found: RoleBinding) -> BindingTable:
    """A table that has read these from etcd."""
    table = BindingTable()
    table.listed({f"/rayched/access/bindings/{one.id}".encode(): one.to_message().SerializeToString() for one in found})
    return table


def identity(column: str) -> Identity:
    return Identity.parse(IDENTITIES[column])


def an_object(kind: str, namespace: str, name: str = "thing") -> workloads_pb2.Object:
    item = workloads_pb2.Object()
    metadata = getattr(item, _FIELDS[kind]).metadata
    metadata.name = name
    if kind not in CLUSTER_KINDS:
        metadata.namespace = namespace
    return item


def _name(kind: str, scope: str) -> str:
    """The name of an object of the cluster's own kinds in that scope."""
    match kind:
        case "Node":
            return NODES[scope]
        case "Namespace":
            return NAMESPACES[scope]
        case _:
            return "thing"


def _key(kind: str, scope: str) -> services_pb2.ObjectKey:
    if kind in CLUSTER_KINDS:
        return services_pb2.ObjectKey(kind=kind, name=_name(kind, scope))
    return services_pb2.ObjectKey(kind=kind, namespace=NAMESPACES[scope], name="thing")


def _selected(cell: MatrixCell) -> dict[str, str]:
    """Kind, namespace and field selector of a list or a watch."""
    kind = "" if cell.kind == "any" else cell.kind
    if cell.column == "node" and kind == "Pod":
        node = NODES[cell.scope]
        return {"kind": kind, "field_selector": f"spec.nodeName={node}" if node else ""}
    if kind in ("Node", "Namespace"):
        name = _name(kind, cell.scope)
        return {"kind": kind, "field_selector": f"metadata.name={name}" if name else ""}
    return {"kind": kind, "namespace": "" if kind in CLUSTER_KINDS else NAMESPACES[cell.scope]}


def request_of(cell: MatrixCell) -> Any:
    """What the call of a cell is made with; an agent reports nothing, so that there is nothing to be refused but the node."""
    namespace, node = NAMESPACES[cell.scope], NODES[cell.scope]
    match cell.call.partition("."):
        case "Submission", _, "Submit" | "Apply" as verb:
            item = an_object(cell.kind, namespace, _name(cell.kind, cell.scope))
            made: Any = getattr(services_pb2, f"{verb}Request")(object=item)
            return made
        case "Submission", _, "SubmitMany":
            item = an_object(cell.kind, namespace, _name(cell.kind, cell.scope))
            return services_pb2.SubmitManyRequest(objects=[item])
        case "Submission", _, "Get" | "Delete" as verb:
            return getattr(services_pb2, f"{verb}Request")(key=_key(cell.kind, cell.scope))
        case "Admin", _, "Label":
            return services_pb2.LabelRequest(key=_key(cell.kind, cell.scope), set={"app": "web"})
        case "Admin", _, "Scale":
            return services_pb2.ScaleRequest(key=_key(cell.kind, cell.scope), replicas=1)
        case "Submission", _, "List":
            return services_pb2.ListRequest(**_selected(cell))
        case "Watch", _, _:
            return services_pb2.WatchRequest(**_selected(cell))
        case "Eviction", _, _:
            return services_pb2.EvictRequest(namespace=namespace, name="thing")
        case "Nodes", _, verb:
            return _of_agents(verb, node)
        case "Admin", _, "Cordon":
            return services_pb2.CordonRequest(node=node, unschedulable=True)
        case "Admin", _, "Taint":
            return services_pb2.TaintRequest(node=node)
        case "Leadership", _, _:
            return services_pb2.GetLeaderRequest()
        case "Scheduling", _, "GetSchedulerStatus" | "GetPlanBasis" | "GetAllocatedResources" as verb:
            return getattr(services_pb2, f"{verb}Request")()
        case "Scheduling", _, "Explain":
            return services_pb2.ExplainRequest(namespace=namespace, name="thing")
        case "Scheduling", _, "Bind":
            return services_pb2.BindRequest(namespace=namespace, name="thing", node="node-1")
        case "Scheduling", _, "ListQueue":
            return services_pb2.ListQueueRequest(namespace=namespace)
        case "Health", _, verb:
            return health_pb2.HealthListRequest() if verb == "List" else health_pb2.HealthCheckRequest()
        case "ServerReflection", _, _:
            return reflection_pb2.ServerReflectionRequest(list_services="")
        case "Access", _, verb:
            return _of_access(verb, cell)
        case _:
            return _of_streams(cell.call, namespace, node)


def _of_agents(verb: str, node: str) -> Any:
    match verb:
        case "Register":
            request = services_pb2.RegisterNodeRequest()
            request.node.metadata.name = node
            return request
        case "Heartbeat":
            return services_pb2.HeartbeatRequest(nodes=[node] if node else ["node-1", "node-2"])
        case "UpdateNodeStatus":
            return services_pb2.UpdateNodeStatusRequest(name=node)
        case "UpdatePodStatus":
            return services_pb2.UpdatePodStatusRequest(node=node)
        case "WatchNode":
            return services_pb2.WatchNodeRequest(name=node)
        case _:
            return services_pb2.ReportEventsRequest(node=node)


def _of_access(verb: str, cell: MatrixCell) -> Any:
    subject = {"own": IDENTITIES[cell.column], "foreign": f"spiffe://{DOMAIN}/user/other", "all": ""}[cell.scope]
    match verb:
        case "WhoAmI":
            return access_pb2.WhoAmIRequest()
        case "CanI":
            return access_pb2.CanIRequest(call="Submission.Get", kind="Pod", namespace="team-a", subject=subject)
        case "Grant":
            made = access_pb2.RoleBinding(subject=f"spiffe://{DOMAIN}/user/other", role="viewer", namespaces=["team-b"])
            return access_pb2.GrantRequest(binding=made)
        case "RevokeGrant":
            return access_pb2.RevokeGrantRequest(id="0123456789abcdef")
        case "IssueToken":
            return access_pb2.IssueTokenRequest(subject=subject)
        case "SignCertificate":
            return access_pb2.SignCertificateRequest(subject=subject, signing_request=b"none")
        case "RevokeToken":
            return access_pb2.RevokeTokenRequest(id="aaaaaaaa", subject=subject)
        case "RevokeCertificate":
            return access_pb2.RevokeCertificateRequest(serial="0123456789abcdef")
        case "Readmit":
            return access_pb2.ReadmitRequest(serial="0123456789abcdef")
        case "ListRevocations":
            return access_pb2.ListRevocationsRequest()
        case "ListTokens":
            return access_pb2.ListTokensRequest(subject=subject)
        case _:
            return access_pb2.ListGrantsRequest(subject=subject)


def _of_streams(call: str, namespace: str, node: str) -> Any:
    match call:
        case "Logs.Get":
            return streams_pb2.LogsRequest(namespace=namespace, pod="thing")
        case "Exec.Stream":
            return streams_pb2.ExecRequest(start=streams_pb2.ExecStart(namespace=namespace, pod="thing", command=["sh"]))
        case "PortForward.Stream":
            return streams_pb2.PortForwardRequest(start=streams_pb2.PortForwardStart(namespace=namespace, pod="thing", port=80))
        case "Usage.GetUsage":
            return streams_pb2.UsageRequest(node=node)
        case "AgentStreams.Attend":
            return streams_pb2.AttendRequest(node=node)
        case "AgentStreams.Serve":
            return streams_pb2.AgentFrame(session="session")
    raise AssertionError(f"the matrix has the call {call}, which no request is known for")
