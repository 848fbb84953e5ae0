"""The objects as a replica has them in memory, and the watch that goes on from there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from rayched.api import kinds
from rayched.client import ApiError, AsyncClient, Client, EventType
from rayched.client.watch import Event
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.v1.services_pb2 import WatchEvent, WatchResponse
from tests.client.losing import answering
from tests.client.replicas import Process
from tests.replica.clusters import until_true
from tests.server.objects import a_node, a_pod

Read = Callable[[str, str | None], list[Event]]


def read(address: str, kind: str | None) -> list[Event]:
    with Client([address]) as client:
        return list(client.cached(kind))


def read_asynchronously(address: str, kind: str | None) -> list[Event]:
    async def run() -> list[Event]:
        async with AsyncClient([address]) as client:
            return [event async for event in client.cached(kind)]

    return asyncio.run(run())


@pytest.fixture(params=[read, read_asynchronously])
def cached(request: pytest.FixtureRequest) -> Read:
    return request.param  # type: ignore[no-any-return]


def names(events: list[Event]) -> list[str]:
    return [event.object.metadata.name for event in events if event.object is not None]


@pytest.mark.cluster
def test_objects_come_as_they_are_and_a_watch_goes_on_after_their_revision(etcd: EtcdServer, cached: Read) -> None:
    replica = Process(etcd, f"/test-cached-{cached.__name__}")
    try:
        with Client([replica.address]) as client:
            client.register_node(a_node("node-1"))
            client.submit_many(a_pod(f"pod-{number:03}") for number in range(700))
            last = client.submit(a_pod("zz")).revision
            # The replica's memory may be a moment behind.
            until_true(lambda: cached(replica.address, "pods")[-1].revision >= last, 30.0, "the replica has not heard of it")
            pods = cached(replica.address, "pods")
            assert names(pods) == [*(f"pod-{number:03}" for number in range(700)), "zz"]
            assert {event.type for event in pods[:-1]} == {EventType.ADDED}
            assert pods[-1].type is EventType.BOOKMARK and pods[-1].object is None
            assert {int(event.object.metadata.resource_version) for event in pods if event.object is not None} == {
                event.revision for event in pods[:-1]
            }
            everything = names(cached(replica.address, None))
            assert {*names(pods), "node-1", "default"} <= set(everything) and len(everything) == len(set(everything))
            client.delete("pods", "zz")
            client.submit(a_pod("aa"))
            watch = client.watch("pods", start_revision=pods[-1].revision + 1, timeout_seconds=60.0)
            found = [next(watch) for _ in range(2)]
            assert [event.type for event in found] == [EventType.DELETED, EventType.ADDED]
            assert names(found) == ["zz", "aa"]
    finally:
        replica.end()


class BreakingWatch(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A replica that refuses a watch so many times, then gives a single object and ends."""

    def __init__(self, refuses: int) -> None:
        self.calls = 0
        self._refuses = refuses

    def service(self, details: Any) -> Any:
        return grpc.unary_stream_rpc_method_handler(self._watch)

    def _watch(self, _: bytes, context: Any) -> Iterator[bytes]:
        self.calls += 1
        if self.calls > self._refuses:
            event = WatchEvent(type=WatchEvent.Type.ADDED, object=kinds.wrap(a_pod("one")), revision=5)
            yield WatchResponse(events=[event]).SerializeToString()
        context.abort(grpc.StatusCode.UNAVAILABLE, "the replica ends")


@contextlib.contextmanager
def breaking(refuses: int) -> Iterator[tuple[BreakingWatch, str]]:
    handler = BreakingWatch(refuses)
    with answering(handler) as address:
        yield handler, address


def test_a_replica_that_ends_meanwhile_is_told_and_nothing_begins_anew_by_itself(cached: Read) -> None:
    with breaking(0) as (handler, address), pytest.raises(ApiError, match="the replica ends"):
        cached(address, "pods")
    assert handler.calls == 1


def test_a_replica_that_has_given_nothing_yet_is_asked_again(cached: Read) -> None:
    with breaking(2) as (handler, address), pytest.raises(ApiError, match="the replica ends"):
        cached(address, "pods")
    assert handler.calls == 3


def test_what_came_before_the_end_was_given_out() -> None:
    with breaking(0) as (_, address), Client([address]) as client:
        events = client.cached("pods")
        assert next(events).revision == 5
        with pytest.raises(ApiError):
            next(events)
