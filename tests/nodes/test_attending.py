"""The agent's end of the streams at a real replica, without an agent around it: when it attends, and when it ends."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayched.access.identity import IdentityKind
from rayched.api.kinds import NODE
from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.streams.attending import AgentStreaming
from rayched.nodes.agent.streams.targets import StreamTargets
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.peers import ServerTls
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys, ObjectKey
from rayched.v1.core_pb2 import Node
from rayched.v1.services_pb2 import RegisterNodeRequest
from tests.nodes.real_node import settings, until
from tests.server.serving import Serving, serving

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def replica(etcd: EtcdServer) -> Iterator[Serving]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/attending-{os.getpid()}"))) as found:
        yield found


def attending(replica: Serving, node: str) -> bool:
    assert replica.server._running is not None
    return node in replica.server._running.streams.nodes


def begun(replica: Serving, root: Path) -> tuple[AgentStreaming, str, int]:
    """Streams of a node that is registered, the node's name and its incarnation."""
    found = Node()
    found.metadata.name = f"attends-{next(_numbers)}"
    with NodeAgentClient(replica.address, timeout_seconds=20.0) as client:
        incarnation = client.begin(RegisterNodeRequest(node=found, agent_id="its-agent")).incarnation

    def post(work: Callable[[], None]) -> None:
        work()

    client = NodeAgentClient([replica.address])
    streaming = AgentStreaming(settings(root, found.metadata.name), client, StreamTargets({}), post)
    streaming.start("its-agent")
    return streaming, found.metadata.name, incarnation


def streaming_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "node-streams"]


def test_what_attends_ends_with_the_agent(replica: Serving, tmp_path: Path) -> None:
    streaming, node, incarnation = begun(replica, tmp_path)
    streaming.registered(incarnation)
    until(lambda: attending(replica, node), "it attends")
    streaming.stop(4.0)
    # It neither waits until its own patience is over, nor goes on without end.
    assert streaming_threads() == []
    until(lambda: not attending(replica, node), "it has left")


def test_an_attempt_that_fails_in_a_way_nobody_thought_of_is_followed_by_another(
    replica: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    streaming, node, incarnation = begun(replica, tmp_path)
    try:
        # No message can carry such a number.
        streaming.registered(1 << 80)
        until(lambda: "attending a replica has failed" in caplog.text, "the fault is logged")
        streaming.registered(incarnation)
        until(lambda: attending(replica, node), "it attends")
    finally:
        streaming.stop(4.0)


def test_with_certificates_it_attends_as_the_node_and_again_with_a_new_certificate(etcd: EtcdServer, tmp_path: Path) -> None:
    made = PkiDirectory.create(tmp_path / "pki")

    def issued(kind: IdentityKind, name: str) -> TlsFiles:
        return TlsFiles.within(Path(made.issue(leaf_request(made.trust_domain, kind, name)).directory))

    tls = ServerTls.read(issued(IdentityKind.REPLICA, "replica-0"), made.deny_list)
    files = issued(IdentityKind.NODE, "node-1")
    with serving(
        ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/secured-{os.getpid()}"), tls=tls), useful=False
    ) as replica:
        client = NodeAgentClient(replica.address, timeout_seconds=20.0, tls=files)
        node = Node()
        node.metadata.name = "node-1"
        incarnation = client.begin(RegisterNodeRequest(node=node, agent_id="its-agent")).incarnation
        streaming = AgentStreaming(settings(tmp_path, "node-1"), client, StreamTargets({}), lambda work: work())
        streaming.start("its-agent")
        try:
            streaming.registered(incarnation)
            until(lambda: attending(replica, "node-1"), "it attends")
            [old] = [one for one in made.issued() if one.uri.endswith("/node/node-1")]
            issued(IdentityKind.NODE, "node-1")
            made.revoke(old.serial)
            until(lambda: not attending(replica, "node-1"), "its old certificate counts no more")
            until(lambda: attending(replica, "node-1"), "it attends with the new one")
        finally:
            streaming.stop(4.0)
            client.close()


@pytest.mark.row("N7")
def test_an_agent_that_was_replaced_since_it_attends_is_told_of_no_session(replica: Serving, tmp_path: Path) -> None:
    streaming, node, incarnation = begun(replica, tmp_path)
    running = replica.server._running
    assert running is not None
    try:
        streaming.registered(incarnation)
        until(lambda: attending(replica, node), "it attends")
        found = Node()
        found.metadata.name = node
        with NodeAgentClient(replica.address, timeout_seconds=20.0) as client:
            request = RegisterNodeRequest(node=found, agent_id="another", take_over=True)
            again = client.begin(request).incarnation

        def seen() -> bool:
            node_now = running.sources.cluster().feed.hub.find(ObjectKey(NODE.name, "", node))
            return node_now is not None and node_now.mod_revision > again > incarnation

        until(seen, "the replica has read of the other agent")
        assert attending(replica, node), "nothing was to be told meanwhile"
        replica.loop.call_soon_threadsafe(running.streams._agents[node].offers.offer, "a-session")
        until(lambda: not attending(replica, node), "its stream has ended")
    finally:
        streaming.stop(4.0)
