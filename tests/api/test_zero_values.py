"""What Kubernetes writes although it is zero or empty, is written: scripts and typed clients count on it."""

from __future__ import annotations

import pytest

from rayched.api import kinds
from rayched.api.manifest import read_object, write_object
from rayched.api.zero_values import ALWAYS_WRITTEN
from rayched.v1 import core_pb2, meta_pb2, workloads_pb2
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget, PriorityClass


def test_a_container_that_ended_well_says_so() -> None:
    pod = Pod()
    pod.metadata.name = "job"
    pod.status.container_statuses.add(name="main").state.terminated.SetInParent()
    document = write_object(kinds.wrap(pod))
    assert document["status"]["containerStatuses"] == [
        {"image": "", "imageID": "", "name": "main", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
    ]
    assert kinds.unwrap(read_object(document).object).status == pod.status  # type: ignore[union-attr]


def test_a_node_tells_all_of_its_system() -> None:
    node = Node()
    node.status.node_info.kubelet_version = "v1"
    assert write_object(kinds.wrap(node))["status"]["nodeInfo"] == {
        "architecture": "",
        "bootID": "",
        "containerRuntimeVersion": "",
        "kernelVersion": "",
        "kubeProxyVersion": "",
        "kubeletVersion": "v1",
        "machineID": "",
        "operatingSystem": "",
        "osImage": "",
        "systemUUID": "",
    }


def test_a_budget_that_allows_nothing_and_a_class_of_no_priority_have_their_numbers() -> None:
    budget = PodDisruptionBudget()
    budget.status.conditions.add(type="DisruptionAllowed", status="False", reason="InsufficientPods")
    status = write_object(kinds.wrap(budget))["status"]
    assert (status["disruptionsAllowed"], status["expectedPods"], status["conditions"][0]["message"]) == (0, 0, "")
    assert write_object(kinds.wrap(PriorityClass()))["value"] == 0


def test_what_is_not_set_at_all_is_left_out() -> None:
    assert "nodeInfo" not in write_object(kinds.wrap(Node())).get("status", {})
    assert "containerStatuses" not in write_object(kinds.wrap(Pod())).get("status", {})


@pytest.mark.parametrize("name", ALWAYS_WRITTEN)
def test_each_such_field_is_a_plain_value_of_its_message(name: str) -> None:
    files = (core_pb2, meta_pb2, workloads_pb2)
    (descriptor,) = (f.DESCRIPTOR.message_types_by_name[name] for f in files if name in f.DESCRIPTOR.message_types_by_name)
    fields = {field.json_name: field for field in descriptor.fields}
    assert ALWAYS_WRITTEN[name] <= fields.keys()
    for one in ALWAYS_WRITTEN[name]:
        assert fields[one].message_type is None and not fields[one].is_repeated and not fields[one].has_presence
