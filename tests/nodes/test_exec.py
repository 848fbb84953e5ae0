"""Programs in containers, through replicas and real agents, by the real command. Each pod names its node itself."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rayched.client import ApiError, AsyncClient, Client
from rayched.nodes.agent.shim import proc_table
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.server.services.node_streams import StreamLimits
from rayched.store.keys import Keys
from rayched.v1.streams_pb2 import ExecRequest, ExecStart
from rayched.v1.streams_pb2_grpc import ExecStub
from tests.nodes.real_node import PATIENCE_SECONDS, AgentProcess, a_pod, in_phase, processes, ready, registered, sh, status, until
from tests.nodes.streaming import Agents, RawExec, done, proof_for, rayched, run, running
from tests.server.serving import Serving, serving

NODE = "executes"
TOKEN = "a token that is long enough"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def replica(etcd: EtcdServer) -> Iterator[Serving]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/exec-{os.getpid()}"))
    with serving(options) as found:
        yield found


@pytest.fixture(scope="module")
def address(replica: Serving) -> str:
    return replica.address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address, timeout_seconds=20.0) as found:
        yield found


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file."""
    return token_file(tmp_path_factory.mktemp("token"), TOKEN)


def token_file(directory: Path, text: str, mode: int = 0o600) -> str:
    path = directory / f"token-{next(_numbers)}"
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return str(path)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, client: Client, token: str) -> Iterator[AgentProcess]:
    """It runs."""
    with Agents() as begin:
        found = begin(tmp_path_factory.mktemp("node"), NODE, client.endpoints[0], "--stream-token-file", token)
        registered(client, NODE)
        yield found


def running_pod(client: Client, *command: str, node: str = NODE) -> str:
    pod = a_pod(node, f"pod-{next(_numbers)}", *(command or ("sleep", "1000")))
    pod.spec.containers[0].env.add(name="MINE", value="own value")
    client.submit(pod)
    ready(client, pod.metadata.name)
    return pod.metadata.name


@pytest.mark.row("N122")
def test_input_output_errors_and_the_exit_code_are_the_programs(
    client: Client, agent: AgentProcess, address: str, token: str
) -> None:
    name = running_pod(client)
    data = os.urandom(3 << 20)
    process = rayched(
        address, "exec", name, "-i", "--token-file", token, "--", *sh("cat; echo wrong >&2; exit 7"), stdin=subprocess.PIPE
    )
    assert done(process, data) == (7, data, "wrong\ncommand terminated with exit code 7\n")
    assert run(address, "exec", name, "--token-file", token, "--", "true") == (0, b"", "")
    code, _, errors = run(address, "exec", name, "--token-file", token, "--", *sh("kill -9 $$"))
    assert (code, errors) == (137, "command terminated with exit code 137\n")


@pytest.mark.row("N122")
def test_output_and_errors_come_at_once_and_more_of_both_than_fits_anywhere(
    client: Client, agent: AgentProcess, address: str, token: str
) -> None:
    """Both wait for the client at the same time."""
    name, size = running_pod(client), 3 << 20
    script = f"head -c {size} /dev/zero >&2 & head -c {size} /dev/zero; wait; exit 3"
    code, out, errors = run(address, "exec", name, "--token-file", token, "--", *sh(script))
    assert (code, len(out)) == (3, size)
    assert len(errors) == size + len("command terminated with exit code 3\n")


@pytest.mark.row("N122")
def test_it_runs_as_the_container_does_and_what_it_leaves_behind_delays_nothing(
    client: Client, agent: AgentProcess, address: str, token: str
) -> None:
    name = running_pod(client, *sh("pwd > $RAYCHED_WORK_DIR/where; sleep 1000"))
    text = 'echo "$MINE/$RAYCHED_POD_NAME/$(id -u)"; cat where; sleep 1000 & echo $!'
    with client.exec(name, sh(text), token=TOKEN) as stream:
        late = threading.Timer(PATIENCE_SECONDS, stream.close)
        late.start()
        lines = b"".join(one.data for one in stream).decode().splitlines()
        late.cancel()
    assert stream.exit_code == 0
    assert lines[0] == f"own value/{name}/{os.geteuid()}" and lines[1].endswith("/work")
    assert int(lines[2]) in processes(client, name)


