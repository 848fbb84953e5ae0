"""A node that Ray has lost keeps its Node while something may run there, and no longer."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator

import pytest

from rayched.api.agents import SHUT_DOWN_MESSAGE
from rayched.client import Client
from rayched.raynodes.departed import LOOK_SECONDS, DepartedNodes
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate
from tests.nodes.real_node import a_pod, uid_of
from tests.server.objects import a_node
from tests.server.serving import serving

_numbers = itertools.count(1)


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/departed-{os.getpid()}-{next(_numbers)}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


def names(client: Client) -> set[str]:
    return {one.metadata.name for one in client.list("nodes") if isinstance(one, Node)}


def is_ready(client: Client, name: str, ready: str) -> None:
    node = client.get("node", name)
    assert isinstance(node, Node)
    node.status.conditions[0].status = ready
    client.update_node_status(name, node.status)


def becomes(client: Client, pod: str, phase: str) -> None:
    update = PodStatusUpdate(namespace="default", name=pod, uid=uid_of(client, pod), status=PodStatus(phase=phase))
    assert client.update_pod_statuses([update]) == (None,)


def test_a_node_goes_when_all_its_pods_have_ended_and_its_agent_is_gone(client: Client) -> None:
    for name in ("lost", "other"):
        client.register_node(a_node(name))
        client.submit(a_pod(name, f"on-{name}", "sleep", "1000"))
        becomes(client, f"on-{name}", "Running")
        is_ready(client, name, "Unknown")
    client.submit(a_pod("lost", "second", "sleep", "1000"))
    departed, now = DepartedNodes(client, logging.getLogger("test")), 100.0
    departed.add("lost")

    def turn() -> set[str]:
        nonlocal now
        now += LOOK_SECONDS
        departed.turn(now)
        return names(client)

    assert turn() == {"lost", "other"}, "two of its pods may run there"
    becomes(client, "on-lost", "Failed")
    assert turn() == {"lost", "other"}, "one was never heard of"
    becomes(client, "second", "Succeeded")
    is_ready(client, "lost", "True")
    assert turn() == {"lost", "other"}, "its agent lives"
    is_ready(client, "lost", "False")
    departed.turn(now + LOOK_SECONDS - 0.1)
    assert names(client) == {"lost", "other"}, "it is looked at after a while"
    assert turn() == {"other"}
    client.register_node(a_node("lost"))
    is_ready(client, "lost", "False")
    assert turn() == {"lost", "other"}, "whoever comes by that name later is not meant"


def says(client: Client, name: str, ready: str, message: str) -> None:
    node = client.get("node", name)
    assert isinstance(node, Node)
    node.status.conditions[0].status, node.status.conditions[0].message = ready, message
    client.update_node_status(name, node.status)


@pytest.mark.parametrize("last_word", [SHUT_DOWN_MESSAGE, "node is shutting down"])
def test_what_never_began_on_a_node_that_has_shut_down_holds_it_no_longer(client: Client, last_word: str) -> None:
    client.register_node(a_node("lost"))
    for name in ("began", "never"):
        client.submit(a_pod("lost", name, "sleep", "1000"))
    becomes(client, "began", "Running")
    says(client, "lost", "False", last_word)
    departed, now = DepartedNodes(client, logging.getLogger("test")), 100.0
    departed.add("lost")
    departed.turn(now)
    assert names(client) == {"lost"}, "one has begun, and nobody has said that it has ended"
    # What the cluster says of a node that is silent takes the place of what its agent has said.
    says(client, "lost", "Unknown", "Kubelet stopped posting node status.")
    becomes(client, "began", "Failed")
    departed.turn(now + LOOK_SECONDS)
    assert names(client) == (set() if last_word == SHUT_DOWN_MESSAGE else {"lost"})


def test_a_node_whose_agent_came_again_after_its_last_word_keeps_what_it_may_have_begun(client: Client) -> None:
    client.register_node(a_node("lost"))
    client.submit(a_pod("lost", "one", "sleep", "1000"))
    departed, now = DepartedNodes(client, logging.getLogger("test")), 100.0
    departed.add("lost")
    becomes(client, "one", "Running")
    words = [("False", SHUT_DOWN_MESSAGE), ("True", "kubelet is posting ready status"), ("Unknown", "Kubelet stopped posting.")]
    for number, (ready, message) in enumerate(words):
        says(client, "lost", ready, message)
        departed.turn(now + number * LOOK_SECONDS)
    becomes(client, "one", "Failed")
    client.submit(a_pod("lost", "two", "sleep", "1000"))
    departed.turn(now + 9 * LOOK_SECONDS)
    assert names(client) == {"lost"}, "another agent may have begun it"


def test_a_node_that_never_was_is_forgotten_and_one_that_cannot_be_read_is_not(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    departed = DepartedNodes(client, logging.getLogger("test"))
    departed.add("never")
    departed.turn(0.0)
    client.register_node(a_node("never"))
    departed.turn(1000.0)
    assert names(client) == {"never"}
    with Client("127.0.0.1:1", timeout_seconds=0.2) as nobody:
        blind = DepartedNodes(nobody, logging.getLogger("test"))
        blind.add("never")
        for now in (0.0, LOOK_SECONDS):
            blind.turn(now)
    assert len([line for line in caplog.messages if "whether its pods have ended is not known yet" in line]) == 2
