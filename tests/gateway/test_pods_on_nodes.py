"""kubectl reaches into pods on nodes that run them: logs, programs and ports, through the gateway, a replica and a real agent."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as kubernetes_client
from kubernetes.stream import portforward, stream

from rayched.client import Client
from rayched.gateway.spdy_frames import ResetReason, SpdyPing, SpdyReset
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.app import ServerOptions
from rayched.store.keys import Keys
from tests.cli.cluster import run_here, started
from tests.gateway import raw_exec
from tests.gateway.kubectl import KUBECTL, Kubectl
from tests.gateway.port_forwarding import port_forward, tls_before
from tests.gateway.raw_exec import SECONDS_MAX, Executed
from tests.gateway.requests import ask
from tests.nodes.conftest import no_shim_is_left
from tests.nodes.real_node import AgentProcess, a_pod, in_phase, ready, registered, sh, until
from tests.nodes.streaming import Agents
from tests.nodes.test_port_forward import ECHO, sent_and_received
from tests.pki.made import SERVER, a_pair, an_authority
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


def execute(url: str, pod: str, *command: str, data: bytes | None = None, token: str = TOKEN) -> Executed:
    return raw_exec.execute(url, pod, *command, data=data, token=token)


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


def a_listening_pod(client: Client, program: str) -> tuple[str, int]:
    """One that runs a program of Python, which listens at the port that it is given; and that port."""
    (port,) = free_ports(1)
    name = a_running_pod(client, sys.executable, "-c", program, str(port))

    def listens() -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    until(listens, "it listens", SECONDS_MAX)
    return name, port


@pytest.fixture(scope="module")
def echo(client: Client, agent: AgentProcess) -> tuple[str, int]:
    """A pod that echoes what comes to a port, and that port."""
    return a_listening_pod(client, ECHO)


@pytest.fixture(scope="module")
def token_flags(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """For kubectl, which sends a token over TLS alone."""
    files = a_pair(an_authority(), [], [SERVER]).write(tmp_path_factory.mktemp("front"))
    with tls_before(url, files) as front:
        yield ["--server", front, "--insecure-skip-tls-verify", "--token", TOKEN]


@pytest.mark.row("KC37")
def test_kubectl_reaches_a_port_of_a_pod_with_all_connections_over_one_socket(
    echo: tuple[str, int], kubectl: Kubectl, token_flags: list[str]
) -> None:
    name, port = echo
    with kubectl.started(*token_flags, "port-forward", f"pod/{name}", f":{port}") as running:
        here = int(running.line_with("Forwarding from 127.0.0.1:").partition("127.0.0.1:")[2].partition(" ")[0])
        with socket.create_connection(("127.0.0.1", here), timeout=SECONDS_MAX) as idle:
            for _ in range(2):
                went, came = sent_and_received(here, 8 << 20)
                assert went == came
            idle.sendall(b"still there")
            idle.shutdown(socket.SHUT_WR)
            assert idle.makefile("rb").read() == b"still there"
        assert running.process.poll() is None


@pytest.mark.row("KC37")
def test_why_a_port_cannot_be_reached_is_told_of_each_connection(echo: tuple[str, int], url: str) -> None:
    name, port = echo
    (closed,) = free_ports(1)

    async def refused(pod: str, port: int, token: str) -> str:
        async with port_forward(url, pod, token) as forward:
            data, why = await forward.said(*await forward.connect(port))
        assert data == b""
        return why.decode()

    assert f"cannot connect to port {closed}: Connection refused" in asyncio.run(refused(name, closed, TOKEN))
    assert "port-forward needs the token of the node" in asyncio.run(refused(name, port, ""))
    assert "another token than that of the node" in asyncio.run(refused(name, port, "another token that is long enough"))
    assert "not found" in asyncio.run(refused("nobody", port, TOKEN))


@pytest.mark.row("KC37")
def test_streams_that_are_none_are_reset_and_the_others_go_on(echo: tuple[str, int], url: str) -> None:
    name, port = echo
    wrong = [("data", port, "0"), ("error", port, ""), ("x", port, "1"), ("data", 0, "2"), ("data", "+1", "3")]

    async def tried() -> list[bytes]:
        async with port_forward(url, name, TOKEN) as forward:
            streams = await forward.connect(port)
            for kind, at, request in wrong:
                reset = SpdyReset(await forward.open(kind, at, request))
                while await forward.frame() != reset:
                    pass
            given_up, _ = await forward.connect(port, "4")
            await forward.send(forward.writer.reset(given_up, ResetReason.PROTOCOL_ERROR))
            await forward.send(forward.writer.pong(1))
            while await forward.frame() != SpdyPing(1):
                pass
            for part in (b"one, ", b"two"):
                await forward.send(forward.writer.data(streams[0], part))
            await forward.send(forward.writer.data(streams[0], b"", is_last=True))
            return await forward.said(*streams)

    assert asyncio.run(tried()) == [b"one, two", b""]


@pytest.mark.row("KC37")
def test_bytes_that_are_no_frames_end_their_port_forward_alone(echo: tuple[str, int], url: str) -> None:
    name, port = echo

    async def tried() -> None:
        async with port_forward(url, name, TOKEN) as other, port_forward(url, name, TOKEN) as forward:
            streams = await other.connect(port)
            await forward.send(b"\xff" * 100)
            with pytest.raises(ConnectionError):
                while True:
                    await forward.frame()
            await other.send(other.writer.data(streams[0], b"goes on", is_last=True))
            assert await other.said(*streams) == [b"goes on", b""]

    asyncio.run(tried())
    plain = ask(url, f"/api/v1/namespaces/default/pods/{name}/portforward", "POST", headers={"Upgrade": "SPDY/3.1"})
    assert plain.status == 400 and "is served over WebSockets" in plain.document["message"]


@pytest.mark.row("KC38")
def test_kubectl_attaches_to_what_a_container_writes_from_then_on_until_it_ends(
    client: Client, agent: AgentProcess, kubectl: Kubectl, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    name = a_running_pod(client, *sh(f"echo before; until [ -e {stop} ]; do echo tick; sleep 0.2; done; echo last >&2"))
    until(lambda: "tick" in kubectl("logs", name).out, "it writes", SECONDS_MAX)
    assert "containers have no standard input here" in kubectl.refused("attach", name, "-i")
    assert "not found" in kubectl.refused("attach", name, "-c", "another")
    with kubectl.started("attach", name) as running:
        assert [running.line() for _ in range(3)] == ["tick"] * 3
        stop.touch()
        assert running.line_with("last") and running.process.wait(SECONDS_MAX) == 0


GREETER = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        with listener.accept()[0] as one:
            one.sendall(b"hello")
"""


