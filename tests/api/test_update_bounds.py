"""The bounds of what may change of a stored object: what is equal, what was not set, what stands in a second place."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.v1.core_pb2 import Node, Pod, Service
from rayched.v1.workloads_pb2 import StatefulSet
from tests.api.test_updates import REQUIRED, Change, a_pod, node_terms, paths


def without_deadline() -> Pod:
    pod = a_pod()
    pod.spec.ClearField("active_deadline_seconds")
    return pod


def with_init_container() -> Pod:
    pod = a_pod()
    pod.spec.init_containers.add(name="i", image="init:1")
    return pod


def of_generation(number: int) -> Pod:
    pod = a_pod()
    pod.metadata.generation = number
    pod.metadata.creation_timestamp.FromSeconds(5)
    pod.metadata.deletion_timestamp.FromSeconds(9)
    return pod


@pytest.mark.parametrize(
    ("old", "change", "found"),
    [
        (without_deadline(), lambda pod: setattr(pod.spec, "active_deadline_seconds", 500), []),
        (a_pod(), lambda pod: setattr(pod.spec, "active_deadline_seconds", 101), ["spec.activeDeadlineSeconds"]),
        (a_pod(), lambda pod: setattr(pod.spec, "active_deadline_seconds", 99), []),
        (with_init_container(), lambda pod: setattr(pod.spec.init_containers[0], "image", "init:2"), []),
        (with_init_container(), lambda pod: setattr(pod.spec.init_containers[0], "name", "j"), ["spec.initContainers"]),
        (with_init_container(), lambda pod: pod.spec.ClearField("init_containers"), ["spec.initContainers"]),
        (of_generation(3), lambda pod: setattr(pod.metadata, "generation", 2), ["metadata.generation"]),
        (of_generation(3), lambda pod: setattr(pod.metadata, "generation", 4), []),
        (of_generation(3), lambda pod: setattr(pod.metadata, "generation", 0), []),
        (of_generation(3), lambda pod: pod.metadata.creation_timestamp.FromSeconds(6), ["metadata.creationTimestamp"]),
        (of_generation(3), lambda pod: pod.metadata.deletion_timestamp.FromSeconds(6), ["metadata.deletionTimestamp"]),
        (of_generation(3), lambda pod: pod.metadata.ClearField("deletion_timestamp"), []),
        (a_pod(), lambda pod: setattr(pod.spec.tolerations[0], "effect", "NoSchedule"), ["spec.tolerations[0]"]),
        (a_pod(), lambda pod: setattr(pod.spec.tolerations[0], "operator", "Equal"), ["spec.tolerations[0]"]),
        (a_pod(), lambda pod: setattr(pod.spec.tolerations[0], "value", "x"), ["spec.tolerations[0]"]),
        (a_pod(), lambda pod: pod.spec.tolerations.insert(0, Pod().spec.tolerations.add(key="z", operator="Exists")), []),
    ],
)
def test_bounds_of_what_may_change_of_a_pod(old: Pod, change: Change, found: list[str]) -> None:
    assert paths(old, change) == found


def plain(*, gated: bool = True) -> Pod:
    """Without affinity."""
    pod = a_pod(gated)
    pod.spec.ClearField("affinity")
    return pod


def with_pod_affinity() -> Pod:
    pod = plain()
    pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    return pod


def preferring(pod: Pod) -> None:
    pod.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution.add(weight=1)


def requiring(pod: Pod) -> None:
    node_terms(pod).add().match_expressions.add(key="zone", operator="Exists")


def both(pod: Pod) -> None:
    requiring(pod)
    pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")


def in_front(pod: Pod) -> None:
    first = node_terms(pod)[0].match_expressions[0]
    node_terms(pod)[0].match_expressions.add().CopyFrom(first)
    first.key = "front"


@pytest.mark.parametrize(
    ("old", "change", "found"),
    [
        (a_pod(gated=True), preferring, []),
        (a_pod(gated=True), in_front, [f"{REQUIRED}[0]"]),
        (a_pod(gated=True), lambda pod: node_terms(pod)[0].ClearField("match_expressions"), [f"{REQUIRED}[0]"]),
        (plain(), preferring, []),
        (plain(), requiring, []),
        (plain(), lambda pod: pod.spec.affinity.SetInParent(), []),
        (plain(), both, ["spec.affinity"]),
        (plain(gated=False), requiring, ["spec.affinity"]),
        (with_pod_affinity(), requiring, []),
        (with_pod_affinity(), lambda pod: pod.spec.affinity.ClearField("pod_affinity"), ["spec.affinity"]),
        (with_pod_affinity(), lambda pod: pod.spec.ClearField("affinity"), ["spec.affinity"]),
    ],
)
def test_bounds_of_what_may_change_of_a_gated_pods_affinity(old: Pod, change: Change, found: list[str]) -> None:
    assert paths(old, change) == found


@pytest.mark.parametrize(
    ("old", "change", "found"),
    [
        (Service(), lambda new: setattr(new.spec, "cluster_ip", "10.0.0.2"), []),
        (Service(spec={"cluster_ip": "10.0.0.1"}), lambda new: setattr(new.spec, "cluster_ip", ""), []),
        (Node(spec={"pod_cidr": "10.0.0.0/24"}), lambda new: setattr(new.spec, "pod_cidr", ""), ["spec.podCIDR"]),
        (Node(), lambda new: setattr(new.spec, "provider_id", "a"), []),
        (StatefulSet(spec={"min_ready_seconds": 1}), lambda new: setattr(new.spec, "min_ready_seconds", 9), []),
        (StatefulSet(spec={"replicas": 2}), lambda new: new.spec.ClearField("replicas"), []),
        (StatefulSet(spec={"replicas": 2}), lambda new: setattr(new.spec, "service_name", "x"), ["spec.serviceName"]),
        (StatefulSet(spec={"template": {}}), lambda new: new.spec.ClearField("template"), []),
    ],
)
def test_bounds_of_what_may_change_of_other_kinds(old: Any, change: Change, found: list[str]) -> None:
    assert paths(old, change) == found
