"""Which changes of a stored object are allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rayched.api.defaulting import default
from rayched.api.manifest import read_text
from rayched.api.validation import validate, validate_update
from rayched.v1.core_pb2 import Node, Pod, Service
from rayched.v1.workloads_pb2 import Job, JobSpec, PriorityClass, ReplicaSet, RuntimeClass, StatefulSet

Change = Callable[[Any], Any]
REQUIRED = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"

POD = """
apiVersion: v1
kind: Pod
metadata: {name: a, uid: u1, labels: {x: y}}
spec:
  containers: [{name: c, image: "web:1", resources: {requests: {cpu: 1}}}]
  nodeSelector: {disk: ssd}
  activeDeadlineSeconds: 100
  tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]
"""


def a_pod(gated: bool = False) -> Pod:
    pod: Pod = read_text(POD, "test")[0].object.pod
    default(pod)
    if gated:
        pod.spec.scheduling_gates.add(name="g1")
        pod.spec.scheduling_gates.add(name="g2")
    assert validate(pod) == []
    return pod


def node_terms(pod: Pod) -> Any:
    return pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms


def paths(old: Any, change: Change) -> list[str]:
    new = type(old)()
    new.CopyFrom(old)
    change(new)
    return [error.path for error in validate_update(old, new)]


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: None,
        lambda pod: pod.metadata.labels.update({"x": "z", "new": "1"}),
        lambda pod: pod.metadata.annotations.update({"x": "z"}),
        lambda pod: setattr(pod.spec.containers[0], "image", "web:2"),
        lambda pod: setattr(pod.spec, "active_deadline_seconds", 50),
        lambda pod: pod.spec.tolerations.add(key="b", operator="Exists"),
        lambda pod: setattr(pod.spec.tolerations[0], "toleration_seconds", 50),
        lambda pod: pod.metadata.ClearField("uid"),
        lambda pod: setattr(pod.status, "phase", "Running"),
    ],
)
def test_what_may_change_of_a_pod(change: Change) -> None:
    assert paths(a_pod(), change) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda pod: setattr(pod.metadata, "name", "b"), "metadata.name"),
        (lambda pod: setattr(pod.metadata, "namespace", "b"), "metadata.namespace"),
        (lambda pod: setattr(pod.metadata, "uid", "u2"), "metadata.uid"),
        (lambda pod: setattr(pod.spec, "node_name", "n"), "spec.nodeName"),
        (lambda pod: setattr(pod.spec, "host_network", True), "spec.hostNetwork"),
        (lambda pod: setattr(pod.spec, "priority", 0), "spec.priority"),
        (lambda pod: setattr(pod.spec.containers[0], "name", "d"), "spec.containers"),
        (lambda pod: setattr(pod.spec.containers[0].resources.requests["cpu"], "string", "2"), "spec.containers"),
        (lambda pod: pod.spec.containers.add(name="d"), "spec.containers"),
        (lambda pod: pod.spec.node_selector.update({"disk": "hdd"}), "spec.nodeSelector"),
        (lambda pod: setattr(pod.spec, "active_deadline_seconds", 500), "spec.activeDeadlineSeconds"),
        (lambda pod: pod.spec.ClearField("active_deadline_seconds"), "spec.activeDeadlineSeconds"),
        (lambda pod: pod.spec.ClearField("tolerations"), "spec.tolerations[0]"),
        (lambda pod: setattr(pod.spec.tolerations[0], "key", "z"), "spec.tolerations[0]"),
        (lambda pod: pod.spec.scheduling_gates.add(name="late"), "spec.schedulingGates[0].name"),
        (lambda pod: pod.spec.ClearField("affinity"), "spec.affinity"),
        (lambda pod: pod.metadata.creation_timestamp.FromSeconds(5), "metadata.creationTimestamp"),
    ],
)
def test_what_may_not_change_of_a_pod(change: Change, path: str) -> None:
    assert paths(a_pod(), change) == [path]


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod.spec.scheduling_gates.pop(),
        lambda pod: pod.spec.ClearField("scheduling_gates"),
        lambda pod: pod.spec.node_selector.update({"zone": "a"}),
        lambda pod: node_terms(pod)[0].match_expressions.add(key="gpu", operator="Exists"),
        lambda pod: node_terms(pod)[0].match_fields.add(key="metadata.name", operator="In", values=["n"]),
    ],
)
def test_a_gated_pod_may_lose_gates_and_get_narrower(change: Change) -> None:
    assert paths(a_pod(gated=True), change) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda pod: pod.spec.scheduling_gates.add(name="late"), "spec.schedulingGates[2].name"),
        (lambda pod: pod.spec.node_selector.update({"disk": "hdd"}), 'spec.nodeSelector["disk"]'),
        (lambda pod: pod.spec.node_selector.clear(), 'spec.nodeSelector["disk"]'),
        (lambda pod: node_terms(pod).add(), REQUIRED),
        (lambda pod: pod.spec.ClearField("affinity"), REQUIRED),
        (lambda pod: setattr(node_terms(pod)[0].match_expressions[0], "key", "z"), f"{REQUIRED}[0]"),
        (lambda pod: setattr(pod.spec, "node_name", "n"), "spec.nodeName"),
    ],
)
def test_a_gated_pod_may_not_get_wider(change: Change, path: str) -> None:
    assert paths(a_pod(gated=True), change) == [path]


def test_a_term_that_matches_nothing_stays_as_it_is() -> None:
    pod = a_pod(gated=True)
    node_terms(pod)[0].ClearField("match_expressions")

    def match_something(pod: Pod) -> None:
        node_terms(pod)[0].match_expressions.add(key="zone", operator="Exists")

    assert paths(pod, match_something) == [f"{REQUIRED}[0]"]


def test_a_gated_pod_without_node_affinity_may_get_one() -> None:
    pod = a_pod(gated=True)
    pod.spec.ClearField("affinity")
    assert paths(pod, lambda new: node_terms(new).add()) == []


A_JOB = Job(spec={"completions": 3, "parallelism": 3, "completion_mode": "Indexed"})


@pytest.mark.parametrize(
    ("old", "change", "path"),
    [
        (PriorityClass(value=5), lambda new: setattr(new, "value", 6), "value"),
        (PriorityClass(preemption_policy="Never"), lambda new: new.ClearField("preemption_policy"), "preemptionPolicy"),
        (RuntimeClass(handler="a"), lambda new: setattr(new, "handler", "b"), "handler"),
        (ReplicaSet(), lambda new: new.spec.selector.match_labels.update({"a": "b"}), "spec.selector"),
        (StatefulSet(), lambda new: setattr(new.spec, "service_name", "s"), "spec.serviceName"),
        (StatefulSet(), lambda new: setattr(new.spec, "pod_management_policy", "Parallel"), "spec.podManagementPolicy"),
        (Node(spec={"pod_cidr": "10.0.0.0/24"}), lambda new: setattr(new.spec, "pod_cidr", "10.0.1.0/24"), "spec.podCIDR"),
        (Node(spec={"provider_id": "a"}), lambda new: setattr(new.spec, "provider_id", "b"), "spec.providerID"),
        (Job(), lambda new: setattr(new.spec, "completions", 2), "spec.completions"),
        (A_JOB, lambda new: setattr(new.spec, "completions", 5), "spec.completions"),
        (A_JOB, lambda new: new.spec.ClearField("completions"), "spec.completions"),
        (A_JOB, lambda new: setattr(new.spec, "completion_mode", "NonIndexed"), "spec.completionMode"),
        (A_JOB, lambda new: new.spec.template.metadata.labels.update({"a": "b"}), "spec.template"),
        (A_JOB, lambda new: new.spec.selector.match_labels.update({"a": "b"}), "spec.selector"),
        (Service(spec={"cluster_ip": "10.0.0.1"}), lambda new: setattr(new.spec, "cluster_ip", "10.0.0.2"), "spec.clusterIP"),
    ],
)
def test_what_may_not_change_of_other_kinds(old: Any, change: Change, path: str) -> None:
    assert paths(old, change) == [path]


@pytest.mark.parametrize(
    ("old", "change"),
    [
        (PriorityClass(value=5), lambda new: setattr(new, "description", "d")),
        (Node(), lambda new: new.spec.taints.add(key="a", effect="NoSchedule")),
        (Node(), lambda new: setattr(new.spec, "pod_cidr", "10.0.1.0/24")),
        (StatefulSet(), lambda new: setattr(new.spec, "replicas", 3)),
        (StatefulSet(), lambda new: new.spec.template.metadata.labels.update({"a": "b"})),
        (ReplicaSet(), lambda new: setattr(new.spec, "replicas", 3)),
        (A_JOB, lambda new: setattr(new.spec, "parallelism", 9)),
        (A_JOB, lambda new: setattr(new.spec, "suspend", True)),
        (A_JOB, lambda new: new.spec.MergeFrom(JobSpec(completions=7, parallelism=7))),
    ],
)
def test_what_may_change_of_other_kinds(old: Any, change: Change) -> None:
    assert paths(old, change) == []


def test_an_object_does_not_become_another_kind() -> None:
    errors = validate_update(Pod(), Node())
    assert [str(error) for error in errors] == ['kind: cannot be changed from "Pod" to "Node"']
