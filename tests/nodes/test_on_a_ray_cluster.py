"""Nodes of a Ray cluster as nodes of rayched: three raylets on one host, a real replica, and somebody else who uses that Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayched.client.client import Client
from rayched.nodes.agent.shim import proc_table
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.testing.raylets import RayletCluster, RayletShape
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import ReplicaSet
from tests.nodes.real_node import in_phase, sh, until
from tests.replica.clusters import scheduler_status

CPUS = 2
GI = 1 << 30
SHAPES = (
    RayletShape({"ssd": 2}, {"disk": "fast", "raylet": "zero"}, GI),
    RayletShape({"ssd": 1}, {"disk": "fast", "raylet": "one"}, GI),
    RayletShape({"hdd": 1}, {"disk": "slow", "raylet": "two"}, GI),
)
REPLICAS = 3
OPTIONS = ("--workers", "0", "--no-compact")
SECONDS_MAX = 240.0
"""A busy machine may have a raylet or an actor a minute late."""


class RayUser:
    """Another driver of the cluster; it holds one CPU."""

    def __init__(self, raylets: RayletCluster, resource: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.nodes.ray_user", raylets.address, resource],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | raylets.environment,
        )
        assert self._line() == "holds"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def free(self) -> dict[str, dict[str, float]]:
        """By name of the rayched node."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        # Ray tells every driver of raylets that die, in many lines.
        while not (line := self._line()).startswith("{"):
            assert self.process.poll() is None
        found: dict[str, dict[str, float]] = json.loads(line)
        return {f"ray-{ray_id[:12]}": amounts for ray_id, amounts in found.items()}


class RayNodesDriver:
    """`rayched node --ray-address`."""

    def __init__(self, raylets: RayletCluster, servers: str, root: Path) -> None:
        options = ("--heartbeat", "0.5", "--allow-root-pods", "--pod-user", str(os.geteuid()), "--shutdown-grace-period", "10s")
        self._log = root / "driver.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "rayched.cli.main", "node", "--ray-address", raylets.address),
                    *("--server", servers, "--root-dir", str(root), *options),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | raylets.environment,
            )

    def said(self) -> str:
        return self._log.read_text()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(SECONDS_MAX)


class RayWorld:
    def __init__(self, raylets: RayletCluster, client: Client, root: Path) -> None:
        self.raylets, self.client, self.root = raylets, client, root
        self.notes = root / "notes"
        self.user = RayUser(raylets, "hdd")
        self.driver = self.drive()

    def drive(self) -> RayNodesDriver:
        self.driver = RayNodesDriver(self.raylets, ",".join(self.client.endpoints), self.root)
        return self.driver

    def nodes(self) -> dict[str, Node]:
        """By the raylet's label, those that are ready."""
        found = [one for one in self.client.list("nodes") if isinstance(one, Node)]
        ready = [one for one in found if any(item.type == "Ready" and item.status == "True" for item in one.status.conditions)]
        return {one.metadata.labels["raylet"]: one for one in ready}

    def until_ready(self, *raylets: str) -> dict[str, Node]:
        found = until(lambda: found if set(found := self.nodes()) == set(raylets) else None, f"{raylets} are ready", SECONDS_MAX)
        assert isinstance(found, dict)
        return found

    def web(self) -> dict[str, str]:
        """Node by name, of the replica set's pods that run."""
        pods = [pod for pod in self.client.list("pods", label_selector="app=web") if isinstance(pod, Pod)]
        return {
            pod.metadata.name: pod.spec.node_name
            for pod in pods
            if pod.status.phase == "Running" and not pod.metadata.HasField("deletion_timestamp")
        }

    def until_web_runs(self, without: str = "") -> dict[str, str]:
        """All of it, and on other nodes."""

        def there() -> dict[str, str] | None:
            found = self.web()
            return found if len(found) == REPLICAS and without not in found.values() else None

        found = until(there, f"web runs without {without}", SECONDS_MAX)
        assert isinstance(found, dict)
        return found

    def is_gone(self, node: str) -> bool:
        return all(one.metadata.name != node for one in self.client.list("nodes"))

    def noted(self) -> str:
        return self.notes.read_text() if self.notes.exists() else ""

    def lines(self, word: str) -> list[str]:
        return [line for line in self.noted().splitlines() if line.startswith(word)]

    def a_replica_set(self) -> ReplicaSet:
        """One of its pods holds one of as many slots as there may be; who finds none says so."""
        script = f"""
        for slot in $(seq {REPLICAS}); do
            exec 9>>{self.root}/slot-$slot
            if flock -n 9; then
                echo "begin $RAYCHED_POD_NAME $RAYCHED_NODE_NAME" >>{self.notes}
                trap 'echo "end $RAYCHED_POD_NAME" >>{self.notes}; exit 0' TERM
                while :; do sleep 0.1 9>&-; done
            fi
        done
        echo "twice $RAYCHED_POD_NAME" >>{self.notes}
        sleep 1000
        """
        found = ReplicaSet(metadata={"name": "web", "namespace": "default"})
        found.spec.replicas = REPLICAS
        found.spec.selector.match_labels["app"] = found.spec.template.metadata.labels["app"] = "web"
        spec = found.spec.template.spec
        spec.node_selector["disk"] = "fast"
        spec.termination_grace_period_seconds = 5
        container = spec.containers.add(name="main", command=sh(script))
        container.resources.requests["cpu"].string = "500m"
        return found


