"""Watches that nobody reads: what they hold is shared and bounded, they end soon, and others do not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from rayched.client.errors import ApiError, api_error
from rayched.server.edge.limits import NO_RATES, EdgeLimits
from rayched.server.services.watch_service import WatchLimits
from rayched.server.watching.selection import Selection
from rayched.server.watching.subscriptions import BYTES_A_BATCH
from rayched.store.entries import Entry
from rayched.v1.services_pb2 import WatchEvent, WatchRequest
from rayched.v1.services_pb2_grpc import WatchStub
from tests.server.edge_server import EdgeServing, edge_serving, guard_of_shown, identity_shown, of_each, refusing_process
from tests.server.followed_cluster import Followed, fat
from tests.server.serving import until

NARROW = (("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535))
LIMITS = WatchLimits(write_seconds_max=1.0)


@pytest.fixture
def followed() -> Followed:
    return Followed(LIMITS)


@pytest.fixture
def server(followed: Followed) -> Iterator[EdgeServing]:
    with edge_serving(watching=followed) as found:
        yield found


def unread(server: EdgeServing, channel: grpc.Channel, count: int) -> list[Any]:
    before = server.watch.streams
    stub = WatchStub(channel)  # type: ignore[no-untyped-call]
    calls = [stub.Watch(WatchRequest(kind="Pod", namespace="default")) for _ in range(count)]
    until(lambda: server.watch.streams == before + count)
    return calls


def counted_encodings(followed: Followed) -> list[Entry]:
    """The entries that are encoded from now on, each time."""
    found: list[Entry] = []
    encoder = followed.feed.hub.encoder
    encode = encoder.encode_initial

    def counted(entry: Entry, selection: Selection) -> bytes | None:
        found.append(entry)
        return encode(entry, selection)

    encoder.encode_initial = counted  # type: ignore[method-assign]
    return found


def ended(call: Any) -> ApiError:
    with pytest.raises(grpc.RpcError) as caught:
        for _ in call:
            pass
    return api_error(caught.value, "the server")


def names(call: Any, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        found += [event.object.pod.metadata.name for event in next(call).events if event.type != WatchEvent.BOOKMARK]
    return found


@pytest.mark.row("B92")
def test_those_who_do_not_read_share_their_pages_and_end_while_an_honest_one_goes_on(
    server: EdgeServing, followed: Followed
) -> None:
    """F5, B92."""
    with grpc.insecure_channel(server.address, options=NARROW) as narrow, grpc.insecure_channel(server.address) as wide:
        encoded = counted_encodings(followed)
        calls = unread(server, narrow, 60)
        until(lambda: server.edge.bytes.held > 0)
        time.sleep(0.3)
        (view,) = server.watch._views._views.values()
        assert 1 <= len(view._pages) <= 2, "at most those that a window of 64 KiB reaches"
        del view
        assert len(encoded) <= 4, "a page has one of these pods, and the next one did not fit"
        assert server.edge.bytes.held <= 60 * BYTES_A_BATCH
        honest = WatchStub(wide).Watch(WatchRequest(kind="Pod", namespace="default"))  # type: ignore[no-untyped-call]
        assert names(honest, 8) == [f"pod-{number}" for number in range(8)]
        until(lambda: server.watch.streams == 1)
        server.on_loop(lambda: followed.feed.hub.changed([fat(9, 6)], 6))
        assert names(honest, 1) == ["pod-9"]
        errors = [ended(call) for call in calls]
        assert {error.code.name for error in errors} == {"ABORTED"}
        assert all("read too slowly" in error.message for error in errors)
        honest.cancel()
    until(server.is_idle)
    until(lambda: not server.watch._views._views)


def test_an_unread_watch_has_no_place_and_keeps_no_later_one_out() -> None:
    """With five seats watches have one."""
    followed = Followed(WatchLimits(write_seconds_max=8.0))
    with edge_serving(of_each(seats=5, held_bytes=1 << 30), watching=followed) as server:
        with grpc.insecure_channel(server.address, options=NARROW) as narrow, grpc.insecure_channel(server.address) as wide:
            calls = unread(server, narrow, 10)
            honest = WatchStub(wide).Watch(WatchRequest(kind="Pod", namespace="default"), timeout=10)  # type: ignore[no-untyped-call]
            assert len(names(honest, 8)) == 8
            assert server.watch.streams == len(calls) + 1
            honest.cancel()
        until(server.is_idle)


def test_what_one_caller_does_not_read_is_bounded_and_ends_its_own_watches_alone() -> None:
    """A caller that has used up its bytes writes nothing more; another one does."""
    followed = Followed(WatchLimits(write_seconds_max=1.0))

    limits = of_each(held_bytes=8 << 20, wide_watches=100, rates=NO_RATES)
    key = identity_shown("a").uri
    with edge_serving(EdgeLimits(identity=limits.identity), guard_of_shown(), followed) as server:
        with grpc.insecure_channel(server.address, options=NARROW) as narrow, grpc.insecure_channel(server.address) as wide:
            stub = WatchStub(narrow)  # type: ignore[no-untyped-call]
            request = WatchRequest(kind="Pod", namespace="default")
            calls = [stub.Watch(request, metadata=(("shown", "a"),)) for _ in range(60)]
            until(lambda: server.edge.bytes.of(key) > (4 << 20))
            honest = WatchStub(wide).Watch(request, metadata=(("shown", "b"),), timeout=10)  # type: ignore[no-untyped-call]
            assert len(names(honest, 8)) == 8
            assert server.edge.bytes.of(key) <= 8 << 20
            until(lambda: server.watch.streams == 1, 10.0)
            assert {ended(call).code.name for call in calls} <= {"ABORTED", "RESOURCE_EXHAUSTED"}
            honest.cancel()
        until(server.is_idle)


@pytest.mark.row("B92")
def test_three_hundred_unread_watches_hold_a_page_each_and_no_more() -> None:
    """F5, B92: 300 watches of 1.9 MB."""
    with refusing_process("watch") as (address, peak), grpc.insecure_channel(address, options=NARROW) as channel:
        stub = WatchStub(channel)  # type: ignore[no-untyped-call]
        before = peak()
        calls = [stub.Watch(WatchRequest(kind="Pod", namespace="default")) for _ in range(300)]
        time.sleep(5.0)
        assert 10 < peak() - before < 100, "MiB"
        for call in calls:
            call.cancel()


def test_a_response_has_a_quarter_of_a_megabyte_at_most_or_one_event(server: EdgeServing, followed: Followed) -> None:
    server.on_loop(lambda: followed.feed.hub.changed([fat(20, 6, 500 << 10)], 6))
    server.on_loop(lambda: followed.feed.hub.changed([fat(number, 7, 1_000) for number in range(30, 60)], 7))
    with grpc.insecure_channel(server.address) as channel:
        call = channel.unary_stream("/rayched.v1.Watch/Watch")(WatchRequest(kind="Pod", namespace="default").SerializeToString())
        sizes = []
        while sum(sizes) < (240 * 8 + 500 + 30) << 10:
            sizes.append(len(next(call)))
        assert sum(size > BYTES_A_BATCH for size in sizes) == 1
        for revision in range(8, 12):
            server.on_loop(lambda revision=revision: followed.feed.hub.changed([fat(revision, revision)], revision))  # type: ignore[misc]
        assert all(len(next(call)) < BYTES_A_BATCH for _ in range(4))
        call.cancel()
    until(server.is_idle)


def test_a_view_is_shared_until_something_of_its_kind_changes() -> None:
    followed = Followed(WatchLimits(write_seconds_max=60.0))
    with edge_serving(watching=followed) as server:
        with grpc.insecure_channel(server.address, options=NARROW) as narrow:
            calls = unread(server, narrow, 2)
            until(lambda: len(server.watch._views._views) == 1)
            server.on_loop(lambda: followed.feed.hub.changed([fat(9, 6)], 6))
            calls += unread(server, narrow, 2)
            until(lambda: len(server.watch._views._views) == 2)
            assert sorted(len(view) for view in server.watch._views._views.values()) == [8, 9]
        until(server.is_idle)


def test_more_watches_than_a_replica_serves_are_refused_with_a_delay() -> None:
    with edge_serving(watching=Followed(WatchLimits(streams_max=2))) as server:
        calls = unread(server, server.channel, 2)
        error = ended(WatchStub(server.channel).Watch(WatchRequest(kind="Pod")))  # type: ignore[no-untyped-call]
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds == 1.0
        assert "this replica serves 2 watches" in error.message
        assert server.rejected() == {("watch", "watches"): 1}
        for call in calls:
            call.cancel()
        until(server.is_idle)


def test_watches_without_a_selector_are_counted_apart() -> None:
    with edge_serving(of_each(watches=3, wide_watches=1), watching=Followed(LIMITS)) as server:
        calls = unread(server, server.channel, 1)
        stub = WatchStub(server.channel)  # type: ignore[no-untyped-call]
        assert "1 watches without a selector" in ended(stub.Watch(WatchRequest(kind="Pod"), timeout=10)).message
        narrow = [stub.Watch(WatchRequest(kind="Pod", label_selector="a"), timeout=30) for _ in range(2)]
        for call in narrow:
            assert next(call).events[-1].type == WatchEvent.BOOKMARK
        assert "3 watches open" in ended(stub.Watch(WatchRequest(kind="Pod", label_selector="a"), timeout=10)).message
        for call in (*calls, *narrow):
            call.cancel()
        until(server.is_idle)


@pytest.mark.parametrize(
    ("field", "text"),
    [("label_selector", "a" * 4_097), ("label_selector", ",".join(f"a{i}" for i in range(65)))],
    ids=["long", "many"],
)
def test_a_selector_is_limited(server: EdgeServing, field: str, text: str) -> None:
    request = WatchRequest(kind="Pod", **{field: text})  # type: ignore[arg-type]
    error = ended(WatchStub(server.channel).Watch(request, timeout=10))  # type: ignore[no-untyped-call]
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT and field in error.message and "allowed" in error.message
    most = ",".join(f"a{i}" for i in range(64))
    call = WatchStub(server.channel).Watch(WatchRequest(kind="Pod", label_selector=most))  # type: ignore[no-untyped-call]
    assert next(call).events[-1].type == WatchEvent.BOOKMARK
    call.cancel()