@pytest.fixture(scope="module")
def official(url: str) -> Any:
    """The official Python client, with the node's token."""
    configuration = kubernetes_client.Configuration(host=url, api_key={"authorization": f"Bearer {TOKEN}"})
    return kubernetes_client.CoreV1Api(kubernetes_client.ApiClient(configuration))


@pytest.mark.row("KC41")
def test_the_official_client_runs_programs_and_attaches(
    client: Client, agent: AgentProcess, official: Any, tmp_path: Path
) -> None:
    name, stop = a_running_pod(client, "sleep", "1000"), tmp_path / "stop"

    def run(pod: str, *command: str, **more: Any) -> Any:
        program = {"command": list(command), "stdout": True, "stderr": True}
        return stream(official.connect_get_namespaced_pod_exec, pod, "default", **program, **more)

    assert run(name, "echo", "two words") == "two words\n"
    reads = run(name, *sh("cat; echo wrong >&2; exit 3"), stdin=True, _preload_content=False)
    reads.write_stdin("texts, ")
    reads.write_stdin(b"and bytes")
    reads.close_channel(0)
    reads.run_forever(timeout=SECONDS_MAX)
    assert (reads.read_stdout(), reads.read_stderr(), reads.returncode) == ("texts, and bytes", "wrong\n", 3)
    for refused, words in (
        (lambda: run("nobody", "true"), "404 Not Found"),
        (lambda: run(name, "no-such-program"), "400 Bad Request"),
        (lambda: run(name, "true", stdin=True, tty=True, container="another"), "container another is not valid"),
        (lambda: stream(official.connect_get_namespaced_pod_attach, "nobody", "default"), "404 Not Found"),
        (lambda: stream(official.connect_get_namespaced_pod_attach, name, "default", stdin=True), "no standard input"),
    ):
        with pytest.raises(kubernetes_client.ApiException) as raised:
            refused()
        assert words in str(raised.value), raised.value
    ticks = a_running_pod(client, *sh(f"until [ -e {stop} ]; do echo tick; sleep 0.2; done"))
    attached = stream(
        official.connect_get_namespaced_pod_attach, ticks, "default", stdout=True, stderr=True, _preload_content=False
    )
    assert [attached.readline_stdout(timeout=SECONDS_MAX) for _ in range(3)] == ["tick"] * 3
    stop.touch()
    attached.run_forever(timeout=SECONDS_MAX)
    assert attached.returncode == 0


