"""What is filled in where a manifest is silent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from rayched.api import kinds
from rayched.api.defaulting import default
from rayched.api.manifest import read_object
from rayched.api.validation import validate
from rayched.v1.core_pb2 import Pod
from tests.api.random_objects import SEEDS, random_object


def a_pod(**spec: Any) -> Pod:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}}
    pod: Pod = read_object(document).object.pod
    default(pod)
    return pod


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def texts(amounts: Any) -> dict[str, str]:
    return {name: amount.string for name, amount in amounts.items()}


def test_a_pod_gets_the_defaults_of_kubernetes() -> None:
    pod = a_pod()
    spec = pod.spec
    assert (pod.metadata.namespace, pod.status.phase) == ("default", "Pending")
    assert (spec.restart_policy, spec.scheduler_name, spec.dns_policy) == ("Always", "default-scheduler", "ClusterFirst")
    assert (spec.termination_grace_period_seconds, spec.enable_service_links) == (30, True)


def test_an_object_says_its_kind_and_the_status_of_a_container_gets_no_resources_that_it_had_not() -> None:
    pod = Pod()
    pod.status.container_statuses.add(name="c")
    default(pod)
    assert (pod.api_version, pod.kind) == ("v1", "Pod")
    assert not pod.status.container_statuses[0].HasField("resources")


def test_what_is_said_is_kept() -> None:
    spec = a_pod(restartPolicy="Never", schedulerName="mine", terminationGracePeriodSeconds=0, enableServiceLinks=False).spec
    assert (spec.restart_policy, spec.scheduler_name) == ("Never", "mine")
    assert (spec.termination_grace_period_seconds, spec.enable_service_links) == (0, False)


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("web", "Always"),
        ("web:latest", "Always"),
        ("web:1", "IfNotPresent"),
        ("host:5000/web", "Always"),
        ("host:5000/web:1", "IfNotPresent"),
        ("web@sha256:abc", "IfNotPresent"),
        ("", ""),
    ],
)
def test_the_tag_of_an_image_decides_when_it_is_pulled(image: str, policy: str) -> None:
    assert a_pod(containers=[container(image=image)]).spec.containers[0].image_pull_policy == policy


def test_limits_become_requests_where_those_are_missing() -> None:
    pod = a_pod(containers=[container({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"})], initContainers=[container({}, {"cpu": "3"})])
    assert texts(pod.spec.containers[0].resources.requests) == {"cpu": "1", "memory": "1Gi"}
    assert texts(pod.spec.init_containers[0].resources.requests) == {"cpu": "3"}


def test_ports_are_tcp_and_those_of_the_hosts_network_are_host_ports() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]
    own = a_pod(containers=[container(ports=ports)]).spec.containers[0].ports
    assert [(port.protocol, port.host_port) for port in own] == [("TCP", 0), ("UDP", 0)]
    shared = a_pod(hostNetwork=True, containers=[container(ports=ports)]).spec.containers[0].ports
    assert [(port.protocol, port.host_port) for port in shared] == [("TCP", 80), ("UDP", 53)]


@pytest.mark.parametrize(
    ("own", "requests"),
    [
        ({"limits": {"cpu": "4", "memory": "4Gi"}}, {"cpu": "1500m", "memory": "4Gi"}),
        ({"limits": {"memory": "4Gi"}, "requests": {"cpu": "3"}}, {"cpu": "3", "memory": "4Gi"}),
        ({"requests": {"cpu": "3"}}, {"cpu": "3"}),
        ({"requests": {"memory": "1Gi"}}, {"memory": "1Gi"}),
    ],
)
def test_a_pod_with_limits_of_its_own_requests_what_its_containers_do_and_else_its_limits(own: Any, requests: Any) -> None:
    pod = a_pod(resources=own, containers=[container({"cpu": "1"}), {**container({"cpu": "0.5"}), "name": "d"}])
    assert texts(pod.spec.resources.requests) == requests


def test_huge_pages_of_containers_become_a_limit_of_the_pod() -> None:
    pod = a_pod(resources={"requests": {"cpu": "1"}}, containers=[container({}, {"hugepages-2Mi": "4Mi"})])
    assert texts(pod.spec.resources.limits) == {"hugepages-2Mi": "4Mi"}
    assert texts(pod.spec.resources.requests) == {"cpu": "1", "hugepages-2Mi": "4Mi"}


def test_amounts_finer_than_a_thousandth_are_rounded_up_and_all_others_kept_as_written() -> None:
    pod = a_pod(
        containers=[container({"cpu": "1n", "memory": "1.0005", "ephemeral-storage": "01.50Gi"})], overhead={"cpu": "0.00001"}
    )
    assert texts(pod.spec.containers[0].resources.requests) == {"cpu": "1m", "memory": "1001m", "ephemeral-storage": "01.50Gi"}
    assert texts(pod.spec.overhead) == {"cpu": "1m"}


def test_what_a_status_says_of_containers_is_rounded_as_their_own_amounts_are() -> None:
    pod = a_pod()
    for found in (pod.status.container_statuses.add(name="c"), pod.status.init_container_statuses.add(name="i")):
        found.allocated_resources["cpu"].string = "1n"
        found.resources.limits["cpu"].string = "1.0005"
        found.resources.requests["cpu"].string = "0.0001"
    pod.status.container_statuses.add(name="bare")
    default(pod)
    for found in (pod.status.container_statuses[0], pod.status.init_container_statuses[0]):
        assert texts(found.allocated_resources) == {"cpu": "1m"}
        assert (texts(found.resources.limits), texts(found.resources.requests)) == ({"cpu": "1001m"}, {"cpu": "1m"})
    assert not pod.status.container_statuses[1].HasField("resources")


def test_a_spread_constraint_is_hard_unless_it_says_otherwise() -> None:
    (constraint,) = a_pod(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone"}]).spec.topology_spread_constraints
    assert constraint.when_unsatisfiable == "DoNotSchedule"


def read(document: dict[str, Any]) -> Any:
    message = kinds.unwrap(read_object(document).object)
    default(message)
    return message


def test_a_node_can_allocate_its_capacity_unless_it_says_otherwise() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    assert texts(read({**node, "status": {"capacity": {"cpu": 4}}}).status.allocatable) == {"cpu": "4"}
    assert texts(read({**node, "status": {"capacity": {"cpu": 4}, "allocatable": {"cpu": 3}}}).status.allocatable) == {"cpu": "3"}


def test_a_namespace_carries_its_name_as_a_label() -> None:
    namespace = read({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}})
    assert dict(namespace.metadata.labels) == {"kubernetes.io/metadata.name": "prod"}
    assert (namespace.status.phase, namespace.metadata.namespace) == ("Active", "")


def test_controllers_and_classes_get_their_defaults() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    controller = read({"apiVersion": "v1", "kind": "ReplicationController", "spec": {"template": template}})
    assert (dict(controller.spec.selector), dict(controller.metadata.labels)) == ({"a": "b"}, {"a": "b"})
    assert (controller.spec.replicas, controller.spec.template.spec.restart_policy) == (1, "Always")
    stateful_set = read({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 0}})
    assert (stateful_set.spec.replicas, stateful_set.spec.pod_management_policy) == (0, "OrderedReady")
    assert read({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {}}).spec.replicas == 1
    assert read({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}).preemption_policy == "PreemptLowerPriority"
    job = read({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"}, "spec": {"template": template}})
    assert (job.spec.completions, job.spec.parallelism, job.spec.backoff_limit) == (1, 1, 6)
    assert (job.spec.completion_mode, job.spec.suspend, job.spec.pod_replacement_policy) == (
        "NonIndexed",
        False,
        "TerminatingOrFailed",
    )
    assert dict(job.metadata.labels) == {"a": "b"}
    assert dict(job.spec.selector.match_labels) == {"batch.kubernetes.io/controller-uid": "u"}
    assert dict(job.spec.template.metadata.labels) == {
        "a": "b",
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u",
        "job-name": "j",
    }
    pool = read({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 3, "template": template}})
    assert (pool.spec.HasField("completions"), pool.spec.parallelism) == (False, 3)
    by_hand = read({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"uid": "u"}, "spec": {"manualSelector": True}})
    assert not by_hand.spec.HasField("selector")
    service = read({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}})
    assert (service.spec.type, service.spec.ports[0].protocol, service.spec.ports[0].target_port.int_value) == (
        "ClusterIP",
        "TCP",
        80,
    )


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_defaulting_twice_is_defaulting_once(seed: int) -> None:
    message = kinds.unwrap(random_object(seed))
    default(message)
    once = message.SerializeToString(deterministic=True)
    default(message)
    assert message.SerializeToString(deterministic=True) == once


@pytest.mark.parametrize("text", ["16Ei", "1e30", "9223372036854775808"])
def test_an_amount_beyond_the_largest_quantity_is_capped_and_allowed(text: str) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"memory": text}}}]},
    }
    pod = kinds.unwrap(read_object(document).object)
    default(pod)
    assert isinstance(pod, Pod)
    assert pod.spec.containers[0].resources.requests["memory"].string == "9223372036854775807"
    assert validate(pod) == []
