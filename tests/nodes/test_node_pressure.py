"""Real pressure in bounded mode: a real agent, real memory, and the right pod that goes."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod, PodStatus
from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.nodes.real_node import (
    AgentProcess,
    a_pod,
    all_gone,
    condition,
    gone,
    in_phase,
    processes,
    registered,
    sh,
    status,
    text_of,
    uid_of,
    until,
)
from tests.server.serving import serving

_numbers = itertools.count(1)
_HOLDS = (
    "import time,sys\n"
    "kept=[]\n"
    "for _ in range({n}):\n"
    "    kept.append(bytearray(b'x'*(16<<20))); time.sleep(0.1)\n"
    "print('held', flush=True)\n"
    "time.sleep(1000)\n"
)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/pressure-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@contextmanager
def a_node(client: Client, root: Path, *options: str) -> Iterator[str]:
    name = f"small-{next(_numbers)}"
    agent = AgentProcess(root, name, client.endpoints[0], *options)
    try:
        yield name
        for pod in client.list("pods"):
            if isinstance(pod, Pod) and pod.spec.node_name == name:
                client.delete("pod", pod.metadata.name, grace_period_seconds=1)
        for pod in client.list("pods"):
            if isinstance(pod, Pod) and pod.spec.node_name == name:
                gone(client, pod.metadata.name)
    finally:
        agent.terminate()


def holder(node: str, what: str, pieces: int, request: str = "", grace: int = 5) -> Pod:
    """Holds so many times 16 MiB, of which it takes ten a second."""
    pod = a_pod(node, f"{what}-{next(_numbers)}", "python3", "-c", _HOLDS.format(n=pieces), grace=grace)
    if request:
        pod.spec.containers[0].resources.requests["memory"].string = request
    return pod


def evicted(client: Client, name: str) -> PodStatus:
    found = in_phase(client, name, "Failed")
    assert found.reason == "Evicted" and condition(found, "DisruptionTarget") == "True"
    return found


HARD = ("--memory", "1Gi", "--eviction-hard", "memory.available<300Mi", "--eviction-pressure-transition-period", "3s")


@pytest.mark.row("N97")
def test_the_pod_that_grows_above_its_request_goes_and_the_calm_ones_stay(client: Client, tmp_path: Path) -> None:
    with a_node(client, tmp_path, *HARD) as node:
        calm = [holder(node, "calm", 4, "100Mi"), holder(node, "calm", 2)]
        for pod in calm:
            client.submit(pod)
        for pod in calm:
            in_phase(client, pod.metadata.name, "Running")
        grower = holder(node, "grower", 60, "64Mi")
        client.submit(grower)
        name = grower.metadata.name
        in_phase(client, name, "Running")
        pids = processes(client, name)
        found = evicted(client, name)
        assert all_gone(pids)
        told = re.fullmatch(
            r"The node was low on resource: memory\. Threshold quantity: 300Mi, available: (\d+)Ki\. Container main was using "
            r"(\d+)Ki, request is 64Mi, has larger consumption of memory\. ",
            found.message,
        )
        assert told is not None and found.container_statuses[0].state.terminated.signal == 9
        # It takes 160 MiB a second at most, so this is within a second of the crossing.
        assert (300 - 160) << 10 <= int(told[1]) < 300 << 10 and int(told[2]) > 64 << 10
        assert [status(client, pod.metadata.name).phase for pod in calm] == ["Running", "Running"]

        def pressed(value: str) -> bool:
            return {one.type: one.status for one in registered(client, node).status.conditions}["MemoryPressure"] == value

        until(lambda: pressed("False"), "the condition ends")


@pytest.mark.row("K10.12", "N99", "N100")
def test_neither_a_budget_nor_an_hour_of_grace_hinders_an_eviction(client: Client, tmp_path: Path) -> None:
    budget = PodDisruptionBudget(api_version="policy/v1", kind="PodDisruptionBudget")
    budget.metadata.name = "none-left"
    budget.spec.min_available.string_value = "100%"
    budget.spec.selector.match_labels["app"] = "grower"
    client.submit(budget)
    with a_node(client, tmp_path, *HARD) as node:
        grower = holder(node, "grower", 60, grace=3600)
        grower.metadata.labels["app"] = "grower"
        grower.spec.containers[0].lifecycle.pre_stop.exec.command.extend(["sleep", "3600"])
        client.submit(grower)
        assert evicted(client, grower.metadata.name).container_statuses[0].state.terminated.signal == 9


@pytest.mark.row("N101")
def test_a_soft_threshold_gives_the_lesser_grace(client: Client, tmp_path: Path) -> None:
    options = ["--memory", "1Gi", "--eviction-hard", "", "--eviction-soft", "memory.available<600Mi"]
    options += ["--eviction-soft-grace-period", "memory.available=1s", "--eviction-max-pod-grace-period", "2"]
    with a_node(client, tmp_path, *options) as node:
        program = "import signal\nsignal.signal(15, lambda *_: print('asked', flush=True))\n" + _HOLDS.format(n=35)
        pod = a_pod(node, f"deaf-{next(_numbers)}", "python3", "-c", program, grace=3600)
        client.submit(pod)
        name = pod.metadata.name
        in_phase(client, name, "Running")
        until(lambda: "asked" in text_of(tmp_path, name), "it is asked to end")
        began = time.monotonic()
        evicted(client, name)
        assert time.monotonic() - began < 20 and "asked" in text_of(tmp_path, name)


@pytest.mark.row("N104")
def test_who_has_most_processes_goes_when_they_run_short(client: Client, tmp_path: Path) -> None:
    with a_node(client, tmp_path, "--pids", "60", "--eviction-hard", "pid.available<20") as node:
        calm = a_pod(node, f"calm-{next(_numbers)}", "sleep", "1000")
        client.submit(calm)
        in_phase(client, calm.metadata.name, "Running")
        forker = a_pod(node, f"forker-{next(_numbers)}", *sh("for i in $(seq 45); do sleep 1000 & done; wait"))
        client.submit(forker)
        found = evicted(client, forker.metadata.name)
        assert found.message.startswith("The node was low on resource: pids. Threshold quantity: 20, available: ")
        assert status(client, calm.metadata.name).phase == "Running"


@pytest.mark.row("N105")
def test_limits_of_local_storage_are_kept(client: Client, tmp_path: Path) -> None:
    with a_node(client, tmp_path, "--eviction-hard", "pid.available<1") as node:
        write = "head -c 3000000 /dev/zero > {}; sleep 1000"
        volume = a_pod(node, f"volume-{next(_numbers)}", *sh(write.format("$RAYCHED_VOLUME_V/x")))
        volume.spec.volumes.add(name="v").empty_dir.size_limit.string = "1Mi"
        volume.spec.containers[0].volume_mounts.add(name="v", mount_path="/v")
        own = a_pod(node, f"own-{next(_numbers)}", *sh(write.format("x")))
        whole = a_pod(node, f"whole-{next(_numbers)}", *sh(write.format("x")))
        whole.spec.containers.add(name="side", command=["sleep", "1000"])
        kept = a_pod(node, f"kept-{next(_numbers)}", *sh("head -c 500000 /dev/zero > x; sleep 1000"))
        for pod in (own, kept, whole):
            for container in pod.spec.containers:
                limit = "1Mi" if pod is not whole or container.name == "main" else "512Ki"
                container.resources.limits["ephemeral-storage"].string = limit
                container.resources.requests["ephemeral-storage"].string = limit
        own.spec.containers.add(name="other", command=["sleep", "1000"]).resources.limits["ephemeral-storage"].string = "64Mi"
        own.spec.containers[1].resources.requests["ephemeral-storage"].string = "64Mi"
        for pod in (volume, own, whole, kept):
            client.submit(pod)
        messages = [evicted(client, pod.metadata.name).message for pod in (volume, own, whole)]
        assert messages == [
            'Usage of EmptyDir volume "v" exceeds the limit "1Mi". ',
            'Container main exceeded its local ephemeral storage limit "1Mi". ',
            "Pod ephemeral local storage usage exceeds the total limit of containers 1536Ki. ",
        ]
        assert status(client, kept.metadata.name).phase == "Running"


@pytest.mark.row("N111")
def test_a_pod_whose_eviction_was_decided_ends_so_though_the_agent_is_killed(client: Client, tmp_path: Path) -> None:
    node, address = f"small-{next(_numbers)}", client.endpoints[0]
    options = ["--memory", "1Gi", "--eviction-hard", "", "--eviction-soft", "memory.available<800Mi"]
    options += ["--eviction-soft-grace-period", "memory.available=100ms", "--eviction-max-pod-grace-period", "5"]
    first = AgentProcess(tmp_path, node, address, *options)
    pod = a_pod(node, f"deaf-{next(_numbers)}", *sh("trap '' TERM; while :; do sleep 0.1; done"), grace=3600)
    pod.spec.containers.add(name="holder", command=["python3", "-c", _HOLDS.format(n=20)])
    client.submit(pod)
    name = pod.metadata.name
    in_phase(client, name, "Running")
    path = tmp_path / "pods" / uid_of(client, name) / "ending.json"
    until(path.exists, "it is decided")
    first.kill()
    assert status(client, name).phase == "Running"
    second = AgentProcess(tmp_path, node, address, "--memory", "1Gi", "--eviction-hard", "")
    try:
        found = evicted(client, name)
        assert found.message.startswith("The node was low on resource: memory. ")
        client.delete("pod", name)
        gone(client, name)
    finally:
        second.terminate()


@pytest.mark.row("N110")
def test_a_container_above_its_memory_limit_is_killed_and_restarted_and_its_pod_goes_on(client: Client, tmp_path: Path) -> None:
    with a_node(client, tmp_path) as node:
        pod = holder(node, "limited", 20)
        pod.spec.restart_policy = "Always"
        for amounts in (pod.spec.containers[0].resources.limits, pod.spec.containers[0].resources.requests):
            amounts["memory"].string = "128Mi"
        pod.spec.containers.add(name="calm", command=["sleep", "1000"])
        client.submit(pod)
        name = pod.metadata.name

        def restarted() -> bool:
            return any(one.name == "main" and one.restart_count for one in status(client, name).container_statuses)

        until(restarted, "it is restarted")
        found = {one.name: one for one in status(client, name).container_statuses}
        assert found["calm"].restart_count == 0
        ended = found["main"].last_state.terminated
        assert (ended.reason, ended.exit_code, ended.signal) == ("OOMKilled", 137, 9)