@pytest.mark.row("KC41")
def test_the_official_client_reaches_ports_of_a_pod_and_is_told_why_it_does_not(
    client: Client, echo: tuple[str, int], official: Any
) -> None:
    name, port = echo
    (closed,) = free_ports(1)

    def forwarded(pod: str, *ports: int) -> Any:
        named = ",".join(map(str, ports))
        return portforward(official.connect_get_namespaced_pod_portforward, pod, "default", ports=named)

    def received(one: Any, size: int) -> bytes:
        found = b""
        one.settimeout(SECONDS_MAX)
        while len(found) < size and (data := one.recv(1 << 16)):
            found += data
        return found

    both = forwarded(name, port, closed)
    until(lambda: bool(both.error(closed)), "it says why", SECONDS_MAX)
    assert f"error forwarding port {closed} to pod {name}" in both.error(closed) and "refused" in both.error(closed)
    data = os.urandom(300_000)
    both.socket(port).sendall(data)
    assert received(both.socket(port), len(data)) == data and both.error(port) is None
    both.close()
    until(lambda: not both.connected, "it is over", SECONDS_MAX)
    with pytest.raises(kubernetes_client.ApiException) as raised:
        forwarded("nobody", port)
    assert "404 Not Found" in str(raised.value)
    greeter, there = a_listening_pod(client, GREETER)
    short = forwarded(greeter, there)
    # The pod has said all, so the socket is closed.
    assert received(short.socket(there), 100) == b"hello"
    until(lambda: not short.connected, "it is over", SECONDS_MAX)


@pytest.mark.row("KC18", "KC41")
def test_only_the_gateways_own_origin_opens_a_socket(client: Client, agent: AgentProcess, url: str) -> None:
    place = f"/api/v1/namespaces/default/pods/{a_running_pod(client, 'sleep', '1000')}/attach?stdout=true"
    own = url.removeprefix("http://")
    handshake = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    }
    port = own.rpartition(":")[2]
    for origin, code in (
        (f"http://{own}", 101),
        (f"HTTP://{own}", 101),
        (f"https://{own}", 403),
        ("http://127.0.0.1:1", 403),
        (f"http://localhost:{port}", 403),
        (f"http://{own}.example.com", 403),
        ("http://example.com", 403),
        ("null", 403),
        ("", 403),
    ):
        answer = ask(url, place, headers={**handshake, "Origin": origin})
        assert answer.status == code, origin
    rebound = {"Host": f"rebound.example:{port}", "Origin": f"http://rebound.example:{port}"}
    assert ask(url, place, headers={**handshake, **rebound}).status == 403
    assert ask(url, place, headers={**handshake, "Origin": url, "Sec-Fetch-Site": "cross-site"}).status == 403
    # What is no handshake has no Origin, not even this one.
    for method in ("GET", "POST"):
        assert ask(url, "/api/v1/pods", method, headers={"Origin": url}).status == 403
        assert ask(url, place, method, headers={"Origin": url, "Upgrade": "SPDY/3.1"}).status == 403
    assert ask(url, "/api/v1/pods", "POST", headers={**handshake, "Origin": url}).status == 403
