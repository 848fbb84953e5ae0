"""Proofs of the token between real agents, a replica and clients: what was recorded of one is of no use for anything else."""

from __future__ import annotations

import itertools
import os
import queue
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from rayched.client import ApiError, Client
from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.streams import token_gate
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.server.services import stream_services
from rayched.server.services.node_streams import NodeStreams
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import RegisterNodeRequest
from rayched.v1.streams_pb2 import (
    AgentFrame,
    AttendRequest,
    ExecRequest,
    ExecResponse,
    ExecStart,
    PortForwardRequest,
    PortForwardStart,
    StreamChallenge,
    StreamOffer,
)
from rayched.v1.streams_pb2_grpc import AgentStreamsStub, ExecServicer, PortForwardStub, add_ExecServicer_to_server
from tests.nodes.real_node import a_pod, agent_thread, processes, ready, registered, settings, uid_of, until
from tests.nodes.streaming import RawExec, proof_for
from tests.server.serving import Serving, serving

TOKEN = "a token that is long enough"
NODES = ("proves-1", "proves-2")
WRONG = "node {}: exec with another token than that of the node"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def replica(etcd: EtcdServer) -> Iterator[Serving]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/proofs-{os.getpid()}"))) as found:
        yield found


@pytest.fixture(scope="module")
def client(replica: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """With two nodes that have one token."""
    root = tmp_path_factory.mktemp("nodes")
    with (
        Client(replica.address, timeout_seconds=20.0) as found,
        agent_thread(settings(root / "one", NODES[0], stream_token=TOKEN), replica.address),
        agent_thread(settings(root / "two", NODES[1], stream_token=TOKEN), replica.address),
    ):
        for node in NODES:
            registered(found, node)
        yield found


def a_running_pod(client: Client, node: str = NODES[0]) -> str:
    """Of two containers."""
    pod = a_pod(node, f"pod-{next(_numbers)}", "sleep", "1000")
    pod.spec.containers.add(name="side", command=["sleep", "1000"])
    client.submit(pod)
    ready(client, pod.metadata.name)
    return pod.metadata.name


def start_of(pod: str, container: str = "main", command: Sequence[str] = ("true",)) -> ExecStart:
    return ExecStart(namespace="default", pod=pod, container=container, command=command, proves=True)


def refusal(replica: Serving, start: ExecStart, proof: bytes) -> str:
    """What a proof is answered with by a stream that it was not made for."""
    with RawExec(replica.channel, start) as one:
        one.challenge()
        one.send(ExecRequest(proof=proof))
        with pytest.raises(grpc.RpcError) as told:
            one.read()
    assert told.value.code() is grpc.StatusCode.PERMISSION_DENIED
    return str(told.value.details())


@pytest.mark.row("N124")
def test_a_proof_is_good_once_and_for_nothing_else(client: Client, replica: Serving) -> None:
    pod, other, elsewhere = a_running_pod(client), a_running_pod(client), a_running_pod(client, NODES[1])
    before = {name: processes(client, name) for name in (pod, other, elsewhere)}
    start = start_of(pod)
    with RawExec(replica.channel, start) as one:
        challenge = one.challenge()
        assert (challenge.node, challenge.uid, challenge.container) == (NODES[0], uid_of(client, pod), "main")
        recorded = proof_for(TOKEN, start, challenge)
        one.send(ExecRequest(proof=recorded))
        assert one.read().started and one.read().exit.code == 0
    assert refusal(replica, start, recorded) == WRONG.format(NODES[0])
    assert refusal(replica, start_of(other), recorded) == WRONG.format(NODES[0])
    assert refusal(replica, start_of(pod, "side"), recorded) == WRONG.format(NODES[0])
    assert refusal(replica, start_of(pod, command=["sleep", "1000"]), recorded) == WRONG.format(NODES[0])
    assert refusal(replica, start_of(elsewhere), recorded) == WRONG.format(NODES[1])
    requests = [
        PortForwardRequest(start=PortForwardStart(namespace="default", pod=pod, port=80, proves=True)),
        PortForwardRequest(proof=recorded),
    ]
    with pytest.raises(grpc.RpcError) as told:
        list(PortForwardStub(replica.channel).Stream(iter(requests), timeout=60))
    assert told.value.details() == f"node {NODES[0]}: port-forward with another token than that of the node"
    assert {name: processes(client, name) for name in before} == before


@pytest.mark.row("N124")
def test_a_proof_for_another_verb_or_another_nonce_is_refused_though_all_else_is_the_same(
    client: Client, replica: Serving
) -> None:
    pod = a_running_pod(client)
    start = start_of(pod)
    for change in ({"nonce": bytes(32)}, {"node": NODES[1]}, {"uid": "another"}, {"container": "side"}):
        with RawExec(replica.channel, start) as one:
            challenge = one.challenge()
            other = StreamChallenge(nonce=challenge.nonce, node=challenge.node, uid=challenge.uid, container=challenge.container)
            other.MergeFrom(StreamChallenge(**change))  # type: ignore[arg-type]
            one.send(ExecRequest(proof=proof_for(TOKEN, start, other)))
            with pytest.raises(grpc.RpcError, match="with another token than that of the node"):
                one.read()


def test_what_is_no_proof_is_refused_and_runs_nothing(client: Client, replica: Serving) -> None:
    pod = a_running_pod(client)
    before = processes(client, pod)
    with RawExec(replica.channel, start_of(pod, command=["sleep", "1000"])) as one:
        one.challenge()
        one.send(ExecRequest(stdin=b"anything"))
        with pytest.raises(grpc.RpcError, match="exec: found stdin in answer to the challenge, want the proof"):
            one.read()
    assert processes(client, pod) == before


@pytest.mark.row("N124")
def test_a_proof_that_is_late_is_refused(
    replica: Serving, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = a_running_pod(client)
    monkeypatch.setattr(token_gate, "PROOF_SECONDS", 0.3)
    with RawExec(replica.channel, start_of(pod)) as one:
        one.challenge()
        with pytest.raises(grpc.RpcError, match=r"exec: no proof came within 0.3 s"):
            one.read()


@pytest.mark.row("N124")
def test_an_old_client_is_told_what_is_wrong_and_its_token_goes_no_further(client: Client, replica: Serving) -> None:
    pod = a_running_pod(client)
    old = ExecStart(namespace="default", pod=pod, container="main", command=["true"], token=TOKEN)
    text = "this client sends the token of the node, which goes no further than here; a newer one proves that it knows it"
    with RawExec(replica.channel, old) as one, pytest.raises(grpc.RpcError) as told:
        one.read()
    assert (told.value.code(), told.value.details()) == (grpc.StatusCode.PERMISSION_DENIED, f"exec: {text}")
    port = PortForwardRequest(start=PortForwardStart(namespace="default", pod=pod, port=80, token=TOKEN))
    with pytest.raises(grpc.RpcError) as told:
        list(PortForwardStub(replica.channel).Stream(iter([port]), timeout=60))
    assert (told.value.code(), told.value.details()) == (grpc.StatusCode.PERMISSION_DENIED, f"port-forward: {text}")
    old.ClearField("token")
    with RawExec(replica.channel, old) as one, pytest.raises(grpc.RpcError) as told:
        one.read()
    assert told.value.details() == f"node {NODES[0]}: exec needs the token of the node (--token-file)"


class Between(ExecServicer):
    """Takes itself for the node of a pod: asks with a nonce that it likes, and keeps the answer."""

    def __init__(self, challenge: StreamChallenge) -> None:
        self._challenge = challenge
        self.proof = b""

    def Stream(self, requests: Iterator[ExecRequest], context: Any) -> Iterator[ExecResponse]:
        next(requests)
        yield ExecResponse(challenge=self._challenge)
        self.proof = next(requests).proof
        yield ExecResponse(started=True)


@pytest.mark.row("N124")
def test_who_takes_the_place_of_a_node_gets_nothing_that_it_can_use(client: Client, replica: Serving) -> None:
    pod = a_running_pod(client)
    start = start_of(pod)
    # It has seen a challenge of the real node before, and asks for that very answer.
    with RawExec(replica.channel, start) as one:
        seen = one.challenge()
    server, between = grpc.server(ThreadPoolExecutor(2)), Between(seen)
    add_ExecServicer_to_server(between, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with Client(f"127.0.0.1:{port}", timeout_seconds=20.0) as deceived:
            deceived.exec(pod, ["true"], container="main", token=TOKEN).close()
    finally:
        server.stop(None).wait()
    assert between.proof == proof_for(TOKEN, start, seen)
    assert refusal(replica, start, between.proof) == WRONG.format(NODES[0])


@pytest.mark.row("N124")
def test_whoever_has_registered_a_name_asks_in_that_name_alone(client: Client, replica: Serving) -> None:
    """A replica says which node and which pod are meant, whatever the agent says of itself."""
    there = a_running_pod(client)
    with RawExec(replica.channel, start_of(there)) as one:
        seen = one.challenge()
    node, pod = Node(metadata={"name": "impostor"}), a_pod("impostor", f"pod-{next(_numbers)}", "sleep", "1000")
    with NodeAgentClient(replica.address, timeout_seconds=20.0) as agent:
        incarnation = agent.begin(RegisterNodeRequest(node=node, agent_id="its-agent")).incarnation
    client.submit(pod)
    stub, frames = AgentStreamsStub(replica.channel), queue.SimpleQueue[AgentFrame | None]()
    attending = stub.Attend(AttendRequest(node="impostor", agent_id="its-agent", incarnation=incarnation), timeout=60)
    assert next(attending) == StreamOffer()
    with RawExec(replica.channel, start_of(pod.metadata.name)) as one:
        frames.put(AgentFrame(session=next(attending).session))
        serving_it = stub.Serve(iter(frames.get, None), timeout=60)
        assert next(serving_it).exec.start.pod == pod.metadata.name
        # As if it were the other node, with a nonce that this one gave.
        frames.put(AgentFrame(exec=ExecResponse(challenge=seen)))
        asked = one.challenge()
        wanted = StreamChallenge(nonce=seen.nonce, node="impostor", uid=uid_of(client, pod.metadata.name), container="main")
        assert asked == wanted
        one.send(ExecRequest(proof=proof_for(TOKEN, start_of(pod.metadata.name), asked)))
        learned = next(serving_it).exec.proof
    frames.put(None)
    attending.cancel()
    assert refusal(replica, start_of(there), learned) == WRONG.format(NODES[0])


@pytest.mark.row("N124")
def test_a_replica_cannot_have_a_proof_carried_out_in_another_pod(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is the client's word; the uid, which the replica adds, has to be that of the name."""
    pod, other = a_running_pod(client), a_running_pod(client)
    before, pod_of = processes(client, other), stream_services._pod_of

    async def traitor(streams: NodeStreams, namespace: str, name: str) -> Pod:
        return await pod_of(streams, namespace, other)

    monkeypatch.setattr(stream_services, "_pod_of", traitor)
    with pytest.raises(ApiError, match=f'pod "{pod}" does not run on this node'):
        client.exec(pod, ["sleep", "1000"], container="main", token=TOKEN)
    assert processes(client, other) == before
    failures: list[ApiError] = []
    with (
        client.port_forward(pod, 80, token=TOKEN, failed=failures.append) as forwarder,
        socket.create_connection(("127.0.0.1", forwarder.port)) as one,
    ):
        assert one.recv(1) == b""
        until(lambda: failures, "the failure is told")
    assert f'pod "{pod}" does not run on this node' in failures[0].message
