"""Hollow nodes against a real API and etcd, without a scheduler: each pod names its node itself."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import grpc
import pytest

from rayched.client import ApiError, Client, Listing
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node, Pod
from tests.server.serving import serving

SHAPE = NodeShape({"cpu": "4", "memory": "8Gi", "pods": "10"})
PATIENCE_SECONDS = 60.0

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/nodes-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@pytest.fixture
def shapes() -> list[Node]:
    """Two nodes that no other test has."""
    return hollow_nodes(2, 2, SHAPE, f"test{next(_numbers)}")


@contextmanager
def agents(client: Client, nodes: Sequence[Node], **options: float) -> Iterator[HollowNodes]:
    found = HollowNodes(client, nodes, **options)
    found.register()
    found.start()
    try:
        yield found
    finally:
        found.stop()


def a_pod(node: Node, cpu: str = "1") -> Pod:
    pod = Pod()
    pod.metadata.name = f"pod-{next(_numbers)}"
    pod.spec.node_name = node.metadata.name
    pod.spec.containers.add(name="main", image="web:1").resources.requests["cpu"].string = cpu
    return pod


def submitted(client: Client, pod: Pod) -> str:
    client.submit(pod)
    return pod.metadata.name


def in_phase(client: Client, name: str, phase: str) -> Pod:
    def there() -> bool:
        return cast(Pod, client.get("pod", name)).status.phase == phase

    wait_until(there, f"{name} is {phase}")
    return cast(Pod, client.get("pod", name))


def exists(client: Client, kind: str, name: str) -> bool:
    try:
        client.get(kind, name)
    except ApiError as error:
        assert error.code is grpc.StatusCode.NOT_FOUND
        return False
    return True


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.cluster
def test_a_bound_pod_runs_with_its_sidecars_ready_and_one_that_does_not_fit_fails(client: Client, shapes: list[Node]) -> None:
    with agents(client, shapes):
        pod = a_pod(shapes[0])
        pod.spec.init_containers.add(name="proxy", image="proxy:1", restart_policy="Always")
        pod.spec.init_containers.add(name="migrate", image="migrate:1")
        status = in_phase(client, submitted(client, pod), "Running").status
        assert {found.type for found in status.conditions if found.status == "True"} >= {
            "Ready",
            "ContainersReady",
            "Initialized",
        }
        assert [(found.name, found.ready) for found in status.container_statuses] == [("main", True)]
        states = {found.name: found.state for found in status.init_container_statuses}
        assert states["proxy"].HasField("running")
        assert states["migrate"].terminated.reason == "Completed"
        refused = in_phase(client, submitted(client, a_pod(shapes[0], cpu="3500m")), "Failed")
        assert refused.status.reason == "OutOfcpu"


@pytest.mark.cluster
def test_a_deleted_pod_is_stopped_after_its_time_removed_and_its_room_is_free(client: Client, shapes: list[Node]) -> None:
    with agents(client, shapes, stop_seconds=0.3):
        name = submitted(client, a_pod(shapes[0], cpu="4"))
        in_phase(client, name, "Running")
        began = time.monotonic()
        client.delete("pod", name)
        wait_until(lambda: not exists(client, "pod", name), "the pod is gone")
        assert time.monotonic() - began >= 0.3
        in_phase(client, submitted(client, a_pod(shapes[0], cpu="4")), "Running")


@pytest.mark.cluster
def test_a_pod_that_was_placed_for_a_label_of_later_or_a_larger_node_is_taken(client: Client, shapes: list[Node]) -> None:
    node = shapes[0].metadata.name
    with agents(client, shapes):
        client.label("node", node, add={"special": "yes"})
        pod = a_pod(shapes[0])
        pod.spec.node_selector["special"] = "yes"
        in_phase(client, submitted(client, pod), "Running")
        larger = cast(Node, client.get("node", node)).status
        for quantities in (larger.capacity, larger.allocatable):
            quantities["cpu"].string = "8"
        client.update_node_status(node, larger)
        in_phase(client, submitted(client, a_pod(shapes[0], cpu="7")), "Running")


@pytest.mark.cluster
def test_agents_that_start_anew_hold_what_runs_and_judge_what_does_not(client: Client, shapes: list[Node]) -> None:
    node = shapes[0].metadata.name
    with agents(client, shapes):
        client.label("node", node, add={"special": "yes"})
        pod = a_pod(shapes[0], cpu="3")
        pod.spec.node_selector["special"] = "yes"
        running = submitted(client, pod)
        uid = in_phase(client, running, "Running").metadata.uid
    client.label("node", node, remove=["special"])
    too_large, fits = submitted(client, a_pod(shapes[0], cpu="2")), submitted(client, a_pod(shapes[0], cpu="1"))
    with agents(client, shapes):
        assert in_phase(client, too_large, "Failed").status.reason == "OutOfcpu"
        in_phase(client, fits, "Running")
        assert in_phase(client, running, "Running").metadata.uid == uid


@pytest.mark.cluster
def test_a_node_that_was_deleted_is_registered_again_with_the_next_heartbeat(client: Client, shapes: list[Node]) -> None:
    with agents(client, shapes, heartbeat_seconds=0.2):
        name = shapes[1].metadata.name
        client.delete("node", name)
        wait_until(lambda: exists(client, "node", name), "the node is there again")


@pytest.mark.cluster
def test_a_node_of_a_manifest_that_asks_for_a_hollow_agent_gets_one(client: Client, shapes: list[Node]) -> None:
    mine, other, nobodys = hollow_nodes(3, 0, SHAPE, f"made{next(_numbers)}")
    for node in (mine, other, nobodys):
        node.status.ClearField("conditions")
    for node in (mine, other):
        node.metadata.annotations["rayched.dev/agent"] = "hollow"
    nobodys.metadata.annotations["rayched.dev/agent"] = "somebody"

    def ready(node: Node) -> bool:
        found = cast(Node, client.get("node", node.metadata.name))
        return any((condition.type, condition.status) == ("Ready", "True") for condition in found.status.conditions)

    client.apply(mine)
    with agents(client, shapes, heartbeat_seconds=0.2):
        client.apply(other)
        client.apply(nobodys)
        in_phase(client, submitted(client, a_pod(mine, cpu="4")), "Running")
        name = submitted(client, a_pod(other))
        in_phase(client, name, "Running")
        wait_until(lambda: ready(mine) and ready(other), "both nodes are ready")
        assert not ready(nobodys)
        # A node that is gone is not made anew, and what was bound to it can still be stopped.
        client.delete("node", other.metadata.name)
        client.delete("pod", name)
        wait_until(lambda: not exists(client, "pod", name), "the pod is gone")
        time.sleep(0.5)
        assert not exists(client, "node", other.metadata.name)


class ScriptedClient:
    """Answers lists with what stands in `pods` and `nodes`, and each watch with the next of `watches`."""

    def __init__(self, pods: list[Pod], nodes: list[Node], watches: list[ApiError | list[Any]]) -> None:
        self.objects = {"pods": pods, "nodes": nodes}
        self.watches = watches
        self.lists = 0
        self.reports: list[Any] = []

    def list_all(self, kind: str) -> Listing:
        self.lists += 1
        return Listing(tuple(self.objects[kind]), 10)

    def watch(self, kind: None, *, start_revision: int) -> Any:
        assert start_revision == 11
        return ScriptedWatch(self.watches.pop(0))

    def update_pod_statuses(self, updates: Sequence[Any]) -> tuple[None, ...]:
        self.reports.extend(updates)
        return (None,) * len(updates)

    def heartbeat(self, nodes: Sequence[str]) -> tuple[str, ...]:
        return ()


class ScriptedWatch:
    def __init__(self, answer: ApiError | list[Any]) -> None:
        self.answer = answer

    def __enter__(self) -> ScriptedWatch:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.answer, ApiError):
            raise self.answer
        return iter(self.answer)

    def close(self) -> None:
        return


def test_a_watch_whose_past_was_compacted_begins_anew_and_one_that_nobody_serves_ends_the_agents(shapes: list[Node]) -> None:
    pod = a_pod(shapes[0])
    pod.metadata.uid = "u"
    compacted = ApiError(grpc.StatusCode.OUT_OF_RANGE, "compacted")
    nobody = ApiError(grpc.StatusCode.UNAVAILABLE, "nobody answers")
    scripted = ScriptedClient([pod], shapes, [compacted, nobody])
    found = HollowNodes(cast(Client, scripted), shapes)
    found.start()
    assert found.wait(PATIENCE_SECONDS)
    found.stop()
    assert found.failure is nobody
    assert scripted.lists == 4
