"""Which updates are which events."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.api.node_difference import node_difference
from rayched.queue.changes import is_pod_updated, node_change_events, pod_change_events
from rayched.v1.core_pb2 import Node, Pod
from tests.queue.manifests import node_of, pod_of

POD: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 1,
        "labels": {"app": "web"},
    },
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "schedulingGates": [{"name": "g"}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
}
NODE: dict[str, Any] = {
    "metadata": {"name": "n", "labels": {"zone": "a"}, "annotations": {"x": "1"}},
    "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"cpu": "4", "memory": "1Gi"},
        "capacity": {"cpu": "8"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2024-01-01T00:00:00Z"}],
    },
}


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return manifest | {first: changed(manifest.get(first, {}), rest, value) if rest else value}


@pytest.mark.row("Q49")
@pytest.mark.parametrize(
    ("path", "value", "counts"),
    [
        ("metadata.resourceVersion", "2", False),
        ("metadata.generation", 2, False),
        ("metadata.finalizers", ["f"], False),
        ("status.conditions", [{"type": "PodScheduled", "status": "False"}], False),
        ("status.nominatedNodeName", "n1", False),
        ("metadata.labels", {"app": "db"}, True),
        ("metadata.annotations", {"x": "y"}, True),
        ("spec.schedulingGates", [], True),
        ("spec.nodeSelector", {"disk": "ssd"}, True),
    ],
)
def test_what_the_system_writes_is_no_update(path: str, value: Any, counts: bool) -> None:
    assert is_pod_updated(pod_of(POD), pod_of(changed(POD, path, value))) is counts


def test_a_pod_is_no_update_of_itself() -> None:
    pod = pod_of(POD)
    assert not is_pod_updated(pod, pod)
    assert not is_pod_updated(pod, pod_of(POD))


def pod_labels(old: Pod, new: Pod) -> list[str]:
    return [event.label for event in pod_change_events(old, new)]


@pytest.mark.parametrize(
    ("path", "value", "labels"),
    [
        ("metadata.labels", {"app": "db"}, ["UnschedulablePodUpdatePodLabel"]),
        ("metadata.annotations", {"x": "y"}, ["UnschedulablePodUpdate"]),
        ("spec.tolerations", [], ["UnschedulablePodUpdatePodToleration"]),
        ("spec.tolerations", [{"key": "other", "operator": "Exists"}], ["UnschedulablePodUpdate"]),
        ("spec.schedulingGates", [], ["UnschedulablePodUpdatePodSchedulingGatesEliminated"]),
        ("spec.schedulingGates", [{"name": "h"}], ["UnschedulablePodUpdate"]),
        ("status.phase", "Pending", ["UnschedulablePodUpdate"]),
    ],
)
def test_a_pods_update_is_named_by_what_it_changes(path: str, value: Any, labels: list[str]) -> None:
    assert pod_labels(pod_of(POD), pod_of(changed(POD, path, value))) == labels


@pytest.mark.row("Q56")
@pytest.mark.parametrize(
    ("requests", "down"),
    [
        ({"cpu": "500m", "memory": "1Gi"}, True),
        ({"cpu": "1000m", "memory": "1Gi"}, False),
        ({"cpu": "1"}, True),
        ({"cpu": "2", "memory": "512Mi"}, True),
        ({"cpu": "2", "memory": "2Gi"}, False),
    ],
)
def test_asking_for_less_of_anything_is_a_scale_down(requests: dict[str, str], down: bool) -> None:
    smaller = changed(POD, "spec.containers", [{"name": "c", "resources": {"requests": requests}}])
    on_a_node = changed(smaller, "spec.nodeName", "n1")
    assert pod_labels(pod_of(POD), pod_of(smaller)) == ["UnschedulablePodUpdate" + "PodScaleDown" * down]
    assert pod_labels(pod_of(changed(POD, "spec.nodeName", "n1")), pod_of(on_a_node)) == [
        "AssignedPodUpdate" + "PodScaleDown" * down
    ]


@pytest.mark.parametrize(("before", "now", "down"), [("3", "2", True), ("2", "3", False), ("3", "3", False)])
def test_a_container_that_is_seen_to_have_less_is_a_scale_down_too(before: str, now: str, down: bool) -> None:
    def having(cpu: str) -> Pod:
        return pod_of(changed(POD, "status.containerStatuses", [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]))

    assert ("UnschedulablePodUpdatePodScaleDown" in pod_labels(having(before), having(now))) is down


def test_a_pod_that_changes_in_several_ways_gives_an_event_for_each() -> None:
    new = changed(changed(POD, "metadata.labels", {}), "spec.tolerations", [])
    assert pod_labels(pod_of(POD), pod_of(new)) == ["UnschedulablePodUpdatePodLabel", "UnschedulablePodUpdatePodToleration"]


def node_labels(old: Node, new: Node) -> list[str]:
    return [event.label for event in node_change_events(node_difference(old, new))]


@pytest.mark.parametrize(
    ("path", "value", "labels"),
    [
        ("spec.unschedulable", False, ["NodeUpdateNodeTaint"]),
        ("status.allocatable", {"cpu": "5", "memory": "1Gi"}, ["NodeUpdateNodeAllocatable"]),
        ("status.allocatable", {"cpu": "4"}, ["NodeUpdateNodeAllocatable"]),
        ("status.allocatable", {"cpu": "4000m", "memory": "1024Mi"}, []),
        ("status.capacity", {"cpu": "16"}, []),
        ("metadata.labels", {"zone": "b"}, ["NodeUpdateNodeLabel"]),
        ("metadata.annotations", {}, ["NodeUpdateNodeAnnotation"]),
        ("spec.taints", [], ["NodeUpdateNodeTaint"]),
        ("status.conditions", [{"type": "Ready", "status": "False"}], ["NodeUpdateNodeCondition"]),
        ("status.conditions", [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2025-01-01T00:00:00Z"}], []),
    ],
)
def test_a_nodes_update_is_named_by_what_it_changes(path: str, value: Any, labels: list[str]) -> None:
    assert node_labels(node_of(NODE), node_of(changed(NODE, path, value))) == labels


def test_cordoning_a_node_helps_nobody_and_is_no_event() -> None:
    uncordoned = changed(NODE, "spec.unschedulable", False)
    assert node_labels(node_of(uncordoned), node_of(NODE)) == []


def test_a_node_that_is_uncordoned_and_loses_its_taints_gives_two_events() -> None:
    new = changed(changed(NODE, "spec.unschedulable", False), "spec.taints", [])
    assert node_labels(node_of(NODE), node_of(new)) == ["NodeUpdateNodeTaint", "NodeUpdateNodeTaint"]
