"""What Kubernetes' API always gives is there, and what is set stays as it is."""

from __future__ import annotations

from rayched.gateway.rendering import document
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget, ReplicaSet


def test_a_container_that_ended_well_says_so_and_has_not_been_restarted() -> None:
    pod = Pod(api_version="v1", kind="Pod", metadata={"name": "web"})
    ended = pod.status.container_statuses.add(name="main", image="a:1")
    ended.state.terminated.reason = "Completed"
    runs = pod.status.init_container_statuses.add(name="first", restart_count=3)
    runs.state.running.SetInParent()
    status = document(pod)["status"]
    (main,) = status["containerStatuses"]
    assert main["state"]["terminated"] == {"exitCode": 0, "reason": "Completed"}
    assert (main["image"], main["imageID"], main["ready"], main["restartCount"]) == ("a:1", "", False, 0)
    (first,) = status["initContainerStatuses"]
    assert first["restartCount"] == 3 and "terminated" not in first["state"]
    assert document(Pod(api_version="v1", kind="Pod", metadata={"name": "new"})).get("status", {}) == {}


def test_what_a_node_a_budget_and_a_set_always_say() -> None:
    node = Node(api_version="v1", kind="Node", metadata={"name": "n"})
    node.status.node_info.kubelet_version = "v1"
    info = document(node)["status"]["nodeInfo"]
    assert info["kubeletVersion"] == "v1" and info["architecture"] == info["systemUUID"] == "" and len(info) == 10
    budget = PodDisruptionBudget(api_version="policy/v1", kind="PodDisruptionBudget", metadata={"name": "b"})
    budget.status.current_healthy = 2
    budget.status.conditions.add(type="DisruptionAllowed", status="True", reason="Sufficient")
    status = document(budget)["status"]
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (2, 0)
    assert (status["conditions"][0]["reason"], status["conditions"][0]["message"]) == ("Sufficient", "")
    few = ReplicaSet(api_version="apps/v1", kind="ReplicaSet", metadata={"name": "few"})
    assert document(few)["status"] == {"replicas": 0}