@contextmanager
def a_ray_world(root: Path) -> Iterator[RayWorld]:
    with (
        RayletCluster(len(SHAPES), CPUS, SHAPES) as raylets,
        LocalCluster(root / "cluster", 1, unsafe_no_fsync=True, options=OPTIONS) as cluster,
        Client(cluster.addresses, timeout_seconds=20.0) as client,
    ):
        scheduler_status(client)
        world = RayWorld(raylets, client, root)
        try:
            yield world
        except BaseException:
            print(f"--- what the driver said\n{world.driver.said()}\n--- what pods noted\n{world.noted()}")
            for log in sorted(root.glob("ray-*.log")):
                print(f"--- end of {log.name}\n{log.read_text()[-4_000:]}")
            raise
        finally:
            for process in (world.driver.process, world.user.process):
                process.kill()
                process.wait()


def a_pod(name: str, **requests: str) -> Pod:
    pod = Pod(metadata={"name": name, "namespace": "default"})
    pod.spec.restart_policy = "Never"
    pod.spec.termination_grace_period_seconds = 1
    container = pod.spec.containers.add(name="main", command=sh("exec sleep 1000"))
    for resource, amount in requests.items():
        container.resources.requests[resource].string = container.resources.limits[resource].string = amount
    return pod


def node_of(client: Client, name: str) -> str:
    pod = client.get("pod", name)
    assert isinstance(pod, Pod)
    return pod.spec.node_name


def amounts(node: Node) -> dict[str, str]:
    """What of its capacity comes from Ray."""
    own = ("pods", "ephemeral-storage")
    return {name: amount.string for name, amount in node.status.capacity.items() if name not in own}


def pids_in(root: Path) -> set[int]:
    """Of shims that live, of all agents below."""
    states = [json.loads(path.read_text()) for path in root.glob("ray-*/pods/*/shim/state.json")]
    return {
        one["pid"] for one in states if proc_table.start_ticks(one["pid"]) == one["ticks"] and proc_table.is_alive(one["pid"])
    }


def check_what_ray_has_left(world: RayWorld, nodes: dict[str, Node]) -> None:
    memory = f"{GI >> 10}Ki"
    assert amounts(nodes["zero"]) == {"cpu": "2", "memory": memory, "ray.io/ssd": "2"}
    assert amounts(nodes["one"]) == {"cpu": "2", "memory": memory, "ray.io/ssd": "1"}
    assert amounts(nodes["two"]) == {"cpu": "1", "memory": memory}, "what somebody else has is not offered"
    assert {one.metadata.labels["disk"] for one in (nodes["zero"], nodes["one"])} == {"fast"}

    def left() -> dict[str, dict[str, float]] | None:
        found = {name: {key: of.get(key, 0.0) for key in ("CPU", "memory", "ssd")} for name, of in world.user.free().items()}
        return None if any(any(of.values()) for of in found.values()) else found

    assert set(until(left, "Ray has given all of it to rayched", 60.0)) == {one.metadata.name for one in nodes.values()}


