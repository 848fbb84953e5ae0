"""update, patch, annotate, typed reading, waits and constructors of both clients, against a replica."""

from __future__ import annotations

import asyncio
from typing import assert_type

import grpc
import pytest

from rayched.api.patches import PatchFault
from rayched.client import ApiError, AsyncClient, new_job, new_node, new_pod
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import ApplyResponse, PodStatusUpdate
from rayched.v1.workloads_pb2 import Job
from tests.cli.cluster import Commands

pytestmark = pytest.mark.cluster


def test_what_was_read_is_changed_and_put_back_unless_somebody_else_was_faster(rayched: Commands, web: str) -> None:
    client = rayched.client
    mine = client.get(Pod, "db", web)
    theirs = client.get("pod", "db", web)
    assert_type(mine, Pod)
    assert_type(theirs, Pod)
    theirs.metadata.labels["by"] = "them"
    assert client.update(theirs).action == ApplyResponse.CONFIGURED
    mine.metadata.labels["by"] = "me"
    with pytest.raises(ApiError) as refusal:
        client.update(mine)
    assert refusal.value.code is grpc.StatusCode.ABORTED
    assert client.get(Pod, "db", web).metadata.labels["by"] == "them"
    mine.metadata.name = "none-such"
    with pytest.raises(ApiError) as refusal:
        client.update(mine)
    assert refusal.value.code is grpc.StatusCode.NOT_FOUND


def test_patches_and_annotations(rayched: Commands, web: str) -> None:
    client = rayched.client
    client.patch("pod", "db", web, patch={"metadata": {"labels": {"tier": None}}})
    assert "tier" not in client.get(Pod, "db", web).metadata.labels
    dry = client.patch("pod", "db", web, patch={"metadata": {"labels": {"tier": "x"}}}, dry_run=True)
    assert dry.action == ApplyResponse.CONFIGURED and "tier" not in client.get(Pod, "db", web).metadata.labels
    with pytest.raises(PatchFault):
        client.patch("pod", "db", web, patch=[{"op": "remove", "path": "/none"}], patch_type="json")
    client.annotate("pod", "db", web, add={"a": "1", "b": "2"})
    client.annotate("pod", "db", web, add={"a": "3"}, remove=["b"], overwrite=True)
    assert client.get(Pod, "db", web).metadata.annotations["a"] == "3"
    assert "b" not in client.get(Pod, "db", web).metadata.annotations


def test_lists_have_the_type_of_their_kind(rayched: Commands, web: str) -> None:
    names = set()
    for pod in rayched.client.list("pods", namespace=web):
        assert_type(pod, Pod)
        names.add(pod.metadata.name)
    assert names == {"db", "web-0", "web-1"}
    for node in rayched.client.list(Node):
        assert_type(node, Node)
        assert node.status.allocatable["cpu"].string


def test_pods_are_waited_for_until_they_run_end_and_go(rayched: Commands, namespace: str) -> None:
    client = rayched.client
    pod = new_pod("hello", namespace=namespace, cpu="100m", command=["true"], restart_policy="Never")
    made = client.create(pod)
    assert_type(made, Pod)
    uid = made.metadata.uid
    assert client.wait_running("hello", namespace).status.phase == "Running"
    with pytest.raises(ApiError) as late:
        client.wait_ended("hello", namespace, timeout_seconds=0.5)
    assert late.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    update = PodStatusUpdate(name="hello", namespace=namespace, uid=uid)
    update.status.phase = "Succeeded"
    assert client.update_pod_statuses([update]) == (None,)
    assert client.wait_ended("hello", namespace).status.phase == "Succeeded"
    client.delete("pod", "hello", namespace, grace_period_seconds=0)
    client.wait_deleted("pod", "hello", namespace)
    with pytest.raises(ApiError) as gone:
        client.wait_running("hello", namespace)
    assert gone.value.code is grpc.StatusCode.NOT_FOUND


def test_the_asynchronous_client_does_the_same(rayched: Commands, web: str) -> None:
    async def changed() -> tuple[Pod, list[str]]:
        async with AsyncClient([rayched.server]) as client:
            await client.annotate("pod", "db", web, add={"note": "x"})
            await client.patch("pod", "db", web, patch={"metadata": {"labels": {"new": "y"}}})
            found = await client.get(Pod, "db", web)
            assert_type(found, Pod)
            await client.update(found)
            return found, [node.metadata.name async for node in client.list("nodes")]

    pod, nodes = asyncio.run(changed())
    assert (pod.metadata.annotations["note"], pod.metadata.labels["new"]) == ("x", "y")
    assert len(nodes) == 12


def test_constructors_make_what_the_server_takes(rayched: Commands, namespace: str) -> None:
    pod = new_pod(
        "one",
        namespace=namespace,
        image="web:1",
        env={"A": "b"},
        memory="1Gi",
        resources={"example.com/gpu": "1"},
        labels={"app": "x"},
        node_selector={"disktype": "ssd"},
        scheduler="default-scheduler",
    )
    assert rayched.client.submit(pod, dry_run=True).object.pod.spec.containers[0].resources.requests["memory"].string == "1Gi"
    job = new_job(pod, count=3, name="many")
    assert_type(job, Job)
    made = rayched.client.submit(job, dry_run=True).object.job
    assert (made.metadata.name, made.spec.completions, made.spec.parallelism) == ("many", 3, 3)
    node = new_node("constructed", cpu="2", labels={"zone": "a"})
    made_node = rayched.client.submit(node, dry_run=True).object.node
    assert made_node.status.allocatable["cpu"].string == "2" and made_node.metadata.labels["zone"] == "a"
