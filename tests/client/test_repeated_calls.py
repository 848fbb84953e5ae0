"""What the repetition of a call can hit: nothing but what its first attempt could."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rayched.client import ApiError, AsyncClient, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.cli.cluster import run_here
from tests.client.losing import Relay, losing
from tests.server.objects import a_pod
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.cluster
NOBODY = "127.0.0.1:1"
"""Refuses connections."""


@pytest.fixture(scope="module")
def api(etcd: EtcdServer) -> Iterator[Serving]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys("/repeated-calls"))) as server:
        yield server


@pytest.fixture
def direct(api: Serving) -> Iterator[Client]:
    with Client(api.address, timeout_seconds=5) as client:
        yield client
        for pod in client.list("pods"):
            client.delete("pods", pod.metadata.name, uid=pod.metadata.uid)


Ask = Callable[[str, str], Any]
"""Deletes or evicts the pod of this name through the client at this address."""


def _in_a_thread(method: str) -> Ask:
    def ask(address: str, name: str) -> Any:
        with Client(address, timeout_seconds=5) as client:
            return client.delete("pods", name) if method == "delete" else client.evict(name)

    return ask


def _in_a_loop(method: str) -> Ask:
    async def asked(address: str, name: str) -> Any:
        async with AsyncClient(address, timeout_seconds=5) as client:
            return await (client.delete("pods", name) if method == "delete" else client.evict(name))

    return lambda address, name: asyncio.run(asked(address, name))


ASKS = [
    pytest.param("Delete", _in_a_thread("delete"), id="delete"),
    pytest.param("Evict", _in_a_thread("evict"), id="evict"),
    pytest.param("Delete", _in_a_loop("delete"), id="delete, asyncio"),
    pytest.param("Evict", _in_a_loop("evict"), id="evict, asyncio"),
]


@pytest.mark.parametrize(("method", "ask"), ASKS)
def test_the_successor_of_a_pod_that_an_unheard_attempt_removed_stays(
    api: Serving, direct: Client, method: str, ask: Ask
) -> None:
    direct.submit(a_pod("web-0"))
    successors: list[str] = []

    def controller(relay: Relay) -> None:
        relay.meanwhile = lambda: successors.append(direct.submit(a_pod("web-0")).uid)

    with losing(api.address) as (relay, address):
        relay.lose = [method]
        controller(relay)
        answer = ask(address, "web-0")
        assert relay.calls.count(method) == 2, "it was repeated"
    assert [pod.metadata.uid for pod in direct.list("pods")] == successors
    assert not answer.ByteSize(), "nobody knows by whom the first one went"


@pytest.mark.parametrize(("method", "ask"), ASKS)
def test_a_pod_that_an_unheard_attempt_removed_is_gone_without_an_error(
    api: Serving, direct: Client, method: str, ask: Ask
) -> None:
    direct.submit(a_pod("web-0"))
    with losing(api.address) as (relay, address):
        relay.lose = [method]
        assert not ask(address, "web-0").ByteSize()
    assert not list(direct.list("pods"))


@pytest.mark.parametrize(("method", "ask"), ASKS)
def test_what_never_existed_is_not_found_also_where_the_first_replica_refuses_the_connection(
    api: Serving, method: str, ask: Ask
) -> None:
    for _ in range(6):  # the client begins at either of the two
        with pytest.raises(ApiError) as caught:
            ask(f"{NOBODY},{api.address}", "never-was")
        assert caught.value.code.name == "NOT_FOUND"


@pytest.mark.parametrize("method", ["delete", "evict"])
def test_an_attempt_that_found_no_connection_has_done_nothing(api: Serving, direct: Client, method: str) -> None:
    uid = "00000000-0000-4000-8000-000000000000"
    with Client([NOBODY, api.address], timeout_seconds=5) as client:
        client._transport.endpoints.prefer(NOBODY)
        with pytest.raises(ApiError) as caught:
            # With a uid nothing is looked up before.
            _ = client.delete("pods", "never-was", uid=uid) if method == "delete" else client.evict("never-was", uid=uid)
    assert caught.value.code.name == "NOT_FOUND"


@pytest.mark.parametrize(("method", "ask"), ASKS)
def test_whoever_takes_the_name_before_anything_was_asked_is_the_one_that_is_meant(
    api: Serving, direct: Client, method: str, ask: Ask
) -> None:
    first = direct.submit(a_pod("web-0")).uid

    def replaced() -> None:
        direct.delete("pods", "web-0", uid=first)
        direct.submit(a_pod("web-0"))

    with losing(api.address) as (relay, address):
        # The look-up's answer is lost too, and with the second one the pod is another.
        relay.lose, relay.meanwhile = ["Get"], replaced
        ask(address, "web-0")
    assert not list(direct.list("pods"))


def test_a_uid_that_is_not_the_present_one_is_refused_and_nothing_is_deleted(direct: Client) -> None:
    direct.submit(a_pod("web-0"))
    for ask in (lambda uid: direct.delete("pods", "web-0", uid=uid), lambda uid: direct.evict("web-0", uid=uid)):
        with pytest.raises(ApiError) as caught:
            ask("of-another")
        assert caught.value.code.name == "ABORTED"
    assert len(list(direct.list("pods"))) == 1


def test_the_command_says_deleted_of_what_it_has_deleted_alone(api: Serving, direct: Client) -> None:
    for lost, said in ([], "deleted"), (["Delete"], "is gone"):
        direct.submit(a_pod("web-0"))
        with losing(api.address) as (relay, address):
            relay.lose = list(lost)
            found = run_here(["delete", "pod", "web-0", "-s", address])
        assert (found.code, found.lines) == (0, [f'pod "web-0" {said} from default namespace'])
    found = run_here(["delete", "pod", "web-0", "-s", f"{NOBODY},{api.address}"])
    assert (found.code, found.errors) == (1, ["error: Pod default/web-0 not found"])
