"""Objects applied, read, labelled and deleted over real gRPC and etcd."""

from __future__ import annotations

import pytest

from rayched.api.kinds import wrap
from rayched.api.manifest import read_object, write_object
from rayched.client import ApiError, Client
from rayched.v1.core_pb2 import Node, Pod, Service
from rayched.v1.services_pb2 import ApplyResponse, PodStatusUpdate
from rayched.v1.workloads_pb2 import PodDisruptionBudget, ReplicaSet, StatefulSet
from tests.server.objects import a_namespace, a_node, a_pod, a_priority_class, a_runtime_class

pytestmark = pytest.mark.cluster


def code_of(caught: pytest.ExceptionInfo[ApiError]) -> str:
    return str(caught.value.code.name)


def pod_of(client: Client, name: str) -> Pod:
    found = client.get("pods", name)
    assert isinstance(found, Pod)
    return found


# ------------------------------------------------------------------------------------------------------------------ apply


def test_apply_creates_then_changes_nothing_then_configures(client: Client, name: str) -> None:
    pod = a_pod(name, labels={"app": "web"})
    created = client.apply(pod)
    again = client.apply(pod)
    pod.metadata.labels["app"] = "db"
    changed = client.apply(pod)
    assert [one.action for one in (created, again, changed)] == [
        ApplyResponse.CREATED,
        ApplyResponse.UNCHANGED,
        ApplyResponse.CONFIGURED,
    ]
    assert again.revision == created.revision < changed.revision
    assert pod_of(client, name).metadata.labels == {"app": "db"}
    assert changed.object.pod.metadata.generation == 1


def objects_of_all_kinds(name: str) -> list[object]:
    service = Service()
    service.metadata.name = name
    service.spec.selector["app"] = name
    service.spec.ports.add(port=80)
    budget = PodDisruptionBudget()
    budget.metadata.name = name
    budget.spec.min_available.string_value = "50%"
    budget.spec.selector.match_labels["app"] = name
    replica_set, stateful_set = ReplicaSet(), StatefulSet()
    for owner in (replica_set, stateful_set):
        owner.metadata.name = name
        owner.spec.selector.match_labels["app"] = name
        owner.spec.template.metadata.labels["app"] = name
        owner.spec.template.spec.containers.add(name="main", image="nginx")
    stateful_set.spec.service_name = name
    pod = a_pod(name, labels={"app": name, "pod-template-hash": "abc"})
    pod.spec.priority_class_name, pod.spec.runtime_class_name = name, name
    spread = pod.spec.topology_spread_constraints.add(max_skew=1, topology_key="zone", match_label_keys=["pod-template-hash"])
    spread.label_selector.match_labels["app"] = name
    runtime_class = a_runtime_class(name, cpu="250m")
    runtime_class.scheduling.node_selector["runtime"] = "fast"
    runtime_class.scheduling.tolerations.add(key="runtime", operator="Exists", effect="NoSchedule")
    # The pod comes last: it refers to the classes.
    others = [
        a_namespace(name),
        a_node(name),
        a_priority_class(name, 9),
        runtime_class,
        service,
        budget,
        replica_set,
        stateful_set,
    ]
    return [*others, pod]


def test_a_manifest_applied_again_and_one_that_get_gave_change_nothing(client: Client, name: str) -> None:
    for manifest in objects_of_all_kinds(name):
        kind = type(manifest).__name__
        assert client.apply(manifest).action == ApplyResponse.CREATED, kind  # type: ignore[arg-type]
        assert client.apply(manifest).action == ApplyResponse.UNCHANGED, kind  # type: ignore[arg-type]
        stored = client.get(kind, name)
        assert client.apply(stored).action == ApplyResponse.UNCHANGED, kind
        written = read_object(write_object(wrap(stored))).object
        assert client.apply(written).action == ApplyResponse.UNCHANGED, kind


