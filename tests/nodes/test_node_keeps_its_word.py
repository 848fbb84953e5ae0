"""What a node promises: nothing accepted is judged again, nothing that lives is called ended, other nodes live beside it."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from tests.cli.cluster import run_here
from tests.nodes.real_node import (
    GI,
    AgentProcess,
    a_pod,
    agent_thread,
    gone,
    in_phase,
    processes,
    registered,
    settings,
    sh,
    status,
    text_of,
    until,
)
from tests.server.serving import serving

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/keeps-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@pytest.fixture
def node() -> str:
    return f"keeps-{next(_numbers)}"


def run(client: Client, pod: Pod) -> str:
    client.submit(pod)
    return pod.metadata.name


@pytest.mark.row("N19", "N20", "N21")
def test_what_was_accepted_stays_after_a_relabel_and_a_smaller_node_and_what_has_ended_holds_nothing(
    client: Client, node: str, tmp_path: Path
) -> None:
    with agent_thread(settings(tmp_path, node, labels={"disktype": "ssd"}), client.endpoints[0]):
        registered(client, node)
        picky, done = a_pod(node, f"picky-{node}", "sleep", "1000"), a_pod(node, f"done-{node}", *sh("exit 0"))
        picky.spec.node_selector["disktype"] = "ssd"
        for pod, cpu in ((picky, "30"), (done, "30")):
            pod.spec.containers[0].resources.requests["cpu"].string = cpu
            run(client, pod)
        in_phase(client, picky.metadata.name, "Running")
        in_phase(client, done.metadata.name, "Succeeded")
        pids = processes(client, picky.metadata.name)
    client.label("node", node, add={"disktype": "hdd"}, overwrite=True)
    small = settings(tmp_path, node)
    small = replace(small, size=replace(small.size, capacity={**small.size.capacity, "cpu": 40_000}))
    with agent_thread(small, client.endpoints[0]):
        until(lambda: registered(client, node).status.capacity["cpu"].string == "40", "it is smaller")
        fits = a_pod(node, f"fits-{node}", "sleep", "1000")
        fits.spec.containers[0].resources.requests["cpu"].string = "10"
        in_phase(client, run(client, fits), "Running")
    smaller = replace(small, size=replace(small.size, capacity={**small.size.capacity, "cpu": 20_000}))
    with agent_thread(smaller, client.endpoints[0]):
        until(lambda: registered(client, node).status.capacity["cpu"].string == "20", "it is smaller than what it runs")
        time.sleep(1.0)
        assert processes(client, picky.metadata.name) == pids and status(client, fits.metadata.name).phase == "Running"
        for pod in (picky, fits):
            client.delete("pod", pod.metadata.name)
            gone(client, pod.metadata.name)


@pytest.mark.row("N53")
def test_no_pod_is_called_ended_while_a_process_of_it_lives(client: Client, node: str, tmp_path: Path) -> None:
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        registered(client, node)
        revision = client.list_all("pods").revision
        scripts = (
            "(setsid sleep 1001 &); exit 0",
            "(setsid sh -c 'trap \"\" TERM; sleep 1002' &); sleep 0.3; exit 3",
            "sleep 1003 & sleep 0.2; kill -9 $$$$",
        )
        names = [run(client, a_pod(node, f"leaves-{number}-{node}", *sh(text))) for number, text in enumerate(scripts * 3)]
        ended: dict[str, int] = {}
        with client.watch("pods", start_revision=revision + 1, timeout_seconds=60.0) as events:
            for event in events:
                assert isinstance(event.object, Pod)
                if event.object.status.phase in ("Succeeded", "Failed"):
                    metadata = event.object.metadata
                    ended[metadata.name] = len(list(proc_table.processes_of_pod(metadata.uid)))
                if len(ended) == len(names):
                    break
        assert ended == dict.fromkeys(names, 0)


@pytest.mark.row("N4")
def test_a_heartbeat_leaves_the_nodes_object_alone(client: Client, node: str, tmp_path: Path) -> None:
    with agent_thread(settings(tmp_path, node, heartbeat_seconds=0.1), client.endpoints[0]):
        registered(client, node)
        time.sleep(1.0)
        before = registered(client, node).metadata.resource_version
        time.sleep(2.0)
        assert registered(client, node).metadata.resource_version == before


def waits_for(client: Client, name: str) -> str:
    """The reason for which its container waits; empty: it has told of none."""
    statuses = status(client, name).container_statuses
    return statuses[0].state.waiting.reason if statuses else ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run pods as others")
@pytest.mark.row("N44")
def test_an_agent_that_is_root_runs_pods_as_the_users_that_it_allows(client: Client, node: str) -> None:
    # Other users have to reach what is theirs, which they cannot below the directory of the tests.
    root = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        root.chmod(0o711)
        chosen = settings(root / "node", node)
        policy = replace(chosen.policy, pod_user=65534, pod_group=65534, allow_root=False, allowed_users=((1000, 2000),))
        with agent_thread(replace(chosen, policy=policy), client.endpoints[0]):
            found: dict[int | None, str] = {}
            for user in (None, 1234, 5, 0):
                pod = a_pod(node, f"user-{len(found)}-{node}", *sh("id -u; id -g; touch mine && echo wrote"))
                if user is not None:
                    pod.spec.containers[0].security_context.run_as_user = user
                found[user] = run(client, pod)
            for user, group in ((None, "65534"), (1234, "1234")):
                in_phase(client, found[user], "Succeeded")
                assert text_of(root / "node", found[user]) == [group, group, "wrote"]
            for user, words in ((5, "runAsUser 5 is not allowed on this node"), (0, "cannot run as user 0")):
                until(lambda user=user: waits_for(client, found[user]) == "CreateContainerConfigError", "it waits")  # type: ignore[misc]
                assert words in status(client, found[user]).container_statuses[0].state.waiting.message
            for name in found.values():
                client.delete("pod", name)
                gone(client, name)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.row("K10.13", "N108")
def test_the_kernel_has_the_scores_or_the_lowest_that_it_allows(client: Client, node: str, tmp_path: Path) -> None:
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        pods = {name: a_pod(node, f"{name}-{node}", "sleep", "1000") for name in ("best-effort", "burstable", "guaranteed")}
        pods["burstable"].spec.containers[0].resources.requests["memory"].string = str(2 * GI)
        for name, text in (("cpu", "1"), ("memory", "64Mi")):
            pods["guaranteed"].spec.containers[0].resources.requests[name].string = text
            pods["guaranteed"].spec.containers[0].resources.limits[name].string = text
        scores = {}
        for name, pod in pods.items():
            in_phase(client, run(client, pod), "Running")
            (pid,) = processes(client, pod.metadata.name)
            scores[name] = int(Path(f"/proc/{pid}/oom_score_adj").read_text())
            client.delete("pod", pod.metadata.name)
        own = int(Path("/proc/self/oom_score_adj").read_text())
        assert (scores["best-effort"], scores["burstable"]) == (1000, max(750, own))
        assert -997 <= scores["guaranteed"] <= own


@pytest.mark.row("N12")
def test_the_table_of_nodes_shows_what_runs_their_pods(client: Client, node: str, tmp_path: Path) -> None:
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        registered(client, node)
        result = run_here(["get", "node", node, "-o", "wide", "--server", client.endpoints[0]])
        assert result.code == 0
        row = dict(zip(result.lines[0].split(), result.lines[1].split(), strict=True))
        assert (row["STATUS"], row["VERSION"], row["CONTAINER-RUNTIME"]) == ("Ready", "rayched-1.0", "process://1.0")


@pytest.mark.row("N128")
def test_hollow_and_real_nodes_live_in_one_cluster(client: Client, node: str, tmp_path: Path) -> None:
    hollow = HollowNodes(client, hollow_nodes(1, 0, NodeShape(), f"hollow-{node}"), heartbeat_seconds=0.5)
    hollow.register()
    hollow.start()
    try:
        with agent_thread(settings(tmp_path, node), client.endpoints[0]):
            real = run(client, a_pod(node, f"real-{node}", "sleep", "1000"))
            other = run(client, a_pod(f"hollow-{node}-000", f"hollow-{node}", "sleep", "1000"))
            in_phase(client, real, "Running")
            in_phase(client, other, "Running")
            assert len(processes(client, real)) == 1 and not processes(client, other)
            for name in (real, other):
                client.delete("pod", name)
                gone(client, name)
    finally:
        hollow.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB and 2,000 inodes."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=2000", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this host lets nobody mount a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.row("N102", "N103")
@pytest.mark.parametrize(
    ("threshold", "script", "resource"),
    [
        ("nodefs.available<32Mi", "for i in $(seq 40); do head -c 1000000 /dev/zero > $i; sleep 0.05; done", "ephemeral-storage"),
        ("nodefs.inodesFree<800", "for i in $(seq 1500); do echo > $i; done", "inodes"),
    ],
)
def test_who_fills_the_disk_is_evicted_after_what_nobody_needs_was_removed(
    client: Client, node: str, small_disk: Path, threshold: str, script: str, resource: str
) -> None:
    root = small_disk / "node"
    agent = AgentProcess(root, node, client.endpoints[0], "--eviction-hard", threshold)
    try:
        calm = a_pod(node, f"calm-{node}", *sh("head -c 100000 /dev/zero > x; sleep 1000"))
        ended = a_pod(node, f"ended-{node}", *sh("head -c 8000000 /dev/zero > x; echo done"))
        in_phase(client, run(client, calm), "Running")
        in_phase(client, run(client, ended), "Succeeded")
        writer = run(client, a_pod(node, f"writer-{node}", *sh(f"{script}; sleep 1000")))
        found = in_phase(client, writer, "Failed")
        assert found.reason == "Evicted" and found.message.startswith(f"The node was low on resource: {resource}. ")
        assert status(client, calm.metadata.name).phase == "Running"
        (left,) = root.glob(f"logs/*_{calm.metadata.name}_*")
        assert left.exists() and not list(root.glob(f"logs/*_{ended.metadata.name}_*"))
        for name in (calm.metadata.name, ended.metadata.name, writer):
            client.delete("pod", name, grace_period_seconds=1)
        for name in (calm.metadata.name, ended.metadata.name, writer):
            gone(client, name)
    finally:
        agent.terminate()
