"""The asynchronous SDK against real replicas that die: nothing is lost, nothing is told twice."""

from __future__ import annotations

import asyncio
import itertools
import signal

import pytest

from rayched.client import AsyncClient
from tests.client.replicas import Process
from tests.server.objects import a_node, a_pod

pytestmark = pytest.mark.cluster


def test_an_asynchronous_watch_tells_everything_once_and_in_order_while_replicas_die(replicas: list[Process]) -> None:
    addresses = [replica.address for replica in replicas]
    acknowledged: dict[str, int] = {}
    events: list[tuple[int, str]] = []

    async def submit(client: AsyncClient, stop: asyncio.Event) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            acknowledged[f"pod-{number}"] = (await client.submit(a_pod(f"pod-{number}"))).revision
            for result in await client.submit([a_pod(f"batch-{number}-{i}") for i in range(3)]):
                acknowledged[result.name] = result.revision
            await asyncio.sleep(0.005)

    async def run() -> None:
        async with AsyncClient(addresses, timeout_seconds=8) as client, AsyncClient(addresses, timeout_seconds=8) as reader:
            start = (await client.submit(a_pod("first"))).revision
            acknowledged["first"] = start
            stream = reader.watch("pods", start_revision=start)

            async def follow() -> None:
                # A reader that is cancelled again and again loses nothing and hears nothing twice.
                while "last" not in {name for _, name in events}:
                    try:
                        async with asyncio.timeout(0.03):
                            async for event in stream:
                                assert event.object is not None
                                events.append((event.revision, event.object.metadata.name))
                    except TimeoutError:
                        continue

            stop = asyncio.Event()
            following, submitting = asyncio.create_task(follow()), asyncio.create_task(submit(client, stop))
            for replica in replicas[:2]:
                await asyncio.sleep(0.5)
                replica.end()
            await asyncio.sleep(0.6)
            stop.set()
            await asyncio.wait_for(submitting, 10)
            acknowledged["last"] = (await client.submit(a_pod("last"))).revision
            await asyncio.wait_for(following, 10)
            stream.close()
            assert [event async for event in stream] == []
            assert {pod.metadata.name async for pod in client.list("pods")} == set(acknowledged)

    asyncio.run(run())
    assert len(events) == len(acknowledged)
    assert {name: revision for revision, name in events} == acknowledged
    assert [revision for revision, _ in events] == sorted(revision for revision, _ in events)


def test_a_hung_replica_is_left_for_another_and_the_loop_runs_on(replicas: list[Process]) -> None:
    async def run() -> None:
        async with AsyncClient([replica.address for replica in replicas[:2]], timeout_seconds=10) as client:
            await client.register_node(a_node("node-1"))
            client._transport.endpoints.prefer(replicas[0].address)
            await client.get("nodes", "node-1")
            replicas[0].signal(signal.SIGSTOP)
            turns = 0
            asking = asyncio.create_task(client.get("nodes", "node-1"))
            while not asking.done():
                await asyncio.sleep(0.01)
                turns += 1
            assert (await asking).metadata.name == "node-1"
            assert turns > 3, "the loop was blocked"
            replicas[0].signal(signal.SIGCONT)

    asyncio.run(run())