def test_apply_keeps_what_others_own(client: Client, name: str) -> None:
    pod = a_pod(name, node="node-1")
    client.apply(pod)
    uid = pod_of(client, name).metadata.uid
    update = PodStatusUpdate(namespace="default", name=name, uid=uid)
    update.status.phase = "Running"
    assert client.update_pod_statuses([update]) == (None,)
    without_node = a_pod(name, labels={"a": "b"})
    assert client.apply(without_node).action == ApplyResponse.CONFIGURED
    stored = pod_of(client, name)
    assert (stored.status.phase, stored.spec.node_name, stored.metadata.uid) == ("Running", "node-1", uid)


def test_apply_of_a_node_keeps_the_times_of_taints_and_those_that_the_leader_set(client: Client, name: str) -> None:
    node = a_node(name)
    node.spec.taints.add(key="dedicated", effect="NoExecute")
    client.apply(node)
    stored = client.get("nodes", name)
    assert isinstance(stored, Node)
    stored.spec.taints[0].time_added.seconds = 77
    stored.spec.taints.add(key="node.kubernetes.io/unreachable", effect="NoExecute").time_added.seconds = 88
    stored.spec.taints.add(key="old", effect="NoSchedule")
    client.apply(stored)
    assert client.apply(node).action == ApplyResponse.CONFIGURED
    assert client.apply(node).action == ApplyResponse.UNCHANGED
    found = client.get("nodes", name)
    assert isinstance(found, Node)
    assert [(taint.key, taint.time_added.seconds) for taint in found.spec.taints] == [
        ("dedicated", 77),
        ("node.kubernetes.io/unreachable", 88),
    ]


def test_apply_refuses_what_may_not_change_with_its_path(client: Client, name: str) -> None:
    client.apply(a_pod(name))
    with pytest.raises(ApiError) as caught:
        client.apply(a_pod(name, cpu="2"))
    assert code_of(caught) == "INVALID_ARGUMENT"
    assert all(violation.field.startswith("spec.containers") for violation in caught.value.violations)
    client.apply(a_priority_class(name, 5))
    with pytest.raises(ApiError) as caught:
        client.apply(a_priority_class(name, 6))
    assert [violation.field for violation in caught.value.violations] == ["value"]


def test_apply_may_take_gates_away_and_change_images(client: Client, name: str) -> None:
    pod = a_pod(name)
    pod.spec.scheduling_gates.add(name="example.com/wait")
    client.apply(pod)
    del pod.spec.scheduling_gates[:]
    pod.spec.containers[0].image = "nginx:2"
    assert client.apply(pod).object.pod.metadata.generation == 2
    pod.spec.scheduling_gates.add(name="example.com/wait")
    with pytest.raises(ApiError):
        client.apply(pod)


def test_apply_with_a_resource_version_or_uid_is_for_that_object_only(client: Client, name: str) -> None:
    client.apply(a_pod(name))
    stored = pod_of(client, name)
    client.label("pods", name, add={"changed": "meanwhile"})
    stored.metadata.labels["mine"] = "too"
    with pytest.raises(ApiError) as caught:
        client.apply(stored)
    assert code_of(caught) == "ABORTED"
    stored.metadata.resource_version = ""
    stored.metadata.uid = "another"
    with pytest.raises(ApiError) as caught:
        client.apply(stored)
    assert code_of(caught) == "ABORTED"
    stored.metadata.name, stored.metadata.resource_version = f"{name}-2", "5"
    with pytest.raises(ApiError) as caught:
        client.apply(stored)
    assert code_of(caught) == "NOT_FOUND"


def test_apply_of_a_node_keeps_labels_and_taints_it_does_not_mention(client: Client, name: str) -> None:
    client.apply(a_node(name, labels={"zone": "a"}))
    client.label("nodes", name, add={"disk": "ssd"})
    client.cordon(name)
    client.apply(a_node(name, labels={"zone": "b"}, cpu="8"))
    node = client.get("nodes", name)
    assert isinstance(node, Node)
    assert node.metadata.labels == {"zone": "b", "disk": "ssd"}
    assert (node.spec.unschedulable, node.status.allocatable["cpu"].string) == (True, "8")


