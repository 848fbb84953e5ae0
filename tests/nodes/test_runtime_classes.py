"""Pods of a RuntimeClass on real agents: with what behaves as podman, with podman where it is installed, and without."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.nodes.agent.containment import ContainmentTier, tier_of, tracking_root
from rayched.nodes.agent.drivers.podman_driver import PodmanDriver
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.app import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Event, Pod
from rayched.v1.workloads_pb2 import RuntimeClass
from tests.nodes.driven_pod import IMAGE, backend_of
from tests.nodes.fake_podman import add_image, installed
from tests.nodes.real_node import (
    AgentProcess,
    a_pod,
    agent_thread,
    gone,
    in_phase,
    processes,
    ready,
    registered,
    settings,
    sh,
    status,
    text_of,
    uid_of,
    until,
)
from tests.server.serving import serving

BOXED, ANYWHERE = "boxed", "anywhere"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/runtime-classes-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        boxed = RuntimeClass(metadata={"name": BOXED}, handler="podman")
        boxed.scheduling.node_selector["rayched.dev/driver.podman"] = "true"
        boxed.overhead.pod_fixed["memory"].string = "64Mi"
        found.submit(boxed)
        found.submit(RuntimeClass(metadata={"name": ANYWHERE}, handler="podman"))
        yield found


@dataclass
class Host:
    """A node with a podman. `fake`: a program that behaves as it; None: podman itself."""

    root: Path
    node: str
    podman: str
    fake: Path | None

    def containers(self) -> list[str]:
        assert self.fake is not None
        return [path.stem for path in (self.fake.parent / "containers").glob("*.json")]


@pytest.fixture(params=["fake", "real"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    node, root = f"boxes-{next(_numbers)}", tmp_path / "host" / "node"
    (tmp_path / "host").mkdir()
    if request.param == "fake":
        program = installed(tmp_path / "fake")
        add_image(program, IMAGE)
        yield Host(root, node, str(program), program)
        return
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "host" / "containers.conf"))
    with backend_of("podman-real", tmp_path / "host") as backend:
        assert isinstance(backend.driver, PodmanDriver)
        yield Host(root, node, backend.driver.binary, None)


@contextmanager
def running(client: Client, host: Host) -> Iterator[None]:
    labels = {"rayched.dev/driver.process": "true", "rayched.dev/driver.podman": "true"}
    with agent_thread(settings(host.root, host.node, podman=host.podman, labels=labels), client.endpoints[0]):
        yield


def a_boxed_pod(host: Host, *command: str, image: str = IMAGE, policy: str = "Always", grace: int = 5) -> Pod:
    pod = a_pod(host.node, f"pod-of-{host.node}-{next(_numbers)}", *command, policy=policy, grace=grace)
    pod.spec.runtime_class_name = BOXED
    pod.spec.containers[0].image = image
    return pod


def submitted(client: Client, pod: Pod) -> str:
    client.submit(pod)
    return pod.metadata.name


def reasons(client: Client, name: str) -> set[str]:
    found = (one for one in client.list("events") if isinstance(one, Event) and one.involved_object.name == name)
    return {one.reason for one in found}


@pytest.mark.row("N127")
def test_a_pod_of_a_class_runs_by_the_driver_that_its_handler_names(client: Client, host: Host) -> None:
    with running(client, host):
        script = "trap 'echo asked; exit 0' TERM; echo $0 $WHO; while :; do sleep 0.05; done"
        pod = a_boxed_pod(host, *sh(script))
        main = pod.spec.containers[0]
        main.env.add(name="WHO", value="runs")
        main.readiness_probe.exec.command.extend(["sh", "-c", 'test -n "$WHO"'])
        main.readiness_probe.period_seconds = 1
        name = submitted(client, pod)
        found = ready(client, name)
        assert found.container_statuses[0].container_id == f"podman://{uid_of(client, name)}/main/0"
        stored = client.get("pod", name)
        assert isinstance(stored, Pod)
        assert stored.spec.node_selector == {"rayched.dev/driver.podman": "true"}
        assert stored.spec.overhead["memory"].string == "64Mi"
        until(lambda: "sh runs" in text_of(host.root, name), "it says so")
        until(lambda: {"Pulled", "Created", "Started"} <= reasons(client, name), "its events")
        client.delete("pod", name)
        gone(client, name)
        if host.fake is not None:
            assert not host.containers()


@pytest.mark.row("N127")
def test_a_node_whose_default_driver_is_not_in_order_is_not_ready_and_says_why(client: Client, tmp_path: Path) -> None:
    node, program = f"boxes-{next(_numbers)}", installed(tmp_path / "fake")
    (program.parent / "broken").write_text("database is locked\n")
    chosen = settings(tmp_path / "node", node, podman=str(program), default_driver="podman")
    with agent_thread(chosen, client.endpoints[0]):

        def found() -> tuple[str, str, str]:
            one = next(one for one in registered(client, node).status.conditions if one.type == "Ready")
            return one.status, one.reason, one.message

        until(lambda: found()[0] == "False", "it is not ready")
        assert found() == ("False", "KubeletNotReady", "driver podman is unhealthy: database is locked")


@pytest.mark.row("N127")
def test_a_node_tells_the_images_that_its_engine_has(client: Client, host: Host) -> None:
    with agent_thread(settings(host.root, host.node, podman=host.podman, default_driver="podman"), client.endpoints[0]):
        until(lambda: registered(client, host.node).status.images, "its images are told")
        told = {name: one.size_bytes for one in registered(client, host.node).status.images for name in one.names}
        assert next(size for name, size in told.items() if name.endswith(IMAGE)) > 0


@pytest.mark.row("N127")
def test_on_a_node_without_the_driver_it_waits_and_others_run(client: Client, tmp_path: Path) -> None:
    node = f"boxes-{next(_numbers)}"
    there = Host(tmp_path / "node", node, "", None)
    with agent_thread(settings(there.root, node), client.endpoints[0]):
        pod = a_boxed_pod(there, "sleep", "1000")
        pod.spec.runtime_class_name = ANYWHERE
        name = submitted(client, pod)
        until(lambda: status(client, name).container_statuses, "it has a status")
        until(lambda: status(client, name).container_statuses[0].state.waiting.message, "it waits")
        found = status(client, name)
        waiting = found.container_statuses[0].state.waiting
        assert (found.phase, waiting.reason) == ("Pending", "CreateContainerConfigError")
        assert waiting.message == f'RuntimeClass "{ANYWHERE}": no runtime for "podman" is configured; this node has process'
        other = submitted(client, a_pod(node, f"plain-{node}", "sleep", "1000"))
        assert in_phase(client, other, "Running").container_statuses[0].container_id.startswith("process://")
        for one in (name, other):
            client.delete("pod", one, grace_period_seconds=1)
            gone(client, one)


@pytest.mark.row("N126", "N127")
def test_a_killed_agent_changes_nothing_and_a_killed_shim_restarts_it(client: Client, host: Host) -> None:
    options = ("--podman", host.podman)
    first = AgentProcess(host.root, host.node, client.endpoints[0], *options, unheard=True)
    try:
        name = submitted(client, a_boxed_pod(host, *sh("setsid sleep 1000 & while :; do sleep 1; done"), grace=1))
        in_phase(client, name, "Running")
        assert registered(client, host.node).metadata.labels["rayched.dev/driver.podman"] == "true"
        until(lambda: len(main_of(client, name)) == 1, "its main process is known")
        before, shim = main_of(client, name), shim_of(client, host, name)
        first.kill()
        first = AgentProcess(host.root, host.node, client.endpoints[0], *options, "--take-over", unheard=True)
        until(lambda: registered(client, host.node).status.conditions, "it is back")
        time.sleep(1.0)
        assert main_of(client, name) == before and status(client, name).container_statuses[0].restart_count == 0
        os.kill(shim, signal.SIGKILL)
        until(lambda: status(client, name).container_statuses[0].restart_count == 1, "it is restarted")
        found = status(client, name).container_statuses[0]
        assert found.last_state.terminated.reason == "ContainerStatusUnknown"
        assert found.container_id == f"podman://{uid_of(client, name)}/main/1"
        assert not before & set(processes(client, name))
        until(lambda: status(client, name).container_statuses[0].state.HasField("running"), "it runs again")
        client.delete("pod", name)
        gone(client, name)
        if host.fake is not None:
            until(lambda: not host.containers(), "what is left of it is removed, whoever killed it")
    finally:
        first.terminate()


def shim_of(client: Client, host: Host, name: str) -> int:
    path = host.root / "pods" / uid_of(client, name) / "shim" / "state.json"
    return int(json.loads(path.read_text())["pid"])


def main_of(client: Client, name: str) -> set[int]:
    """The processes that run its script, without what is beside them."""
    found = set()
    for pid in processes(client, name):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[:2] == [b"sh", b"-c"]:
            found.add(pid)
    return found


@pytest.mark.row("N127")
def test_an_image_that_is_not_to_be_had_waits_and_can_be_deleted(client: Client, host: Host) -> None:
    with running(client, host):
        name = submitted(client, a_boxed_pod(host, "sleep", "1000", image="127.0.0.1:1/nothing:1"))

        def waits() -> bool:
            found = status(client, name).container_statuses
            return bool(found) and found[0].state.waiting.reason in ("ErrImagePull", "ImagePullBackOff")

        until(waits, "it waits for its image")
        client.delete("pod", name)
        gone(client, name)


@pytest.mark.row("N109")
@pytest.mark.parametrize("kept_by", ["cgroup", "podman-fake", "podman-real"])
def test_a_container_above_its_limit_is_killed_and_restarted_and_its_pod_stays(
    client: Client, tmp_path: Path, kept_by: str
) -> None:
    node, root = f"limits-{next(_numbers)}", tmp_path / "host" / "node"
    (tmp_path / "host").mkdir()
    # What is left after a kill is the file that says so: the second attempt does not grow.
    grows = "if [ $RAYCHED_ATTEMPT = 0 ]; then x=$(head -c 200000000 /dev/zero | tr '\\0' x); fi; while :; do sleep 0.1; done"
    pod = a_pod(node, f"grows-{node}", *sh(grows), policy="Always", grace=1)
    pod.spec.containers[0].resources.limits["memory"].string = "48Mi"
    with memory_limited(kept_by, root, tmp_path) as changes:
        if kept_by != "cgroup":
            pod.spec.runtime_class_name, pod.spec.containers[0].image = BOXED, IMAGE
            changes["labels"] = {"rayched.dev/driver.podman": "true"}
        with agent_thread(settings(root, node, **changes), client.endpoints[0]):
            name = submitted(client, pod)
            until(lambda: status(client, name).container_statuses, "it has a status")
            until(lambda: status(client, name).container_statuses[0].restart_count == 1, "it is restarted")
            in_phase(client, name, "Running")
            last = status(client, name).container_statuses[0].last_state.terminated
            assert last.exit_code == 137
            if kept_by != "podman-real":
                # Podman itself may miss it by cgroups of the first version, as the contract of drivers shows.
                assert last.reason == "OOMKilled"
            client.delete("pod", name)
            gone(client, name)


@contextmanager
def memory_limited(kept_by: str, root: Path, directory: Path) -> Iterator[dict[str, object]]:
    """Settings of an agent whose containers have limits; skipped where this host has none."""
    if kept_by == "cgroup":
        root.mkdir()
        found = tracking_root(root)
        if tier_of(found) is not ContainmentTier.CGROUP:
            pytest.skip("this host has no cgroup of the second version with the controllers of cpu, memory and pids")
        yield {"cgroups": found}
        return
    if kept_by == "podman-fake":
        program = installed(directory / "fake")
        add_image(program, IMAGE)
        yield {"podman": str(program)}
        return
    with backend_of(kept_by, directory / "host") as backend, pytest.MonkeyPatch.context() as patch:
        assert isinstance(backend.driver, PodmanDriver)
        patch.setenv("CONTAINERS_CONF", str(directory / "host" / "containers.conf"))
        yield {"podman": backend.driver.binary}
