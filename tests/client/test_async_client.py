"""The asynchronous SDK against a real replica: submissions, watches, waits and their ends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rayched.client import ApiError, AsyncClient, Client, EventType, NotAllSubmitted, NotBound
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.v1.core_pb2 import Pod
from tests.client.replicas import Process
from tests.server.objects import a_pod

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def api(etcd: EtcdServer) -> Iterator[Process]:
    """One replica for all tests here; its namespaces are theirs to keep apart."""
    found = Process(etcd, "/test-async-client")
    yield found
    found.end()


def test_a_watch_from_the_present_state_ends_with_its_time_and_tells_bookmarks(api: Process) -> None:
    async def run() -> None:
        async with AsyncClient(api.address) as client:
            submitted = await client.submit([a_pod("one"), a_pod("two")])
            began_at = time.monotonic()
            events = [event async for event in client.watch("pods", bookmarks=True, timeout_seconds=0.5)]
            assert 0.4 < time.monotonic() - began_at < 60.0
            assert [event.type for event in events[:3]] == [EventType.ADDED, EventType.ADDED, EventType.BOOKMARK]
            with pytest.raises(NotBound, match=r"^2 of 2 pods are not bound after 0\.3 s: default/one; default/two$") as caught:
                await client.wait_bound(submitted, timeout_seconds=0.3)
            assert caught.value.pending == {"default/one": "", "default/two": ""}
            waiting = asyncio.create_task(client.wait_bound("one", timeout_seconds=20))
            await asyncio.sleep(0.2)
            await client.delete("pods", "one")
            with pytest.raises(NotBound, match="pod default/one was deleted before it was bound"):
                await waiting
            with pytest.raises(ApiError, match='pod "default/nobody" not found'):
                await client.wait_bound(["two", "nobody"])

    asyncio.run(run())


def test_manifests_and_objects_are_submitted_together_and_refusals_are_named(api: Process) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
    }

    async def run() -> None:
        async with AsyncClient(api.address) as client:
            bad = a_pod("bad")
            bad.spec.containers[0].name = "Not A Name"
            tried = await client.submit([a_pod("web")], dry_run=True)
            assert [(one.kind, one.name, one.error) for one in tried] == [("Pod", "web", None)]
            with pytest.raises(ApiError, match="not found"):
                await client.get("pods", "web")
            with pytest.raises(NotAllSubmitted, match=r"^1 of 2 objects were refused: Pod bad: ") as caught:
                await client.submit([a_pod("web"), bad])
            assert [one.error is None for one in caught.value.outcomes] == [True, False]
            (stored,) = await client.submit(manifest)
            assert (stored.kind, stored.namespace, stored.name) == ("Pod", "default", "plain")
            found = await client.get("pods", "plain")
            assert isinstance(found, Pod) and found.metadata.uid == stored.uid

    asyncio.run(run())


def test_a_closed_client_ends_its_watches(api: Process) -> None:
    async def run() -> None:
        client = AsyncClient(api.address)
        stream = client.watch("pods", start_revision=(await client.submit(a_pod("last"))).revision)
        assert (await anext(stream)).revision > 0
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(ApiError, match="the client is closed"):
            await asyncio.wait_for(waiting, 5)

    asyncio.run(run())


def test_the_synchronous_client_watches_and_waits_alike(api: Process) -> None:
    with Client(api.address) as client:
        submitted = client.submit([a_pod("same"), a_pod("again")])
        began_at = time.monotonic()
        events = list(client.watch("pods", start_revision=submitted[0].revision, timeout_seconds=0.5))
        assert [event.object.metadata.name for event in events if event.object is not None] == ["same", "again"]
        assert 0.4 < time.monotonic() - began_at < 60.0
        with pytest.raises(NotBound, match=r"^1 of 1 pods are not bound after 0\.3 s: default/same$"):
            client.wait_bound("same", timeout_seconds=0.3)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.wait_bound, submitted, timeout_seconds=20)
            time.sleep(0.2)
            client.delete("pods", "again")
            with pytest.raises(NotBound, match="pod default/again was deleted"):
                waiting.result(10)


def test_watches_beyond_what_a_connection_takes_leave_room_for_calls(api: Process) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(150.0),
            AsyncClient(api.address, timeout_seconds=60.0) as client,
            contextlib.AsyncExitStack() as held,
        ):

            async def begun() -> None:
                watch = await held.enter_async_context(client.watch("nodes", bookmarks=True))
                assert (await anext(watch)).type is EventType.BOOKMARK

            for _ in range(44):
                await asyncio.gather(*(begun() for _ in range(25)))
            assert not (await client.list_all("nodes")).objects

    asyncio.run(run())
