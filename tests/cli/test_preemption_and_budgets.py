"""Preemption among pods with disruption budgets: what is guarded gives way last, within a node and between nodes.

The guarded pods have the lower priority, so without budgets they would be the first to go.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.cli.cluster import Commands, a_pod_text, wait_until

pytestmark = pytest.mark.cluster

NODES = ("node-004", "node-005")
POOL = "nodeSelector: {preemption-pool: here}"


@pytest.fixture
def high(rayched: Commands) -> Iterator[str]:
    """A priority class above the others; there is one between it and none, `middle`."""
    for name, value in (("high", 1000), ("middle", 10)):
        text = f"{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}}}"
        rayched.ok("apply", "-f", "-", stdin=text)
    yield "high"
    rayched.ok("delete", "priorityclass", "high", "middle")


@pytest.fixture
def pool(rayched: Commands) -> Iterator[None]:
    """The nodes that the test's pods go to; none at first."""
    yield
    for node in NODES:
        rayched("label", "node", node, "preemption-pool-")


def run_on(rayched: Commands, namespace: str, name: str, node: str, cpu: str) -> None:
    spec = f"nodeSelector: {{kubernetes.io/hostname: {node}}}"
    if name == "plain":
        # But for the budget it would be the last to go.
        spec += "\npriorityClassName: middle"
    rayched.ok("apply", "-f", "-", stdin=a_pod_text(name, namespace=namespace, labels=f"{{app: {name}}}", cpu=cpu, spec=spec))
    rayched.running(name, namespace)


def guard(rayched: Commands, namespace: str, app: str) -> None:
    """A budget that allows no disruption of the app."""
    text = f"""apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {app}, namespace: {namespace}}}
spec: {{minAvailable: 1, selector: {{matchLabels: {{app: {app}}}}}}}
"""
    rayched.ok("apply", "-f", "-", stdin=text)

    def observed() -> bool:
        found = rayched.client.get("pdb", app, namespace)
        assert isinstance(found, PodDisruptionBudget)
        return (found.status.current_healthy, found.status.desired_healthy) == (1, 1)

    wait_until(observed, "the budget has a status")


def preempt(rayched: Commands, namespace: str, name: str, high: str, cpu: str) -> str:
    """Where a pod of high priority runs in the end."""
    spec = f"{POOL}\npriorityClassName: {high}"
    rayched.ok("apply", "-f", "-", stdin=a_pod_text(name, namespace=namespace, cpu=cpu, spec=spec))
    return rayched.running(name, namespace).spec.node_name


@pytest.mark.row("F2", "K9.10")
def test_of_two_victims_on_a_node_the_guarded_one_goes_last(rayched: Commands, namespace: str, high: str, pool: None) -> None:
    for app in ("guarded", "plain"):
        run_on(rayched, namespace, app, NODES[0], "7")
    guard(rayched, namespace, "guarded")
    rayched.ok("label", "node", NODES[0], "preemption-pool=here")
    preempt(rayched, namespace, "first", high, "8")
    assert rayched.gone("plain", namespace)
    assert not rayched.pod("guarded", namespace).metadata.HasField("deletion_timestamp")
    # Only now it is the last resort, and a budget does not protect from that.
    preempt(rayched, namespace, "second", high, "8")
    assert rayched.gone("guarded", namespace)


@pytest.mark.row("F2", "K9.10")
def test_of_two_nodes_the_one_without_a_guarded_victim_is_chosen(
    rayched: Commands, namespace: str, high: str, pool: None
) -> None:
    for app, node in zip(("guarded", "plain"), NODES, strict=True):
        run_on(rayched, namespace, app, node, "15")
        rayched.ok("label", "node", node, "preemption-pool=here")
    guard(rayched, namespace, "guarded")
    assert preempt(rayched, namespace, "first", high, "15") == NODES[1]
    assert not rayched.gone("guarded", namespace)
    assert preempt(rayched, namespace, "second", high, "15") == NODES[0]
    assert rayched.gone("guarded", namespace)