@pytest.mark.row("N122")
def test_a_terminal_has_its_size_and_follows_it(client: Client, agent: AgentProcess, address: str, token: str) -> None:
    name = running_pod(client)
    own, theirs = pty.openpty()
    sized(own, 40, 100)
    command = ("exec", name, "-i", "-t", "--token-file", token, "--", "sh")
    with running(address, *command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.write(own, b"test -t 0 && test -t 1 && test -t 2 && stty size\n")
        assert heard(own, b"40 100\r\n")
        sized(own, 50, 120)
        process.send_signal(signal.SIGWINCH)
        until_heard(own, b"stty size\n", b"50 120\r\n")
        # Keys are the program's: an interrupt ends what it runs, not the command.
        os.write(own, b"sleep 1000\n")
        until(lambda: len(processes(client, name)) == 3, "it sleeps")
        os.write(own, b"\x03")
        until(lambda: len(processes(client, name)) == 2, "it was interrupted")
        os.write(own, b"exit 3\n")
        assert process.wait(timeout=60) == 3
    os.close(own)
    os.close(theirs)


def sized(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def heard(terminal: int, wanted: bytes, seconds: float = 60.0) -> bool:
    """Whether it came."""
    found, ends_at = b"", time.monotonic() + seconds
    while wanted not in found:
        left = ends_at - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            return False
        found += os.read(terminal, 1 << 16)
    return True


def until_heard(terminal: int, said: bytes, wanted: bytes) -> None:
    for _ in range(20):
        os.write(terminal, said)
        if heard(terminal, wanted, 3.0):
            return
    raise AssertionError(f"{wanted!r} was not heard")


@pytest.mark.row("N122")
def test_who_hangs_up_ends_the_program_and_all_it_began(client: Client, agent: AgentProcess, address: str, token: str) -> None:
    name = running_pod(client)
    (main,) = processes(client, name)
    with running(address, "exec", name, "--token-file", token, "--", *sh("sleep 1001 & (sleep 1002 &) ; sleep 1003")) as process:
        until(lambda: len(processes(client, name)) == 5, "it runs")
        process.send_signal(signal.SIGKILL)
        until(lambda: processes(client, name) == [main], "the program is gone")
    with client.exec(name, ["sleep", "1000"], token=TOKEN):
        until(lambda: len(processes(client, name)) == 2, "it runs")
    until(lambda: processes(client, name) == [main], "the program is gone")
    assert status(client, name).container_statuses[0].restart_count == 0


@pytest.mark.row("N122")
def test_what_has_a_session_of_its_own_or_is_begun_meanwhile_ends_as_well(
    client: Client, agent: AgentProcess, address: str, token: str
) -> None:
    name = running_pod(client)
    (main,) = processes(client, name)
    forks = "while :; do (setsid sleep 1002 &) ; sleep 0.05; done"
    text = f"(setsid sleep 1001 &) ; setsid sh -c '{forks}' & sleep 1003"
    with running(address, "exec", name, "--token-file", token, "--", *sh(text)) as process:
        until(lambda: len(processes(client, name)) >= 8, "it runs")
        process.send_signal(signal.SIGKILL)
        until(lambda: processes(client, name) == [main], "all of it is gone")


@pytest.mark.row("N122")
def test_who_hangs_up_ends_a_program_that_does_not_read_its_input(
    client: Client, agent: AgentProcess, address: str, token: str
) -> None:
    name = running_pod(client)
    (main,) = processes(client, name)
    # Without end, so every pipe and window on the way is full soon, and nobody reads what tells of the end.
    with (
        open("/dev/zero", "rb") as zeros,
        running(address, "exec", name, "-i", "--token-file", token, "--", "sleep", "1000", stdin=zeros) as process,
    ):
        until(lambda: len(processes(client, name)) == 2, "it runs")
        time.sleep(3.0)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        until(lambda: processes(client, name) == [main], "the program is gone")


@pytest.mark.row("N122")
def test_it_ends_with_its_container_and_with_the_agent(
    client: Client, agents: Agents, address: str, token: str, tmp_path: Path
) -> None:
    node = f"node-{next(_numbers)}"
    own = agents(tmp_path, node, address, "--stream-token-file", token)
    registered(client, node)
    short, long = running_pod(client, "sleep", "1000", node=node), running_pod(client, node=node)
    (main,), (other,) = processes(client, short), processes(client, long)
    with running(address, "exec", short, "--token-file", token, "--", "sleep", "1000") as process:
        until(lambda: len(processes(client, short)) == 2, "it runs")
        os.kill(main, signal.SIGKILL)
        assert process.wait(timeout=60) == 137
    with running(address, "exec", long, "--token-file", token, "--", "sleep", "1000") as process:
        until(lambda: len(processes(client, long)) == 2, "it runs")
        own.kill()
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None
        wanted = f"error: Pod default/{long}: the agent of node {node} was cut off in the middle\n"
        assert process.stderr.read().decode() == wanted
        until(lambda: processes(client, long) == [other], "the program is gone")
        assert proc_table.is_alive(other)


def test_what_cannot_be_executed_is_told(client: Client, agent: AgentProcess, address: str, token: str) -> None:
    name = running_pod(client)
    ended = a_pod(NODE, f"pod-{next(_numbers)}", "true")
    client.submit(ended)
    in_phase(client, ended.metadata.name, "Succeeded")

    def refusal(*words: str) -> tuple[int, str]:
        code, out, errors = run(address, "exec", "--token-file", token, *words)
        assert out == b""
        return code, errors

    assert refusal(name) == (2, "error: you must specify at least one command for the container\n")
    code, errors = refusal(name, "--", "no-such\x1b[2J")
    assert code == 1 and errors.startswith('error: container "main": cannot start \'no-such\\') and "\x1b" not in errors
    assert refusal(name, "-c", "odd", "--", "true") == (1, f"error: container odd is not valid for pod {name}\n")
    text = "cannot exec into a container in a completed pod; current phase is Succeeded"
    assert refusal(ended.metadata.name, "--", "true") == (
        1,
        f"error: Pod default/{ended.metadata.name}: {text}\n",
    )


def test_the_client_for_asyncio_executes_as_well(client: Client, agent: AgentProcess, address: str) -> None:
    name = running_pod(client)

    async def play() -> None:
        async with AsyncClient(address) as asked:
            async with asked.exec(name, sh("cat; exit 5"), stdin=True, token=TOKEN) as stream:
                await stream.write(b"x" * 200_000)
                await stream.end_input()
                assert b"".join([one.data async for one in stream]) == b"x" * 200_000
            assert stream.exit_code == 5
            async with asked.exec(name, ["sleep", "1000"], token=TOKEN):
                pass
            with pytest.raises(ApiError) as told:
                async with asked.exec(name, ["true"]):
                    pass
            assert told.value.code is grpc.StatusCode.PERMISSION_DENIED

    asyncio.run(play())
    until(lambda: len(processes(client, name)) == 1, "the program is gone")


@pytest.mark.row("N124")
def test_without_the_token_of_the_node_nothing_is_executed(
    client: Client, agent: AgentProcess, address: str, tmp_path: Path
) -> None:
    name = running_pod(client)

    def refused(**given: str) -> str:
        with pytest.raises(ApiError) as told, client.exec(name, ["true"], **given):
            pass
        assert told.value.code is grpc.StatusCode.PERMISSION_DENIED
        return told.value.message

    assert refused() == f"node {NODE}: exec needs the token of the node (--token-file)"
    assert refused(token="of another node, long") == f"node {NODE}: exec with another token than that of the node"
    assert len(processes(client, name)) == 1
    code, _, errors = run(address, "exec", name, "--", "true")
    assert code == 1 and "needs the token" in errors
    open_to_all = token_file(tmp_path, TOKEN, 0o644)
    wanted = f"error: --token-file {open_to_all}: has mode 0644, want 0600: its owner alone may read it\n"
    assert run(address, "exec", name, "--token-file", open_to_all, "--", "true")[::2] == (2, wanted)
    short = token_file(tmp_path, "short")
    assert "found 5 characters" in run(address, "exec", name, "--token-file", short, "--", "true")[2]


@pytest.mark.row("N124")
def test_another_nodes_pods_are_not_served(client: Client, agents: Agents, address: str, tmp_path: Path) -> None:
    node = f"node-{next(_numbers)}"
    agents(tmp_path, node, address)
    registered(client, node)
    name = running_pod(client, node=node)
    # The token is that of another node; this one's agent has none.
    with pytest.raises(ApiError, match=f"node {node}: exec is off, for its agent has no token"):
        client.exec(name, ["true"], token=TOKEN).close()
    failures: list[ApiError] = []
    with (
        client.port_forward(name, 80, token=TOKEN, failed=failures.append) as forwarder,
        socket.create_connection(("127.0.0.1", forwarder.port)) as one,
    ):
        assert one.recv(1) == b""
        until(lambda: failures, "the failure is told")
    assert failures[0].code is grpc.StatusCode.PERMISSION_DENIED


def test_a_message_that_is_too_large_ends_the_stream_and_the_program(
    client: Client, agent: AgentProcess, replica: Serving
) -> None:
    name = running_pod(client)
    start = ExecStart(namespace="default", pod=name, command=["sleep", "1000"], stdin=True, proves=True)
    too_large = ExecRequest(stdin=bytes((256 << 10) + 1))
    with RawExec(replica.channel, start) as one:
        one.send(ExecRequest(proof=proof_for(TOKEN, start, one.challenge())))
        assert one.read().started
        one.send(too_large)
        with pytest.raises(grpc.RpcError) as told:
            one.read()
    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert told.value.details().endswith(" bytes, at most 262144 are allowed")
    until(lambda: len(processes(client, name)) == 1, "the program is gone")
    with pytest.raises(grpc.RpcError) as told:
        list(ExecStub(replica.channel).Stream(iter([too_large]), timeout=60))
    assert told.value.details() == "the first request of an exec is its start"


def test_there_are_only_so_many_streams_to_a_node(client: Client, agent: AgentProcess, replica: Serving) -> None:
    name = running_pod(client)
    assert replica.server._running is not None
    streams = replica.server._running.streams
    until(lambda: not streams._links, "streams of other tests are over")
    before, streams.limits = streams.limits, StreamLimits(a_node=2, kept=0.5)
    try:
        with client.exec(name, ["sleep", "1000"], token=TOKEN) as first, Client(replica.address, timeout_seconds=3.0) as hasty:
            # Logs and use have one of the two, exec both.
            with pytest.raises(ApiError, match=f"1 streams to node {NODE} are open, and no more are allowed, for logs and use"):
                next(hasty.logs(name))
            with client.exec(name, ["sleep", "1000"], token=TOKEN) as second:
                with pytest.raises(ApiError, match=f"2 streams to node {NODE} are open, and no more are allowed \\(") as told:
                    hasty.exec(name, ["true"], token=TOKEN)
                assert told.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert told.value.retry_after_seconds is not None
                second.close()
                # A log is waited for until there is room.
                late = threading.Timer(1.0, first.close)
                late.start()
                assert list(client.logs(name)) == []
                late.join()
        with client.exec(name, ["sleep", "1000"], token=TOKEN), client.exec(name, ["sleep", "1000"], token=TOKEN) as second:
            second.close()
            until(lambda: len(streams._links) == 1, "one has ended")
            with client.exec(name, ["true"], token=TOKEN) as third:
                assert list(third) == [] and third.exit_code == 0
    finally:
        streams.limits = before