# ----------------------------------------------------------------------------------------------------------------- delete


def test_a_pod_without_a_node_goes_at_once(client: Client, name: str) -> None:
    client.submit(a_pod(name))
    deleted = client.delete("pods", name)
    assert deleted.object.pod.metadata.name == name
    with pytest.raises(ApiError) as caught:
        client.get("pods", name)
    assert (code_of(caught), caught.value.message) == ("NOT_FOUND", f"Pod default/{name} not found")


@pytest.mark.row("K11.4")
def test_a_bound_pod_is_marked_and_goes_when_its_agent_has_stopped_it(client: Client, name: str) -> None:
    submitted = client.submit(a_pod(name, node="node-1"))
    start = submitted.revision + 1
    marked = client.delete("pods", name, grace_period_seconds=20).object.pod
    assert marked.metadata.deletion_grace_period_seconds == 20
    assert marked.metadata.deletion_timestamp.seconds == pytest.approx(marked.metadata.creation_timestamp.seconds + 20, abs=3)
    assert client.delete("pods", name).object.pod == marked, "a longer grace period changes nothing"
    shorter = client.delete("pods", name, grace_period_seconds=5).object.pod
    assert marked.metadata.deletion_timestamp.seconds - shorter.metadata.deletion_timestamp.seconds == 15
    update = PodStatusUpdate(namespace="default", name=name, uid=submitted.uid, remove=True)
    assert client.update_pod_statuses([update, update]) == (None, None)
    with client.watch("pods", field_selector=f"metadata.name={name}", start_revision=start) as stream:
        assert [next(stream).type.name for _ in range(3)] == ["MODIFIED", "MODIFIED", "DELETED"]


def test_grace_zero_and_the_end_of_a_pod_remove_it_at_once(client: Client, name: str) -> None:
    client.submit(a_pod(name, node="node-1"))
    client.delete("pods", name, grace_period_seconds=0)
    second = client.submit(a_pod(name, node="node-1"))
    update = PodStatusUpdate(namespace="default", name=name, uid=second.uid)
    update.status.phase = "Succeeded"
    client.update_pod_statuses([update])
    client.delete("pods", name)
    assert name not in {pod.metadata.name for pod in client.list("pods")}


def test_a_uid_keeps_another_object_of_that_name_alive(client: Client, name: str) -> None:
    client.submit(a_pod(name))
    with pytest.raises(ApiError) as caught:
        client.delete("pods", name, uid="of-another")
    assert code_of(caught) == "ABORTED"
    client.delete("pods", name, uid=pod_of(client, name).metadata.uid)


def test_a_namespace_goes_when_it_is_empty(client: Client, name: str) -> None:
    client.submit(a_namespace(name))
    client.submit_many([a_pod(f"pod-{i}", namespace=name) for i in range(3)])
    with pytest.raises(ApiError) as caught:
        client.delete("namespaces", name)
    assert (code_of(caught), caught.value.message) == (
        "FAILED_PRECONDITION",
        f"Namespace {name}: is not empty, delete its 3 pods first",
    )
    for i in range(2):
        client.delete("pods", f"pod-{i}", name)
    with pytest.raises(ApiError, match="delete its 1 pod first"):
        client.delete("namespaces", name)
    client.delete("pods", "pod-2", name)
    client.delete("namespaces", name)
    with pytest.raises(ApiError) as caught:
        client.submit(a_pod("late", namespace=name))
    assert code_of(caught) == "NOT_FOUND"
    for system in ("default", "kube-system"):
        with pytest.raises(ApiError) as caught:
            client.delete("namespaces", system)
        assert code_of(caught) == "FAILED_PRECONDITION"
