"""Logs through replicas, from real agents, to the real command. Each pod names its node itself."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import grpc
import pytest

from benchmarks.processes import resident_bytes
from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.client import ApiError, AsyncClient, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node
from rayched.v1.streams_pb2 import AttendRequest, LogPosition, LogsRequest
from rayched.v1.streams_pb2_grpc import AgentStreamsStub, LogsStub
from tests.nodes.real_node import AgentProcess, a_pod, in_phase, registered, sh, status, until
from tests.nodes.streaming import Agents, run, running
from tests.server.serving import Serving, serving

NODE = "has-logs"
LINES = 1_000_000
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def replicas(etcd: EtcdServer) -> Iterator[list[Serving]]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/logs-{os.getpid()}"))
    with serving(options) as first, serving(options, "replica-1") as second:
        yield [first, second]


@pytest.fixture(scope="module")
def address(replicas: list[Serving]) -> str:
    """Of all replicas."""
    return ",".join(one.address for one in replicas)


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address, timeout_seconds=20.0) as found:
        yield found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def agent(root: Path, address: str, client: Client) -> Iterator[AgentProcess]:
    """It runs."""
    with Agents() as begin:
        found = begin(root, NODE, address)
        registered(client, NODE)
        yield found


def submitted(client: Client, *command: str, policy: str = "Never") -> str:
    pod = a_pod(NODE, f"pod-{next(_numbers)}", *command, policy=policy)
    client.submit(pod)
    return pod.metadata.name


def ended(client: Client, *command: str) -> str:
    """A pod that has run to its end."""
    name = submitted(client, *command)
    in_phase(client, name, "Succeeded")
    return name


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


@pytest.mark.row("N120")
def test_what_a_container_wrote_is_printed_as_it_is(client: Client, agent: AgentProcess, address: str) -> None:
    name = ended(client, *sh(r"printf 'one\n\033[31mtwo\n\377\n'; echo three >&2; printf 'no end'"))
    code, out, errors = run(address, "logs", name)
    assert (code, errors) == (0, "")
    assert sorted(out.split(b"\n")) == sorted([b"one", b"\x1b[31mtwo", b"\xff", b"three", b"no end", b""])


@pytest.mark.row("N120")
def test_tails_limits_times_and_since(client: Client, agent: AgentProcess, address: str) -> None:
    name = ended(client, *sh("seq 1 50; sleep 3; seq 51 100"))
    assert run(address, "logs", f"pod/{name}", "--tail", "3")[1] == b"98\n99\n100\n"
    assert run(address, "logs", name, "--tail=0")[:2] == (0, b"")
    assert run(address, "logs", name, "--limit-bytes", "7")[1] == b"1\n2\n3\n4"
    timed = run(address, "logs", name, "--timestamps", "--tail", "51")[1].splitlines()
    assert [line.split(b" ")[1] for line in timed] == [b"%d" % number for number in range(50, 101)]
    stamp = timed[1].split(b" ")[0].decode()
    assert run(address, "logs", name, "--since-time", stamp)[1] == numbered(51, 100)
    assert run(address, "logs", name, "--since", "1h")[1] == numbered(1, 100)
    time.sleep(1.0)
    assert run(address, "logs", name, "--since", "500ms")[:2] == (0, b"")


@pytest.mark.row("N120")
def test_the_attempt_before_and_one_that_waits_for_its_next_start(client: Client, agent: AgentProcess, address: str) -> None:
    name = submitted(
        client, *sh("echo attempt $RAYCHED_ATTEMPT; [ $RAYCHED_ATTEMPT = 2 ] && sleep 1000; exit 1"), policy="Always"
    )

    def runs_again() -> bool:
        return any(one.restart_count == 2 and one.state.HasField("running") for one in status(client, name).container_statuses)

    until(runs_again, "it was restarted twice, and runs")
    assert run(address, "logs", name)[1] == b"attempt 2\n"
    assert run(address, "logs", name, "-p")[1] == b"attempt 1\n"
    once = ended(client, *sh("echo once"))
    code, out, errors = run(address, "logs", once, "-p")
    assert (code, out) == (1, b"")
    assert errors == f'error: previous terminated container "main" in pod "{once}" not found\n'


def test_follow_waits_for_the_start_and_ends_with_the_container(client: Client, agent: AgentProcess, address: str) -> None:
    pod = a_pod(NODE, f"pod-{next(_numbers)}", policy="Never")
    pod.spec.init_containers.add(name="first", command=sh("sleep 2; echo ready"))
    pod.spec.containers.add(name="main", command=sh("for i in 1 2 3; do echo $i; sleep 0.3; done"))
    pod.spec.containers.add(name="other", command=sh("echo beside"))
    client.submit(pod)
    name = pod.metadata.name
    code, out, errors = run(address, "logs", name, "-f")
    assert (code, out) == (0, b"1\n2\n3\n")
    assert errors == 'Defaulted container "main" out of: main, other, first\n'
    assert run(address, "logs", name, "--all-containers")[1] == b"ready\n1\n2\n3\nbeside\n"
    assert run(address, "logs", name, "-c", "first")[1] == b"ready\n"


def test_what_is_followed_at_once_ends_at_once(client: Client, agent: AgentProcess, address: str) -> None:
    pod = a_pod(NODE, f"pod-{next(_numbers)}", policy="Never")
    pod.spec.containers.add(name="main", command=sh("while :; do echo again; sleep 0.2; done"))
    pod.spec.containers.add(name="other", command=("sleep", "1000"))
    client.submit(pod)
    name = pod.metadata.name
    with running(address, "logs", name, "-f", "--all-containers") as following:
        assert following.stdout is not None and following.stdout.readline() == b"again\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(timeout=30) == 130
    with running(address, "logs", name, "-f", "--all-containers") as following:
        assert following.stdout is not None and following.stdout.readline() == b"again\n"
        following.stdout.close()
        # The other one says nothing, and would be waited for.
        following.wait(timeout=30)
        following.stdout = None


def test_what_is_wrong_is_told_by_its_name_and_never_raw(client: Client, agent: AgentProcess, address: str) -> None:
    pod = a_pod(NODE, f"pod-{next(_numbers)}", policy="Never")
    pod.spec.init_containers.add(name="first", command=("sleep", "1000"))
    pod.spec.containers.add(name="main", command=("true",))
    client.submit(pod)
    name = pod.metadata.name
    until(lambda: status(client, name).init_container_statuses, "is seen")
    code, _, errors = run(address, "logs", name)
    assert code == 1
    assert errors == f'error: container "main" in pod "{name}" is waiting to start: PodInitializing\n'
    assert run(address, "logs", name, "-c", "\x1b[2J")[2] == f"error: container \\u001b[2J is not valid for pod {name}\n"
    assert run(address, "logs", "none\x1b[2J")[2] == "error: Pod default/none\\u001b[2J not found\n"
    for words, said in (
        (("--tail", "-2"), "--tail must be greater than or equal to -1"),
        (("--since", "0s"), "--since must be greater than 0"),
        (("--since", "1s", "--since-time", "2026-01-01T00:00:00Z"), "at most one of --since and --since-time may be specified"),
        (("--since-time", "now"), "--since-time 'now': want a time of RFC 3339, such as 2026-11-23T06:39:40Z"),
    ):
        assert run(address, "logs", name, *words)[::2] == (2, f"error: {said}\n")


def test_pods_without_an_agent_say_so(client: Client, agent: AgentProcess, address: str) -> None:
    hollow = Node()
    hollow.metadata.name = "hollow"
    client.register_node(hollow)
    away, nowhere = a_pod("hollow", f"pod-{next(_numbers)}", "true"), a_pod("", f"pod-{next(_numbers)}", "true")
    nowhere.spec.scheduling_gates.add(name="waits")
    for pod in (away, nowhere):
        client.submit(pod)
    with pytest.raises(ApiError, match=f"Pod default/{away.metadata.name}: node hollow has no agent that runs pods"):
        next(client.logs(away.metadata.name))
    with pytest.raises(ApiError, match=f"Pod default/{nowhere.metadata.name}: does not have a host assigned"):
        next(client.logs(nowhere.metadata.name))


def test_numbers_that_make_no_sense_are_refused(client: Client, agent: AgentProcess, replicas: list[Serving]) -> None:
    name = ended(client, "true")
    for given, said in (
        ({"tail_lines": -1}, "tail_lines: found -1, want 0 or more"),
        ({"limit_bytes": 0}, "limit_bytes: found 0, want 1 or more"),
        ({"since_seconds": -2.5}, "since_seconds: found -2.5, want a finite number above 0"),
        ({"since_seconds": float("inf")}, "since_seconds: found inf, want a finite number above 0"),
        ({"since_seconds": float("nan")}, "since_seconds: found nan, want a finite number above 0"),
        (
            {"since_time": datetime(1, 1, 1)},
            "since_time: found -62135596800 seconds and 0 nanoseconds since 1970, want a time of the years 1970 to 9999",
        ),
        (
            {"since_seconds": 1.0, "since_time": datetime(2026, 1, 1)},
            "since_seconds, since_time: at most one of them may be given",
        ),
        ({"container": "odd"}, f"container odd is not valid for pod {name}"),
    ):
        with pytest.raises(ApiError) as told:
            next(client.logs(name, **given))
        assert (told.value.code, told.value.message) == (grpc.StatusCode.INVALID_ARGUMENT, said)
    with client.logs(name, since_seconds=1e300) as chunks:
        assert list(chunks) == []
    for place, said in (
        (LogPosition(attempt=-1), "resume.attempt: found -1, want 0 or more"),
        (LogPosition(offset=-1), "resume.offset: found -1, want 0 or more"),
        (LogPosition(since=b"1" * 31), "resume.since: found 31 bytes, want 30 at most"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            next(LogsStub(replicas[0].channel).Get(LogsRequest(namespace="default", pod=name, resume=place), timeout=20))
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, said)


def test_any_replica_passes_logs_on(client: Client, agent: AgentProcess, replicas: list[Serving]) -> None:
    name = ended(client, *sh("echo here"))
    for one in replicas:
        with Client(one.address) as asked, asked.logs(name, container="main") as chunks:
            assert b"".join(chunk.data for chunk in chunks) == b"here\n"

    async def read(address: str) -> bytes:
        async with AsyncClient(address) as asked, asked.logs(name) as chunks:
            return b"".join([chunk.data async for chunk in chunks])

    assert asyncio.run(read(replicas[0].address)) == b"here\n"


def test_a_log_is_followed_past_the_end_of_a_replica(
    etcd: EtcdServer, replicas: list[Serving], client: Client, agents: Agents, tmp_path: Path
) -> None:
    node, found, is_stopped = f"node-{next(_numbers)}", b"", False
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/logs-{os.getpid()}"))
    with serving(options, "replica-2") as short:
        both = (short.address, replicas[0].address)
        agents(tmp_path, node, ",".join(both))
        registered(client, node)
        pod = a_pod(node, f"pod-{next(_numbers)}", *sh("for i in $(seq 1 200); do echo $i; sleep 0.05; done"))
        client.submit(pod)
        with Client(both) as following:
            following._transport.endpoints.prefer(short.address)
            with following.logs(pod.metadata.name, follow=True) as chunks:
                for chunk in chunks:
                    found += chunk.data
                    if not is_stopped and b"\n20\n" in found:
                        is_stopped = True
                        short.stop()
    assert is_stopped and found == numbered(1, 200)


@pytest.mark.row("N124")
def test_only_the_nodes_own_agent_may_attend(agent: AgentProcess, replicas: list[Serving], etcd: EtcdServer, root: Path) -> None:
    with open_channel([etcd.endpoint]) as channel:
        key = Keys(f"/logs-{os.getpid()}").agent(NODE)
        (record,) = rpc.KVStub(channel).Range(rpc.RangeRequest(key=key)).kvs
    own = json.loads((root / "identity.json").read_text())["agent_id"]
    for agent_id, incarnation in (("somebody-else", record.mod_revision), (own, record.mod_revision - 1), ("", 0)):
        request = AttendRequest(node=NODE, agent_id=agent_id, incarnation=incarnation)
        with pytest.raises(grpc.RpcError) as told:
            next(AgentStreamsStub(replicas[0].channel).Attend(request, timeout=10))
        assert told.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert told.value.details() == f"Node {NODE}: its agent has been superseded by another one"


def test_who_reads_slowly_holds_up_nobody_and_costs_no_memory(
    client: Client, agent: AgentProcess, address: str, root: Path
) -> None:
    name = submitted(client, *sh("echo begin; sleep 5; seq 1 400000; echo end"))
    with running(address, "logs", name, "-f") as slow:
        assert slow.stdout is not None
        assert slow.stdout.readline() == b"begin\n"
        before = resident_bytes(agent.process.pid)
        # Nobody reads any more: its pipe is full, and all behind it.
        in_phase(client, name, "Succeeded")
        other = ended(client, *sh("echo quick"))
        assert run(address, "logs", other)[1] == b"quick\n"
        assert run(address, "logs", name, "--tail", "1")[1] == b"end\n"
        assert resident_bytes(agent.process.pid) - before < 32 << 20
        assert slow.poll() is None
        rest = slow.stdout.read()
        assert rest == numbered(1, 400_000) + b"end\n"


def test_an_agent_that_is_away_is_told_with_the_condition_of_its_node(
    client: Client, address: str, agents: Agents, tmp_path: Path
) -> None:
    node = f"node-{next(_numbers)}"
    agent = agents(tmp_path, node, address)
    registered(client, node)
    pod = a_pod(node, f"pod-{next(_numbers)}", *sh("echo here"))
    client.submit(pod)
    in_phase(client, pod.metadata.name, "Succeeded")
    agent.kill()
    with Client(address, timeout_seconds=3.0) as hasty, pytest.raises(ApiError) as told:
        next(hasty.logs(pod.metadata.name))
    assert told.value.code is grpc.StatusCode.UNAVAILABLE
    said = f"Pod default/{pod.metadata.name}: the agent of node {node} has no stream to this replica; the node's Ready is "
    assert told.value.message.startswith(said)
    agents(tmp_path, node, address)
    assert run(address, "logs", pod.metadata.name)[1] == b"here\n"


@pytest.mark.row("N121")
def test_a_flood_stays_within_its_fifty_mebibytes(client: Client, agent: AgentProcess, address: str, root: Path) -> None:
    name, sizes = submitted(client, *sh("seq 1 2000000")), [0]

    def is_over() -> bool:
        sizes.append(size_of_logs(root, name))
        return status(client, name).phase == "Succeeded"

    until(is_over, "it has ended")
    assert 40 << 20 < max(sizes) <= 50 << 20
    assert run(address, "logs", name, "--tail", "1")[1] == b"2000000\n"


def size_of_logs(root: Path, name: str) -> int:
    """Each file counts once, whatever it is called meanwhile."""
    found: dict[int, int] = {}
    for path in root.glob(f"logs/*_{name}_*/main/*"):
        with contextlib.suppress(FileNotFoundError):
            one = path.stat()
            found[one.st_ino] = one.st_size
    return sum(found.values())


@pytest.mark.row("N119")
def test_a_million_lines_are_followed_over_rotation_and_a_killed_agent(
    client: Client, address: str, agents: Agents, tmp_path: Path
) -> None:
    node = f"node-{next(_numbers)}"
    agent = agents(tmp_path / "node", node, address)
    registered(client, node)
    pod = a_pod(
        node, f"pod-{next(_numbers)}", *sh("for i in $(seq 0 19); do seq $((i*50000+1)) $((i*50000+50000)); sleep 0.7; done")
    )
    client.submit(pod)
    got = tmp_path / "got"
    with got.open("wb") as out, running(address, "logs", pod.metadata.name, "-f", stdout=out) as following:
        for killed_at in (1 << 20, 3 << 20):
            until(lambda at=killed_at: got.stat().st_size > at, "lines come")
            agent.kill()
            time.sleep(1.0)
            agent = agents(tmp_path / "node", node, address)
        code = following.wait(timeout=240)
        errors = following.stderr.read().decode() if following.stderr is not None else ""
    assert (code, errors) == (0, "")
    assert got.read_bytes() == numbered(1, LINES)
    assert len(list((tmp_path / "node").glob("logs/*/main/0.log*"))) > 3