def check_placement(world: RayWorld, nodes: dict[str, Node]) -> None:
    client = world.client
    client.submit(a_pod("two-disks", **{"ray.io/ssd": "2"}))
    slow = a_pod("slow", cpu="500m")
    slow.spec.node_selector["disk"] = "slow"
    client.submit(slow)
    large = a_pod("too-large", cpu="1500m")
    large.spec.node_selector["disk"] = "slow"
    client.submit(large)
    in_phase(client, "two-disks", "Running")
    in_phase(client, "slow", "Running")
    assert node_of(client, "two-disks") == nodes["zero"].metadata.name
    assert node_of(client, "slow") == nodes["two"].metadata.name
    assert not node_of(client, "too-large"), "its node has two CPUs, and Ray gave one of them to somebody else"
    client.submit(world.a_replica_set())
    placed = set(world.until_web_runs().values())
    assert placed == {nodes["zero"].metadata.name, nodes["one"].metadata.name}


def check_a_driver_that_dies(world: RayWorld) -> None:
    before, shims = world.web(), pids_in(world.root)
    world.driver.process.kill()
    world.driver.process.wait()
    said = len(world.driver.said())
    world.drive()
    until(lambda: "following the nodes of Ray" in world.driver.said()[said:], "the next driver", SECONDS_MAX)
    until(lambda: world.driver.said()[said:].count("its agent is process") >= len(SHAPES), "it has found all", SECONDS_MAX)
    assert "takes from Ray" not in world.driver.said()[said:], "it took over what was there"
    assert world.web() == before and pids_in(world.root) == shims


def check_a_raylet_that_dies_alone(world: RayWorld, nodes: dict[str, Node]) -> None:
    name = nodes["one"].metadata.name
    lost = [pod for pod, node in world.web().items() if node == name]
    assert lost
    with world.raylets.without_raylet(1):
        world.until_web_runs(without=name)
        for pod in lost:
            assert f"end {pod}" in world.lines("end"), "its pods were asked to end"
            found = world.client.get("pod", pod)
            assert isinstance(found, Pod)
            assert (found.status.phase, found.status.reason) == ("Failed", "Terminated")
        until(lambda: world.is_gone(name), "its Node goes, as nothing runs there", SECONDS_MAX)


def check_the_end(world: RayWorld) -> None:
    running = set(world.web())
    assert world.driver.terminate() == 0, world.driver.said()
    assert "Raylet is terminated" not in world.driver.said(), "a line for each fault, and not Ray's log"
    assert not pids_in(world.root)
    assert {f"end {pod}" for pod in running} <= set(world.lines("end"))
    assert not world.lines("twice"), world.notes.read_text()
    until(
        lambda: sorted(of.get("CPU", 0.0) for of in world.user.free().values()) == [1.0, 2.0, 2.0], "Ray has its CPUs back", 60.0
    )


@pytest.mark.long
@pytest.mark.cluster
def test_pods_run_on_what_ray_has_free_and_follow_its_nodes(tmp_path: Path) -> None:
    with a_ray_world(tmp_path) as world:
        nodes = world.until_ready("zero", "one", "two")
        check_what_ray_has_left(world, nodes)
        check_placement(world, nodes)
        check_a_driver_that_dies(world)
        check_a_raylet_that_dies_alone(world, nodes)
        world.raylets.add(RayletShape({"ssd": 1}, {"disk": "fast", "raylet": "three"}, GI))
        world.until_ready("zero", "two", "three")
        check_the_end(world)
