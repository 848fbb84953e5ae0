"""etcd away or hung: every call says so within three seconds, nothing hangs, and all goes on when it is back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from rayched.client import Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1 import services_pb2 as api
from rayched.v1.services_pb2_grpc import AdminStub, LeadershipStub, NodesStub, SubmissionStub, WatchStub
from rayched.v1.workloads_pb2 import Object
from tests.etcd_fixture import hang
from tests.server.objects import a_node, a_pod
from tests.server.serving import Serving, serving, until

pytestmark = pytest.mark.cluster

SECONDS_MAX = 3.2


def calls_of(server: Serving) -> dict[str, Callable[[], object]]:
    """One call of each kind, with its own deadline far away."""
    channel, pod = server.channel, Object(pod=a_pod("web", uid="uid-1"))
    submission, nodes, admin = SubmissionStub(channel), NodesStub(channel), AdminStub(channel)  # type: ignore[no-untyped-call]
    watch = WatchStub(channel)  # type: ignore[no-untyped-call]
    key = api.ObjectKey(kind="Pod", name="web")
    update = api.PodStatusUpdate(name="web", uid="uid-1")
    return {
        "Submit": lambda: submission.Submit(api.SubmitRequest(object=pod), timeout=20),
        "SubmitMany": lambda: _raised(submission.SubmitMany(api.SubmitManyRequest(objects=[pod]), timeout=20)),
        "Apply": lambda: submission.Apply(api.ApplyRequest(object=pod), timeout=20),
        "Get": lambda: submission.Get(api.GetRequest(key=key), timeout=20),
        "List": lambda: submission.List(api.ListRequest(kind="Pod"), timeout=20),
        "Delete": lambda: submission.Delete(api.DeleteRequest(key=key), timeout=20),
        "Register": lambda: nodes.Register(api.RegisterNodeRequest(node=a_node("node-1")), timeout=20),
        "Heartbeat": lambda: nodes.Heartbeat(api.HeartbeatRequest(nodes=["node-1"]), timeout=20),
        "UpdateNodeStatus": lambda: nodes.UpdateNodeStatus(api.UpdateNodeStatusRequest(name="node-1"), timeout=20),
        "UpdatePodStatus": lambda: nodes.UpdatePodStatus(api.UpdatePodStatusRequest(updates=[update]), timeout=20),
        "Cordon": lambda: admin.Cordon(api.CordonRequest(node="node-1"), timeout=20),
        "Label": lambda: admin.Label(api.LabelRequest(key=key, remove=["a"]), timeout=20),
        "Watch": lambda: list(watch.Watch(api.WatchRequest(kind="Pod", start_revision=10**9), timeout=20)),
    }


class _Refused(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def _raised(answer: api.SubmitManyResponse) -> None:
    if answer.results[0].outcome.code == grpc.StatusCode.UNAVAILABLE.value[0]:
        raise _Refused


def outcomes(server: Serving) -> dict[str, tuple[str, bool]]:
    """Code of each call, and whether it came in time; all at once."""

    def outcome(call: Callable[[], object]) -> tuple[str, bool]:
        began_at = time.monotonic()
        try:
            call()
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
        return code, time.monotonic() - began_at < SECONDS_MAX

    calls = calls_of(server)
    with ThreadPoolExecutor(len(calls)) as pool:
        return dict(zip(calls, pool.map(outcome, calls.values()), strict=True))


def test_a_replica_that_never_saw_etcd_says_unavailable_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{unused.getsockname()[1]}"
    with serving(ServerOptions("127.0.0.1:0", [endpoint]), useful=False) as server:
        assert {server.health(f"rayched.v1.{name}") for name in ("Submission", "Watch", "Nodes")} == {"NOT_SERVING"}
        assert server.health("") == "SERVING"
        assert set(outcomes(server).values()) == {("UNAVAILABLE", True)}
        leader = LeadershipStub(server.channel).GetLeader(api.GetLeaderRequest(), timeout=30)  # type: ignore[no-untyped-call]
        assert leader.answered_by == "replica-0"


def test_a_hung_etcd_is_unavailable_in_time_and_all_goes_on_afterwards(tmp_path: Path) -> None:
    with (
        EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as etcd,
        serving(ServerOptions("127.0.0.1:0", [etcd.endpoint])) as server,
        Client(server.address) as client,
    ):
        client.register_node(a_node("node-1"))
        assert etcd.pid is not None
        hang(etcd.pid)
        try:
            found = outcomes(server)
            with pytest.raises(grpc.RpcError) as caught:
                get = api.GetRequest(key=api.ObjectKey(kind="Pod", name="web"))
                SubmissionStub(server.channel).Get(get, timeout=0.4)  # type: ignore[no-untyped-call]
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            os.kill(etcd.pid, signal.SIGCONT)
        assert set(found.values()) == {("UNAVAILABLE", True)}, found
        # What was sent while it hung may have happened or not: the same uid settles it.
        until(lambda: _submitted(client))
        assert [pod.metadata.name for pod in client.list("pods")] == ["web"]


def _submitted(client: Client) -> bool:
    answer = client.submit(a_pod("web", uid="uid-1"))
    return answer.uid == "uid-1" and answer.revision > 0


def test_an_etcd_that_was_wiped_gets_its_namespaces_again_and_the_replica_is_not_ready_before(tmp_path: Path) -> None:
    data = tmp_path / "data"
    found: list[str | None] = []
    with (
        EtcdServer(data, unsafe_no_fsync=True) as etcd,
        serving(ServerOptions("127.0.0.1:0", [etcd.endpoint])) as server,
        Client(server.address) as client,
    ):
        client.submit(a_pod("before"))
        until(lambda: server.server.problem() is None)
        server.hub_lists(lambda: found.append(server.server.problem()))
        etcd.stop()
        shutil.rmtree(data)
        etcd.start()
        until(lambda: found != [] and server.server.problem() is None, 20.0)
        assert found[0] is not None and found[0].startswith("namespaces ") and "default" in found[0]
        client.submit(a_pod("after"))
        assert [pod.metadata.name for pod in client.list("pods")] == ["after"]


def test_a_server_whose_hub_failed_says_so_and_tells_whoever_runs_it(etcd: EtcdServer, etcd_root: str) -> None:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root))
    with serving(options) as server, Client(server.address) as client:

        async def break_hub() -> None:
            def broken(*_: object) -> None:
                raise RuntimeError("a bug")

            server.hub.changed = broken  # type: ignore[method-assign]

        failed = asyncio.run_coroutine_threadsafe(server.server.failed(), server.loop)
        until(lambda: server.server.problem() is None)
        server.run(break_hub())
        assert server.server.problem() is None and not failed.done()
        client.submit(a_pod("web"))
        failed.result(10)
        assert server.server.problem() == "the watch of etcd has failed"
        until(lambda: server.health("rayched.v1.Watch") == "NOT_SERVING")
        with pytest.raises(grpc.RpcError) as caught:
            next(iter(WatchStub(server.channel).Watch(api.WatchRequest(kind="Pod"), timeout=10)))  # type: ignore[no-untyped-call]
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
