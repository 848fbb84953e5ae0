"""Behaviour of the whole, seen from the command line: where pods land, why they wait, what lets them go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.v1.core_pb2 import Pod
from tests.cli.cluster import Commands, a_pod_text, wait_until

pytestmark = pytest.mark.cluster

NODE = "node-008"
HERE = f"nodeSelector: {{kubernetes.io/hostname: {NODE}}}"


@pytest.fixture
def node(rayched: Commands) -> Iterator[str]:
    """A node that the test may taint and label."""
    yield NODE
    rayched("uncordon", NODE)
    for key in ("key1", "key2"):
        rayched("taint", "nodes", NODE, f"{key}-")
    rayched("label", "node", NODE, "special-", "tier-")


def apply(rayched: Commands, text: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=text)


@pytest.mark.row("K1.1", "D5")
def test_a_pod_is_seen_placed_bound_and_then_in_no_queue(rayched: Commands, namespace: str, name: str) -> None:
    apply(rayched, a_pod_text(name, namespace=namespace))
    pod = rayched.running(name, namespace)
    assert f"node/{pod.spec.node_name}" in rayched.ok("get", "nodes", "-o", "name")
    assert [(found.type, found.status) for found in pod.status.conditions if found.type == "PodScheduled"] == [
        ("PodScheduled", "True")
    ]
    wait_until(lambda: not any(rayched.client.scheduler_status().pending_pods.values()), "all queues are empty")


@pytest.mark.row("K1.3", "D1")
def test_a_pod_that_fits_nowhere_waits_with_a_reason_until_something_changes(
    rayched: Commands, namespace: str, name: str, node: str
) -> None:
    apply(rayched, a_pod_text(name, namespace=namespace, spec='nodeSelector: {special: "yes"}'))
    waiting = rayched.unschedulable(name, "node(s) didn't match Pod's node affinity/selector", namespace)
    assert (waiting.status.phase, waiting.spec.node_name) == ("Pending", "")
    rayched.ok("label", "node", node, "special=yes")
    assert rayched.running(name, namespace).spec.node_name == node


@pytest.mark.row("K2.2")
def test_every_label_of_a_node_selector_must_be_on_the_node(rayched: Commands, namespace: str, name: str, node: str) -> None:
    rayched.ok("label", "node", node, "special=yes")
    apply(rayched, a_pod_text(name, namespace=namespace, spec='nodeSelector: {special: "yes", tier: db}'))
    rayched.unschedulable(name, "12 node(s) didn't match Pod's node affinity/selector", namespace)
    rayched.ok("label", "node", node, "tier=db")
    assert rayched.running(name, namespace).spec.node_name == node


@pytest.mark.row("K2.5")
def test_a_label_that_goes_later_evicts_nobody_and_keeps_the_next_pod_off(
    rayched: Commands, namespace: str, name: str, node: str
) -> None:
    rayched.ok("label", "node", node, "special=yes")
    selector = 'nodeSelector: {special: "yes"}'
    apply(rayched, a_pod_text(f"{name}-early", namespace=namespace, spec=selector))
    early = rayched.running(f"{name}-early", namespace)
    rayched.ok("label", "node", node, "special-")
    apply(rayched, a_pod_text(f"{name}-late", namespace=namespace, spec=selector))
    rayched.unschedulable(f"{name}-late", "didn't match Pod's node affinity/selector", namespace)
    now = rayched.pod(f"{name}-early", namespace)
    assert (now.spec.node_name, now.status.phase, now.metadata.uid) == (node, "Running", early.metadata.uid)


def bound_directly(name: str, namespace: str, spec: str = "", cpu: str = "100m") -> str:
    return a_pod_text(name, namespace=namespace, cpu=cpu, spec=f"nodeName: {NODE}\n{spec}".strip())


@pytest.mark.row("K2.12", "D2")
def test_a_pod_that_names_its_node_never_enters_the_queue(rayched: Commands, namespace: str, name: str, node: str) -> None:
    # Cordoned and tainted: the scheduler would never choose it.
    rayched.ok("cordon", node)
    rayched.ok("taint", "nodes", node, "key1=value1:NoSchedule")
    before = dict(rayched.client.scheduler_status().attempts)
    apply(rayched, bound_directly(name, namespace))
    assert rayched.running(name, namespace).spec.node_name == node
    assert dict(rayched.client.scheduler_status().attempts) == before


REFUSED = [
    ("17", "", "OutOfcpu", "Node didn't have enough resource: cpu, requested: 17000, used: "),
    ("1, memory: 65Gi", "", "OutOfmemory", "Node didn't have enough resource: memory, requested: 69793218560, used: "),
    ("1, example.com/widget: 1", "", "OutOfexample.com/widget", "Node didn't have enough resource: example.com/widget"),
    ("1", "nodeSelector: {disktype: tape}", "NodeAffinity", "Predicate NodeAffinity failed"),
]


@pytest.mark.row("K2.12")
@pytest.mark.parametrize(("cpu", "spec", "reason", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_node_that_cannot_take_the_pod_refuses_it_with_a_reason(
    rayched: Commands, namespace: str, name: str, cpu: str, spec: str, reason: str, message: str
) -> None:
    apply(rayched, bound_directly(name, namespace, spec, cpu))
    pod = rayched.pod_when(name, lambda pod: pod.status.phase == "Failed", "refused", namespace)
    assert pod.status.reason == reason
    assert pod.status.message.startswith(f"Pod was rejected: {message}")
    assert rayched.ok("get", "pod", name, "-n", namespace, "--no-headers")[0].split()[2] == reason
    # It holds nothing there: the next one fits.
    apply(rayched, bound_directly(f"{name}-next", namespace))
    rayched.running(f"{name}-next", namespace)


@pytest.mark.row("K2.12")
def test_a_pod_that_names_a_node_that_does_not_exist_stays_where_it_is(rayched: Commands, namespace: str, name: str) -> None:
    apply(rayched, a_pod_text(name, namespace=namespace, spec="nodeName: nowhere"))
    apply(rayched, a_pod_text(f"{name}-other", namespace=namespace))
    rayched.running(f"{name}-other", namespace)
    assert rayched.pod(name, namespace).status.phase == "Pending"


TOLERATIONS = """tolerations:
- {key: key1, operator: Equal, value: value1, effect: NoSchedule}
- {key: key1, operator: Equal, value: value1, effect: NoExecute}
"""


@pytest.mark.row("K5.3", "K5.1")
def test_of_three_taints_the_one_that_is_not_tolerated_decides(rayched: Commands, namespace: str, name: str, node: str) -> None:
    rayched.ok("taint", "nodes", node, "key1=value1:NoSchedule", "key1=value1:NoExecute", "key2=value2:NoSchedule")
    apply(rayched, a_pod_text(name, namespace=namespace, spec=f"{HERE}\n{TOLERATIONS}".strip()))
    rayched.unschedulable(name, "1 node(s) had untolerated taint {key2: value2}", namespace)
    rayched.ok("taint", "nodes", node, "key2-")
    assert rayched.running(name, namespace).spec.node_name == node


@pytest.mark.row("K5.1")
def test_a_node_of_the_effect_prefer_no_schedule_is_taken_when_there_is_no_other(
    rayched: Commands, namespace: str, name: str, node: str
) -> None:
    rayched.ok("taint", "nodes", node, "key1=value1:PreferNoSchedule")
    apply(rayched, a_pod_text(f"{name}-there", namespace=namespace, spec=HERE))
    apply(rayched, a_pod_text(f"{name}-anywhere", namespace=namespace))
    assert rayched.running(f"{name}-there", namespace).spec.node_name == node
    assert rayched.running(f"{name}-anywhere", namespace).spec.node_name != node


def test_a_cordoned_node_gets_no_pod_until_it_is_uncordoned(rayched: Commands, namespace: str, name: str, node: str) -> None:
    rayched.ok("cordon", node)
    apply(rayched, a_pod_text(name, namespace=namespace, spec=HERE))
    rayched.unschedulable(name, "1 node(s) were unschedulable", namespace)
    rayched.ok("uncordon", node)
    assert rayched.running(name, namespace).spec.node_name == node


@pytest.mark.row("K9.5")
def test_a_priority_class_is_resolved_when_the_pod_comes_and_an_unknown_one_refused(
    rayched: Commands, namespace: str, name: str
) -> None:
    spec = f"priorityClassName: {name}"
    with rayched.nothing_changes():
        refused = rayched("apply", "-f", "-", stdin=a_pod_text(name, namespace=namespace, spec=spec))
    assert refused.code == 1
    assert refused.errors[0].startswith(f"error: standard input: Pod {namespace}/{name}: spec.priorityClassName: ")
    apply(rayched, a_priority_class(name, 1000))
    apply(rayched, a_pod_text(name, namespace=namespace, spec=spec))
    assert rayched.running(name, namespace).spec.priority == 1000
    rayched.ok("delete", "priorityclass", name)


@pytest.mark.row("K9.3")
def test_deleting_a_class_keeps_its_pods_and_refuses_new_ones(rayched: Commands, namespace: str, name: str) -> None:
    apply(rayched, a_priority_class(name, 1000))
    spec = f"priorityClassName: {name}"
    apply(rayched, a_pod_text(f"{name}-old", namespace=namespace, spec=spec))
    old = rayched.running(f"{name}-old", namespace)
    rayched.ok("delete", "priorityclass", name)
    with rayched.nothing_changes():
        refused = rayched("apply", "-f", "-", stdin=a_pod_text(f"{name}-new", namespace=namespace, spec=spec))
    assert "spec.priorityClassName" in refused.errors[0]
    assert same(rayched.pod(f"{name}-old", namespace), old)


def same(pod: Pod, other: Pod) -> bool:
    return (pod.metadata.uid, pod.spec, pod.status.phase) == (other.metadata.uid, other.spec, other.status.phase)


def a_priority_class(name: str, value: int) -> str:
    return f"{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}}}"
