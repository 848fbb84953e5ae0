"""The agent killed between the steps of a start and of an end: the next one goes on as if that had not been."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.nodes.dying_agent import POINTS
from tests.nodes.real_node import a_pod, agent_thread, get, gone, in_phase, processes, registered, settings, sh, until
from tests.server.serving import serving

_numbers = itertools.count(1)
OF_A_START = ("accepted", "attempt made", "spec written", "start asked", "start answered", "end heard", "end reported")
OF_A_DELETION = ("ending written", "stop asked", "removal reported")


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/failpoints-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


def dying_agent(point: str, root: Path, node: str, address: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.nodes.dying_agent", point, "node", node, "--server", address, "--root-dir", str(root)]
    command += [
        "--heartbeat",
        "0.5",
        "--crash-loop-max-period",
        "1s",
        "--allow-root-pods",
        "--pod-user",
        str(os.geteuid()),
        "--cpu",
        "64",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def died(agent: subprocess.Popen[str]) -> None:
    output, _ = agent.communicate(timeout=90)
    assert agent.returncode == -9, output


def test_every_point_is_tried() -> None:
    assert {*OF_A_START, *OF_A_DELETION} == set(POINTS)


@pytest.mark.row("N61")
@pytest.mark.parametrize("point", OF_A_START)
def test_a_start_and_an_end_are_as_if_the_agent_had_not_died(client: Client, tmp_path: Path, point: str) -> None:
    """Two containers' worth of steps: one that fails once and is restarted, and one that ends well."""
    node, notes = f"fail-{next(_numbers)}", tmp_path / "notes"
    notes.mkdir()
    agent = dying_agent(point, tmp_path / "node", node, client.endpoints[0])
    registered(client, node)
    once = a_pod(node, f"once-{node}", *sh(f"echo $RAYCHED_ATTEMPT >> {notes}/once; sleep 0.5; exit 3"))
    client.submit(once)
    died(agent)
    again = a_pod(
        node, f"again-{node}", *sh(f"echo $RAYCHED_ATTEMPT >> {notes}/again; [ $RAYCHED_ATTEMPT = 1 ]"), policy="OnFailure"
    )
    client.submit(again)
    with agent_thread(settings(tmp_path / "node", node), client.endpoints[0]):
        found = in_phase(client, f"once-{node}", "Failed").container_statuses[0]
        assert (found.state.terminated.exit_code, found.restart_count) == (3, 0)
        in_phase(client, f"again-{node}", "Succeeded")
        assert (notes / "once").read_text().split() == ["0"], "an attempt was started twice, or never"
        assert (notes / "again").read_text().split() == ["0", "1"]
        assert not processes(client, f"once-{node}")
        for name in (f"once-{node}", f"again-{node}"):
            client.delete("pod", name)
            gone(client, name)


@pytest.mark.row("N61")
@pytest.mark.parametrize("point", OF_A_DELETION)
def test_a_deletion_is_as_if_the_agent_had_not_died(client: Client, tmp_path: Path, point: str) -> None:
    node, notes = f"fail-{next(_numbers)}", tmp_path / "notes"
    name = f"deleted-{node}"
    agent = dying_agent(point, tmp_path / "node", node, client.endpoints[0])
    registered(client, node)
    script = f"trap 'echo asked >> {notes}; exit 0' TERM; echo started >> {notes}; while :; do sleep 0.1; done"
    client.submit(a_pod(node, name, *sh(script), policy="Always", grace=20))
    in_phase(client, name, "Running")
    until(notes.exists, "it runs")
    pids = processes(client, name)
    assert len(pids) >= 1
    client.delete("pod", name)
    died(agent)
    with agent_thread(settings(tmp_path / "node", node), client.endpoints[0]):
        gone(client, name)
        assert notes.read_text().split() == ["started", "asked"], "it was asked once, and started once"
        assert get(client, name) is None and not list((tmp_path / "node" / "pods").glob("*/containers/main/1"))
