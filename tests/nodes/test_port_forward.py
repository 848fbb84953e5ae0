"""Ports of pods through replicas and real agents, by the real command."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import socket
import sys
import threading
from collections.abc import Iterator

import grpc
import pytest

from rayched.client import ApiError, AsyncClient, Client
from rayched.client.forwarding import PortForwarder
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.nodes.real_node import PATIENCE_SECONDS, AgentProcess, a_pod, ready, registered, until
from tests.nodes.streaming import Agents, run, running
from tests.server.serving import serving

NODE = "forwards"
TOKEN = "a token that is long enough"
SIZE = 100 << 20
ECHO = """
import socket, sys, threading
def echo(one):
    with one:
        while data := one.recv(1 << 16):
            one.sendall(data)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],)).start()
"""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/forward-{os.getpid()}"))
    with serving(options) as found, Client(found.address, timeout_seconds=20.0) as asking:
        yield asking


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("token") / "token"
    path.touch(0o600)
    path.write_text(TOKEN)
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def agent(client: Client, token: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with Agents() as begin:
        found = begin(tmp_path_factory.mktemp("node"), NODE, client.endpoints[0], "--stream-token-file", token)
        registered(client, NODE)
        yield found


def running_pod(client: Client, *arguments: str) -> str:
    pod = a_pod(NODE, f"pod-{next(_numbers)}", sys.executable, "-c", *arguments)
    client.submit(pod)
    ready(client, pod.metadata.name)
    return pod.metadata.name


@pytest.fixture(scope="module")
def echo(client: Client) -> tuple[str, int]:
    """A pod that echoes, and its port."""
    (port,) = free_ports(1)
    name = running_pod(client, ECHO, str(port))

    def listens() -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    until(listens, "it listens")
    return name, port


def sent_and_received(port: int, size: int) -> tuple[str, str]:
    """Digests of so many bytes, as they went and as they came back."""
    went, came = hashlib.sha256(), hashlib.sha256()
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.settimeout(PATIENCE_SECONDS)

        def send() -> None:
            block = os.urandom(1 << 20)
            for number in range(size >> 20):
                data = block[number:] + block[:number]
                went.update(data)
                one.sendall(data)
            one.shutdown(socket.SHUT_WR)

        sending = threading.Thread(target=send)
        sending.start()
        while data := one.recv(1 << 16):
            came.update(data)
        sending.join()
    return went.hexdigest(), came.hexdigest()


@pytest.mark.row("N123")
def test_a_hundred_megabytes_come_back_as_they_went(client: Client, token: str, echo: tuple[str, int]) -> None:
    name, port = echo
    with running(client.endpoints[0], "port-forward", name, f":{port}", "--token-file", token) as process:
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        here, there = said.removeprefix("Forwarding from 127.0.0.1:").split(" -> ")
        assert int(there) == port
        went, came = sent_and_received(int(here), SIZE)
        assert went == came
        assert process.stdout.readline().decode() == f"Handling connection for {here}\n"
        assert process.poll() is None


@pytest.mark.row("N123")
def test_a_connection_that_is_opened_while_all_is_closed_ends_as_well(client: Client, echo: tuple[str, int]) -> None:
    name, port = echo
    closing: list[PortForwarder] = []

    def close(port: int) -> None:
        assert port == closing[0].port
        # Told before the stream of the connection is there, so this cannot have seen that one.
        closing[0].close()

    with client.port_forward(name, port, token=TOKEN, accepted=close) as forwarder:
        closing.append(forwarder)
        with socket.create_connection(("127.0.0.1", forwarder.port), timeout=20.0) as connection:
            assert connection.recv(1) == b""


@pytest.mark.row("N123")
def test_connections_are_apart_and_one_that_is_not_read_holds_up_no_other(client: Client, echo: tuple[str, int]) -> None:
    name, port = echo
    with (
        client.port_forward(name, port, token=TOKEN) as forwarder,
        socket.create_connection(("127.0.0.1", forwarder.port)) as slow,
    ):
        slow.settimeout(2.0)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 4 * SIZE:
                sent += slow.send(b"x" * (1 << 16))
        # Its buffers are full all the way, and bounded: those of six sockets, and gRPC's, which grow with what passes.
        assert sent < 2 * SIZE
        went, came = sent_and_received(forwarder.port, 4 << 20)
        assert went == came


def test_the_client_for_asyncio_forwards_as_well(client: Client, echo: tuple[str, int]) -> None:
    name, port = echo
    failures: list[ApiError] = []

    async def play() -> None:
        async with AsyncClient(client.endpoints[0]) as asked:
            async with asked.port_forward(name, port, token=TOKEN) as forwarder:
                went, came = await asyncio.to_thread(sent_and_received, forwarder.port, 4 << 20)
                assert went == came
            async with asked.port_forward(name, port, failed=failures.append) as forwarder:
                reader, writer = await asyncio.open_connection("127.0.0.1", forwarder.port)
                assert await reader.read() == b""
                writer.close()

    asyncio.run(play())
    assert failures[0].code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.row("N123")
def test_a_port_on_which_nobody_listens_and_other_faults_are_told(client: Client, token: str, echo: tuple[str, int]) -> None:
    name, _ = echo
    (nobody,) = free_ports(1)
    failures: list[ApiError] = []
    with (
        client.port_forward(name, nobody, token=TOKEN, failed=failures.append) as forwarder,
        socket.create_connection(("127.0.0.1", forwarder.port)) as one,
    ):
        assert one.recv(1) == b""
        until(lambda: failures, "the failure is told")
    assert failures[0].message == f'pod "{name}": cannot connect to port {nobody}: Connection refused'
    address = client.endpoints[0]
    waits = a_pod("", f"pod-{next(_numbers)}", "true")
    waits.spec.scheduling_gates.add(name="waits")
    client.submit(waits)
    code, _, errors = run(address, "port-forward", waits.metadata.name, "80")
    assert (code, errors) == (1, "error: unable to forward port because pod is not running. Current status=Pending\n")
    for pair in ("0", "80:x", "70000", "1:2:3"):
        wanted = f"error: port {pair!r}: want [LOCAL:]REMOTE, each of 1 to 65535\n"
        assert run(address, "port-forward", name, pair)[::2] == (2, wanted)
