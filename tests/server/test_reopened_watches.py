"""What a replica does that all watches of another one come to at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from rayched.client.errors import api_error
from rayched.server.services.watch_service import WatchLimits
from rayched.v1.services_pb2 import WatchRequest, WatchResponse
from tests.server.edge_server import OPTIONS, edge_serving
from tests.server.followed_cluster import Followed, fat
from tests.server.serving import until

WATCHES: Final = 5_000
CONNECTIONS: Final = 10
SECONDS: Final = 150.0
REQUEST: Final = WatchRequest(kind="Pod", namespace="default").SerializeToString()


@pytest.mark.slow
@pytest.mark.row("B94")
def test_watches_that_are_reopened_all_at_once_are_all_served_and_none_is_cancelled() -> None:
    """All are open at the end. Who is told to come back later does so, and gets in."""
    followed = Followed(WatchLimits())
    refused: Counter[str] = Counter()

    async def opened(watch: Any) -> Any:
        while True:
            call = watch(REQUEST, timeout=SECONDS)
            try:
                first = WatchResponse.FromString(await call.read())
            except grpc.aio.AioRpcError as error:
                failure = api_error(error, "the server")
                refused[failure.code.name] += 1
                assert failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED, failure
                assert failure.retry_after_seconds is not None
                await asyncio.sleep(failure.retry_after_seconds)
            else:
                assert [event.object.pod.metadata.name for event in first.events] == ["pod-1"]
                return call

    async def play(address: str) -> None:
        channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for _ in range(CONNECTIONS)]
        watches = [channel.unary_stream("/rayched.v1.Watch/Watch") for channel in channels]
        calls = await asyncio.gather(*(opened(watches[number % CONNECTIONS]) for number in range(WATCHES)))
        assert not any(call.done() for call in calls)
        assert server.watch.streams == WATCHES
        for channel in channels:
            await channel.close()

    with edge_serving(watching=followed) as server:
        server.on_loop(lambda: followed.feed.hub.listed([fat(1, 5, size=100)], 5))
        asyncio.run(asyncio.wait_for(play(server.address), SECONDS))
        until(server.is_idle, 30.0)
    assert set(refused) <= {"RESOURCE_EXHAUSTED"}
