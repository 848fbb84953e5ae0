"""Who may what: an agent's calls about its own node, about another one, and by nobody in particular."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from rayched.api.identity import node_identity
from rayched.api.node_size import SIZE_ANNOTATION
from rayched.client import ApiError, Client
from rayched.client.node_agent import NodeAgentClient, NodeState
from rayched.server.admission.node_rules import NODE_RULES, label_fault, refuse_call, refuse_request, taint_fault
from rayched.server.errors import ApiFailure
from rayched.server.server_parts import SERVED
from rayched.v1 import streams_pb2
from rayched.v1.core_pb2 import Node, NodeStatus, PodStatus, Taint
from rayched.v1.services_pb2 import NodeEvent, PodStatusUpdate, RegisterNodeRequest
from tests.planted_bugs import planted
from tests.server.objects import a_node, a_pod, a_priority_class
from tests.server.serving import Serving

FORBIDDEN = (
    "node-restriction.kubernetes.io/team",
    "sub.node-restriction.kubernetes.io/team",
    "node-role.kubernetes.io/control-plane",
    "kubernetes.io/role",
    "scheduling.kubernetes.io/x",
    "beta.kubernetes.io/os",
    "x.k8s.io/y",
    "k8s.io/y",
    "topology.kubernetes.io/rack",
)
ALLOWED = (
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/anything",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "kubelet.kubernetes.io/x",
    "rayched.dev/driver.process",
    "disk",
    "example.org/notkubernetes.io",
    "mykubernetes.io/x",
)


@pytest.mark.row("N10", "K2.1")
@pytest.mark.parametrize("key", FORBIDDEN)
def test_a_label_that_others_rely_on_is_refused_by_name(key: str) -> None:
    assert f'label "{key}"' in label_fault(key)


def test_an_agent_attends_for_its_own_node_alone() -> None:
    refuse_request(node_identity("a"), "AgentStreams.Attend", streams_pb2.AttendRequest(node="a"))
    with pytest.raises(ApiFailure, match=r"AgentStreams\.Attend: node .b. is another's"):
        refuse_request(node_identity("a"), "AgentStreams.Attend", streams_pb2.AttendRequest(node="b"))


@pytest.mark.parametrize("key", ALLOWED)
def test_other_labels_are_the_nodes_own(key: str) -> None:
    assert label_fault(key) == "" and taint_fault("dedicated") == ""


@pytest.fixture
def agent(api: Serving, name: str) -> Iterator[NodeAgentClient]:
    with NodeAgentClient(api.address, timeout_seconds=30.0, node=name) as found:
        yield found


def denied(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(ApiError) as error:
        call()
    assert error.value.code is grpc.StatusCode.PERMISSION_DENIED, str(error.value)
    for word in words:
        assert word in error.value.message


def registration(node: Node) -> RegisterNodeRequest:
    return RegisterNodeRequest(node=node, agent_id=f"agent-of-{node.metadata.name}")


@pytest.mark.cluster
@pytest.mark.row("N10", "K2.1")
@pytest.mark.parametrize("number", range(4))
def test_a_registration_with_what_a_node_may_not_give_itself_changes_nothing(
    client: Client, agent: NodeAgentClient, name: str, number: int
) -> None:
    labels = dict.fromkeys(FORBIDDEN, "x")
    node = a_node(name)
    match number:
        case 0:
            node.metadata.labels.update(labels)
            denied(lambda: agent.begin(registration(node)), *(f'"{key}"' for key in FORBIDDEN))
        case 1:
            node.spec.taints.append(Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"))
            denied(lambda: agent.begin(registration(node)), 'taint "node.kubernetes.io/unreachable"')
        case 2:
            node.spec.unschedulable = True
            denied(lambda: agent.begin(registration(node)), "spec.unschedulable")
        case _:
            agent.begin(registration(node))
            client.cordon(name)
            client.taint(name, add=[Taint(key="dedicated", value="gpu", effect="NoSchedule")])
            client.label("node", name, add={"node-restriction.kubernetes.io/team": "red"})
            again = agent.begin(registration(node)).node
            assert again.spec.unschedulable and again.spec.taints[0].key == "dedicated"
            assert again.metadata.labels["node-restriction.kubernetes.io/team"] == "red"
            return
    assert name not in [one.metadata.name for one in client.list("nodes")]
    with planted("nodes may do anything"):
        agent.begin(registration(node))
    assert name in [one.metadata.name for one in client.list("nodes")], "it is the table that refuses"


@pytest.mark.cluster
@pytest.mark.row("N11")
def test_allocatable_is_at_most_what_the_node_registered_first(client: Client, agent: NodeAgentClient, name: str) -> None:
    first = agent.begin(registration(a_node(name, cpu="4")))
    assert '"cpu": "4"' in first.node.metadata.annotations[SIZE_ANNOTATION]
    agent.begin(registration(a_node(name, cpu="2")))
    assert agent.begin(registration(a_node(name, cpu="4"))).node.status.allocatable["cpu"].string == "4"
    words = ('status.allocatable["cpu"]: found 8, allowed is up to 4', SIZE_ANNOTATION)
    bold = a_node(name, cpu="4")
    bold.metadata.annotations[SIZE_ANNOTATION] = '{"cpu": "8"}'
    assert '"cpu": "4"' in agent.begin(registration(bold)).node.metadata.annotations[SIZE_ANNOTATION]
    incarnation = agent.begin(registration(a_node(name, cpu="4"))).incarnation
    larger = a_node(name, cpu="8")
    larger.metadata.annotations[SIZE_ANNOTATION] = '{"cpu": "8"}'
    denied(lambda: agent.begin(registration(larger)), *words)
    status = NodeStatus()
    status.allocatable["cpu"].string = "8"
    denied(lambda: agent.report_node(name, incarnation, status), *words)
    more = NodeStatus()
    more.allocatable["gpu"].string = "1"
    denied(lambda: agent.report_node(name, incarnation, more), 'status.allocatable["gpu"]: found 1, allowed is up to 0')
    agent.report_node(name, incarnation, NodeStatus(phase="Running"))
    approved = client.get("node", name)
    assert isinstance(approved, Node)
    approved.metadata.annotations[SIZE_ANNOTATION] = '{"cpu": "16", "memory": "8Gi", "pods": "110"}'
    client.apply(approved)
    assert agent.begin(registration(larger)).node.status.allocatable["cpu"].string == "8"


def calls(agent: NodeAgentClient, node: str, pod: str, uid: str) -> dict[str, Callable[[], object]]:
    """Each call of an agent that has no incarnation, about that node and a pod on it."""
    now = int(time.time() * 1000)
    event = NodeEvent(kind="Node", name=node, type="Normal", reason="Starting", first_at_ms=now, last_at_ms=now)
    update = PodStatusUpdate(namespace="default", name=pod, uid=uid, status=PodStatus(phase="Running"))

    def watched() -> object:
        watch = agent.watch_node(node)
        try:
            found = next(iter(watch))
            assert isinstance(found, NodeState)
            return found
        finally:
            watch.close()

    def listed() -> object:
        since = agent.list_all("priorityclasses").revision + 1
        return list(agent.watch("pods", field_selector=f"spec.nodeName={node}", start_revision=since, timeout_seconds=0.2))

    return {
        "Nodes.Register": lambda: agent.begin(RegisterNodeRequest(node=a_node(node))),
        "Nodes.Heartbeat": lambda: agent.live(node, 0),
        "Nodes.UpdateNodeStatus": lambda: agent.report_node(node, 0, NodeStatus(phase="Running")),
        "Nodes.UpdatePodStatus": lambda: agent.report_pods(node, 0, [update]),
        "Nodes.WatchNode": watched,
        "Nodes.ReportEvents": lambda: agent.report_events(node, 0, [event]),
        "Submission.Get": lambda: (agent.get("node", node), agent.get("pod", pod)),
        "Submission.List": lambda: agent.list_all("pods", field_selector=f"spec.nodeName={node}"),
        "Watch.Watch": listed,
    }


@pytest.mark.cluster
@pytest.mark.row("N125")
def test_an_agent_may_about_its_own_node_what_it_may_not_about_another(
    client: Client, agent: NodeAgentClient, api: Serving, name: str
) -> None:
    other = f"{name}-other"
    for node in (name, other):
        client.register_node(a_node(node))
    uids = {node: client.submit(a_pod(f"pod-of-{node}", node=node)).uid for node in (name, other)}
    for call, do in calls(agent, name, f"pod-of-{name}", uids[name]).items():
        do()
        assert call in NODE_RULES
    for call, do in calls(agent, other, f"pod-of-{other}", uids[other]).items():
        denied(do, node_identity(name), call)
    denied(lambda: agent.get("pod", f"pod-of-{other}"), "is on another node")
    with NodeAgentClient(api.address, timeout_seconds=30.0) as nobody:
        # Whoever says nothing of itself is whoever can reach a replica.
        for node in (name, other):
            for do in calls(nobody, node, f"pod-of-{node}", uids[node]).values():
                do()
    own = agent.report_pods(name, 0, [PodStatusUpdate(namespace="default", name=f"pod-of-{other}", uid=uids[other])])
    assert own[0] is not None and own[0].code is grpc.StatusCode.FAILED_PRECONDITION
    status = PodStatus(phase="Running")
    status.conditions.add(type="PodScheduled", status="True")
    update = PodStatusUpdate(namespace="default", name=f"pod-of-{name}", uid=uids[name], status=status)
    denied(lambda: agent.report_pods(name, 0, [update]), "condition PodScheduled is the scheduler's")


@pytest.mark.cluster
@pytest.mark.row("N125")
def test_what_is_no_agents_business_is_refused(client: Client, agent: NodeAgentClient, name: str) -> None:
    client.register_node(a_node(name))
    client.submit(a_pod(name))
    client.submit(a_priority_class(name, 7))
    assert agent.get("priorityclass", name).metadata.name == name and agent.list_all("priorityclasses").objects
    refused: dict[str, Callable[[], object]] = {
        "Submission.Submit": lambda: agent.submit(a_pod(name)),
        "Submission.SubmitMany": lambda: agent.submit_many([a_pod(name)]),
        "Submission.Apply": lambda: agent.apply(a_pod(name)),
        "Submission.Delete": lambda: agent.delete("pod", name),
        "Eviction.Evict": lambda: agent.evict(name),
        "Admin.Cordon": lambda: agent.cordon(name),
        "Admin.Taint": lambda: agent.taint(name, add=[Taint(key="a", effect="NoSchedule")]),
        "Admin.Label": lambda: agent.label("node", name, add={"a": "b"}),
        "Scheduling.GetSchedulerStatus": agent.scheduler_status,
        "Scheduling.ListQueue": agent.queue,
        "Scheduling.Explain": lambda: agent.explain(name),
        "Scheduling.GetPlanBasis": agent.plan_basis,
        "Scheduling.GetAllocatedResources": agent.allocated_resources,
        "Scheduling.Bind": lambda: agent.bind(name, node=name),
    }
    for call, do in refused.items():
        if call == "Submission.SubmitMany":
            (outcome,) = agent.submit_many([a_pod(name)])
            assert outcome.error is not None and outcome.error.code is grpc.StatusCode.PERMISSION_DENIED
        elif call != "Submission.Delete" and call != "Eviction.Evict":
            denied(do, node_identity(name), call)
        else:
            denied(do, node_identity(name))
    everything = {f"{service.name}.{method.name}" for service in SERVED.values() for method in service.methods}
    assert set(NODE_RULES) < everything and not refused.keys() & set(NODE_RULES)
    for call in everything - set(NODE_RULES):
        with pytest.raises(ApiFailure, match="is not among what the agent of a node may do"):
            refuse_call(node_identity(name), call)
    denied(lambda: agent.list_all("pods"), "with the field selector spec.nodeName=")
    denied(lambda: agent.list_all("events"), "is not among what it may read")
    denied(lambda: list(agent.watch("nodes", start_revision=2, timeout_seconds=0.2)), "Watch.Watch", "metadata.name=")
