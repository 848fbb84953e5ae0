"""kubectl reaches into pods on nodes that run them: logs and programs, through the gateway, a replica and a real agent."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from rayched.client import Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.app import ServerOptions
from rayched.store.keys import Keys
from tests.cli.cluster import run_here, started
from tests.gateway.kubectl import KUBECTL, Kubectl
from tests.gateway.requests import ask
from tests.nodes.conftest import no_shim_is_left
from tests.nodes.real_node import AgentProcess, a_pod, in_phase, ready, registered, sh, until
from tests.nodes.streaming import Agents
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.cluster
__all__ = ["no_shim_is_left"]

NODE = "runs-for-kubectl"
TOKEN = "a token that is long enough"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def replica(etcd: EtcdServer) -> Iterator[Serving]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/kubectl-{os.getpid()}"))) as found:
        yield found


@pytest.fixture(scope="module")
def client(replica: Serving) -> Iterator[Client]:
    with Client(replica.address, timeout_seconds=20.0) as found:
        yield found


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, client: Client, token: Path) -> Iterator[AgentProcess]:
    with Agents() as begin:
        found = begin(tmp_path_factory.mktemp("node"), NODE, client.endpoints[0], "--stream-token-file", str(token))
        registered(client, NODE)
        yield found


@pytest.fixture(scope="module")
def url(replica: Serving) -> Iterator[str]:
    with started("gateway", "--listen", "127.0.0.1:0", "--server", replica.address) as running:
        yield running.line_with("is served at").rpartition(" ")[2]


@pytest.fixture(scope="module")
def kubectl(url: str, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    if KUBECTL is None:
        pytest.skip("there is no kubectl on this host")
    directory = tmp_path_factory.mktemp("kubectl")
    file = directory / "kubeconfig"
    assert run_here(["kubeconfig", "--gateway", url, "-o", str(file)]).code == 0
    return Kubectl(file, directory)


def a_running_pod(client: Client, *command: str) -> str:
    name = f"pod-{next(_numbers)}"
    client.submit(a_pod(NODE, name, *command))
    ready(client, name)
    return name


@pytest.mark.row("KC23")
def test_kubectl_prints_and_follows_logs(client: Client, agent: AgentProcess, kubectl: Kubectl) -> None:
    name = f"pod-{next(_numbers)}"
    client.submit(a_pod(NODE, name, *sh("for i in 1 2 3; do echo line $i; done")))
    in_phase(client, name, "Succeeded")
    assert kubectl.ok("logs", name) == ["line 1", "line 2", "line 3"]
    assert kubectl.ok("logs", name, "--tail=1") == ["line 3"]
    stamped = kubectl.ok("logs", name, "--timestamps")
    assert stamped[0].endswith(" line 1") and stamped[0][:2] == "20"
    assert "previous terminated container" in kubectl.refused("logs", name, "-p")
    assert 'pods "nobody" not found' in kubectl.refused("logs", "nobody")
    follows = a_running_pod(client, *sh("while :; do echo tick; sleep 0.2; done"))
    with kubectl.started("logs", "-f", follows) as running:
        assert [running.line() for _ in range(5)] == ["tick"] * 5


@pytest.mark.row("KC36")
def test_kubectl_shows_what_nodes_and_pods_use(client: Client, agent: AgentProcess, url: str, kubectl: Kubectl) -> None:
    name = a_running_pod(client, *sh("while :; do :; done"))
    until(lambda: kubectl("top", "pod", name).code == 0, "the agent has measured twice", SECONDS_MAX)
    headings, row = (line.split() for line in kubectl.ok("top", "pod", name))
    assert headings == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert row[0] == name and int(row[1].removesuffix("m")) > 0 and row[2].endswith("Mi")
    nodes = [line.split() for line in kubectl.ok("top", "nodes")]
    assert nodes[1][0] == NODE and nodes[1][2].endswith("%")
    assert name in "\n".join(kubectl.ok("top", "pods", "-A", "--containers"))
    found = ask(url, f"/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/{name}").document
    assert (found["kind"], [one["name"] for one in found["containers"]]) == ("PodMetrics", ["main"])
    assert ask(url, "/apis/metrics.k8s.io/v1beta1/nodes/nobody").status == 404
    assert ask(url, "/apis/metrics.k8s.io/v1beta1/nodes", "DELETE").status == 405


@dataclass
class Executed:
    """What a program wrote, and the Status of its end."""

    out: bytes = b""
    errors: bytes = b""
    status: dict[str, Any] = field(default_factory=dict)


SECONDS_MAX = 60.0


async def _execute(url: str, pod: str, command: tuple[str, ...], data: bytes | None, token: str) -> Executed:
    """As kubectl does it, with the token that it would send over TLS."""
    found = Executed()
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    query += [] if data is None else [("stdin", "true")]
    place = f"{url}/api/v1/namespaces/default/pods/{pod}/exec?{urlencode(query)}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(place, protocols=("v5.channel.k8s.io",), headers=headers) as socket,
    ):
        assert socket.protocol == "v5.channel.k8s.io"
        # Both at once: a program that answers while it reads would wait for us otherwise.
        sending = asyncio.create_task(_send(socket, data))
        async for message in socket:
            channel, text = message.data[0], message.data[1:]
            if channel == 1:
                found.out += text
            elif channel == 2:
                found.errors += text
            elif channel == 3:
                found.status = json.loads(text)
        await sending
    return found


async def _send(socket: aiohttp.ClientWebSocketResponse, data: bytes | None) -> None:
    if data is None:
        return
    for start in range(0, len(data), 10_000):
        await socket.send_bytes(b"\0" + data[start : start + 10_000])
    await socket.send_bytes(b"\xff\0")


def execute(url: str, pod: str, *command: str, data: bytes | None = None, token: str = TOKEN) -> Executed:
    return asyncio.run(asyncio.wait_for(_execute(url, pod, command, data, token), SECONDS_MAX))


@pytest.mark.row("KC24")
def test_a_program_has_its_input_its_output_and_its_exit_code(client: Client, agent: AgentProcess, url: str) -> None:
    name = a_running_pod(client, "sleep", "1000")
    plain = execute(url, name, "echo", "two words", "")
    assert (plain.out, plain.errors, plain.status["status"]) == (b"two words \n", b"", "Success")
    failed = execute(url, name, *sh("echo out; echo wrong >&2; exit 7"))
    assert (failed.out, failed.errors) == (b"out\n", b"wrong\n")
    assert failed.status["reason"] == "NonZeroExitCode"
    assert failed.status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
    data = os.urandom(1_000_000)
    assert execute(url, name, "cat", data=data).out == data


@pytest.mark.row("KC24")
def test_who_does_not_know_the_nodes_token_runs_nothing(
    client: Client, agent: AgentProcess, url: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    name = a_running_pod(client, "sleep", "1000")
    touch = ("touch", str(tmp_path / "done"))
    assert "exec needs the token of the node" in kubectl.refused("exec", name, "--", *touch)
    for token in ("", "another token that is long enough"):
        refused = execute(url, name, *touch, token=token)
        assert (refused.status["status"], refused.out) == ("Failure", b"")
    assert not (tmp_path / "done").exists()
    assert execute(url, name, *touch).status["status"] == "Success"
    assert (tmp_path / "done").exists()
