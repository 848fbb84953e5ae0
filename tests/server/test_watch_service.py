"""Watches over real gRPC and a real etcd: what arrives is etcd's own history, whatever happens to the stream."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncGenerator, Iterator

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_shim import kv, rpc
from rayched.api.kinds import KINDS
from rayched.client import ApiError, Client, EventType
from rayched.client.errors import api_error
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.server.services.watch_service import WatchLimits
from rayched.server.watching.changes import ObjectChange
from rayched.server.watching.history import History
from rayched.server.watching.watch_hub import HubLimits
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Event
from rayched.v1.services_pb2 import WatchEvent, WatchRequest, WatchResponse
from rayched.v1.services_pb2_grpc import WatchStub
from rayched.v1.storage_pb2 import Stored
from tests.server.objects import a_node, a_pod
from tests.server.serving import Serving, serving, until

pytestmark = pytest.mark.cluster

SMALL = WatchLimits(bookmark_seconds=0.2, write_seconds_max=0.5)


@pytest.fixture
def small_api(etcd: EtcdServer, etcd_root: str) -> Iterator[Serving]:
    """A server whose window holds a few changes only, so that most watches begin in etcd's history."""
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root), hub=HubLimits(changes_max=20), watch=SMALL)
    with serving(options) as server:
        yield server


def etcd_history(etcd: EtcdServer, prefix: str, first: int, last: int) -> list[tuple[int, str, bool, Stored | None]]:
    """Revision, key, deleted, value of every change under the prefix: read from etcd without any code of the project."""
    changes = []
    with open_channel([etcd.endpoint]) as channel:
        end = prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1])
        create = rpc.WatchCreateRequest(key=prefix.encode(), range_end=end, start_revision=first)
        stop = threading.Event()
        requests = (rpc.WatchRequest(create_request=create) if i == 0 else stop.wait() for i in range(2))
        call = rpc.WatchStub(channel).Watch(requests)
        newest = first - 1
        for message in call:
            for event in message.events:
                newest = event.kv.mod_revision
                gone = event.type == kv.Event.DELETE
                changes.append((newest, event.kv.key.decode(), gone, None if gone else Stored.FromString(event.kv.value)))
            if newest >= last:
                break
        stop.set()
        call.cancel()
    return [change for change in changes if change[0] <= last]


def expected_events(history: list[tuple[int, str, bool, Stored | None]], prefix: str, wanted: str) -> list[tuple[int, str, str]]:
    """Revision, type and name of the events that a watch of pods with label app=wanted must show ("": of all pods)."""
    seen: dict[str, bool] = {}
    events = []
    for revision, key, deleted, stored in history:
        if not key.startswith(prefix):
            continue
        name = key.rsplit("/", 1)[1]
        before = seen.get(name, False)
        now = not deleted and stored is not None and (not wanted or stored.object.pod.metadata.labels.get("app") == wanted)
        seen[name] = now
        if before or now:
            events.append((revision, "MODIFIED" if before and now else "ADDED" if now else "DELETED", name))
    return events


def all_events(client: Client, wanted: str, first: int, last: int) -> list[tuple[int, str, str]]:
    """What one watch shows from `first` to `last`, which is an event of its own."""
    found = []
    with client.watch("pods", label_selector=f"app={wanted}" if wanted else "", start_revision=first) as stream:
        for event in stream:
            assert event.object is not None
            found.append((event.revision, event.type.name, event.object.metadata.name))
            if event.revision >= last:
                break
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_watch_with_reconnects_and_selectors_shows_exactly_etcds_history(
    seed: int, small_api: Serving, etcd: EtcdServer, etcd_root: str
) -> None:
    rng = random.Random(seed)
    with Client(small_api.address) as client:
        first = client.list_all("pods").revision + 1
        found: dict[str, list[tuple[int, str, str]]] = {"": [], "red": []}
        last_revision = [0]
        done = threading.Event()

        def follow(wanted: str) -> None:
            revision = first - 1
            random_cuts = random.Random(seed)
            selector = f"app={wanted}" if wanted else ""
            while not (done.is_set() and revision >= last_revision[0]):
                with client.watch("pods", label_selector=selector, start_revision=revision + 1, bookmarks=True) as stream:
                    for _ in range(random_cuts.randint(1, 40)):
                        event = next(stream)
                        if event.type is not EventType.BOOKMARK:
                            assert event.object is not None
                            assert event.object.metadata.resource_version == str(event.revision)
                            found[wanted].append((event.revision, event.type.name, event.object.metadata.name))
                        # A revision is whole only when the stream has moved past it.
                        if done.is_set() and stream.revision >= last_revision[0]:
                            break
                    revision = stream.revision
                    found[wanted] = [event for event in found[wanted] if event[0] <= revision]

        threads = [threading.Thread(target=follow, args=(wanted,), daemon=True) for wanted in found]
        for thread in threads:
            thread.start()
        alive: set[str] = set()
        for step in range(120):
            name = f"pod-{rng.randint(0, 9)}"
            color = rng.choice(["red", "blue"])
            if name in alive and rng.random() < 0.3:
                client.delete("pods", name)
                alive.discard(name)
            elif name in alive:
                client.label("pods", name, add={"app": color, "step": str(step)}, overwrite=True)
            elif rng.random() < 0.3:
                batch = [a_pod(f"batch-{step}-{i}", labels={"app": color}) for i in range(5)]
                assert all(result.error is None for result in client.submit_many(batch))
            else:
                client.submit(a_pod(name, labels={"app": color}))
                alive.add(name)
        last_revision[0] = client.submit(a_pod("last", labels={"app": "red"})).revision
        done.set()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive(), f"seed {seed}: a watch did not arrive at revision {last_revision[0]}"
        # By now the window holds the end alone: all that comes before is read from etcd's history.
        assert small_api.hub.floor > first
        again = {wanted: all_events(client, wanted, first, last_revision[0]) for wanted in found}
    history = etcd_history(etcd, f"{etcd_root}/cluster/", first, last_revision[0])
    for wanted, events in [*found.items(), *again.items()]:
        assert events == expected_events(history, f"{etcd_root}/cluster/pods/", wanted), f"seed {seed}, selector {wanted!r}"


def raw_watch(api: Serving, **request: object) -> Iterator[WatchResponse]:
    call: Iterator[WatchResponse] = WatchStub(api.channel).Watch(WatchRequest(**request))  # type: ignore[arg-type, no-untyped-call]
    return call


def failure_of(call: Iterator[WatchResponse]) -> ApiError:
    with pytest.raises(grpc.RpcError) as caught:
        for _ in call:
            pass
    return api_error(caught.value, "the server")


def test_a_watch_from_zero_shows_the_present_state_then_a_bookmark_then_changes(small_api: Serving) -> None:
    with Client(small_api.address) as client:
        client.submit_many([a_pod(f"pod-{i}", labels={"app": "red" if i % 2 else "blue"}) for i in range(6)])
        # The window of the server lags by a moment.
        revision = client.list_all("pods").revision
        until(lambda: small_api.hub.revision >= revision)
        call = raw_watch(small_api, kind="Pod", label_selector="app=red")
        events = [event for _ in range(2) for event in next(call).events]
        assert [event.object.pod.metadata.name for event in events[:-1]] == ["pod-1", "pod-3", "pod-5"]
        assert {event.type for event in events[:-1]} == {WatchEvent.ADDED}
        assert (events[-1].type, events[-1].revision) == (WatchEvent.BOOKMARK, revision)
        client.label("pods", "pod-1", add={"app": "blue"}, overwrite=True)
        changed = next(response for response in call if any(e.type != WatchEvent.BOOKMARK for e in response.events))
        (event,) = changed.events
        assert (event.type, event.object.pod.metadata.labels["app"]) == (WatchEvent.DELETED, "red")
        call.cancel()  # type: ignore[attr-defined]


def test_a_revision_is_never_divided_between_responses(small_api: Serving) -> None:
    with Client(small_api.address) as client:
        start = client.list_all("pods").revision + 1
        for round_number in range(2):  # the first is read from the window, the second from etcd's history too
            batches = [[a_pod(f"pod-{round_number}-{batch}-{i}") for i in range(60)] for batch in range(12)]
            assert all(result.error is None for batch in batches for result in client.submit_many(batch))
            last = client.list_all("pods").revision
            sizes: dict[int, list[int]] = {}
            call = raw_watch(small_api, kind="Pod", start_revision=start)
            for response in call:
                revisions = [event.revision for event in response.events if event.type != WatchEvent.BOOKMARK]
                for revision in dict.fromkeys(revisions):
                    sizes.setdefault(revision, []).append(revisions.count(revision))
                if response.revision >= last:
                    break
            call.cancel()  # type: ignore[attr-defined]
            assert sorted(sizes) == list(sizes)
            assert list(sizes.values()) == [[60]] * 12 * (round_number + 1)


def test_no_more_streams_than_allowed_read_etcds_history_at_a_time(
    etcd: EtcdServer, etcd_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when all streams of a replica that ended come to one that began after them."""
    reading, most = [0], [0]
    read = History.after

    async def after(history: History, revision: int) -> AsyncGenerator[list[ObjectChange], None]:
        reading[0] += 1
        most[0] = max(most[0], reading[0])
        try:
            # Long enough for all the others to come meanwhile.
            await asyncio.sleep(0.1)
            async for changes in read(history, revision):
                yield changes
        finally:
            reading[0] -= 1

    monkeypatch.setattr(History, "after", after)
    limits = WatchLimits(bookmark_seconds=0.2, histories_max=2)
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root), hub=HubLimits(changes_max=20), watch=limits)
    with serving(options) as api, Client(api.address) as client:
        start = client.list_all("pods").revision + 1
        last = client.submit_many([a_pod(f"pod-{i}") for i in range(120)])[-1].revision
        last = max(last, client.submit(a_pod("last")).revision)
        until(lambda: api.hub.floor >= start)
        calls = [raw_watch(api, kind="Pod", start_revision=start) for _ in range(7)]
        for call in calls:
            names: list[str] = []
            for response in call:
                names += [event.object.pod.metadata.name for event in response.events if event.type != WatchEvent.BOOKMARK]
                if response.revision >= last:
                    break
            assert sorted(names) == sorted(["last", *(f"pod-{i}" for i in range(120))])
            call.cancel()  # type: ignore[attr-defined]
    assert most == [2]


def test_a_stream_that_reads_history_for_too_long_is_cut_and_told_where_to_go_on(
    etcd: EtcdServer, etcd_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def after(history: History, revision: int) -> AsyncGenerator[list[ObjectChange], None]:
        await asyncio.Event().wait()
        yield []

    monkeypatch.setattr(History, "after", after)
    limits = WatchLimits(histories_max=1, history_seconds_max=0.2)
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root), hub=HubLimits(changes_max=5), watch=limits)
    with serving(options) as api, Client(api.address) as client:
        start = client.list_all("pods").revision + 1
        for i in range(20):
            client.submit(a_pod(f"pod-{i}"))
        until(lambda: api.hub.floor >= start)
        for _ in range(2):
            error = failure_of(raw_watch(api, kind="Pod", start_revision=start))
            assert error.code is grpc.StatusCode.ABORTED and f"from revision {start}" in error.message


def test_an_idle_watch_gets_bookmarks_that_are_true(small_api: Serving) -> None:
    with Client(small_api.address) as client:
        start = client.list_all("nodes").revision + 1
        last = client.submit_many([a_pod(f"pod-{i}") for i in range(30)])[-1].revision
        call = raw_watch(small_api, kind="Node", start_revision=start)
        revisions = [next(call).revision for _ in range(2)]
        assert revisions == [last, last]
        call.cancel()  # type: ignore[attr-defined]


def test_a_compacted_revision_is_refused_with_the_first_one_available(small_api: Serving, etcd: EtcdServer) -> None:
    with Client(small_api.address) as client:
        for i in range(40):
            last = client.submit(a_pod(f"pod-{i}")).revision
        compacted = last - 25
        with open_channel([etcd.endpoint]) as channel:
            rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=compacted))
        for start in (1, compacted - 1, compacted):
            error = failure_of(raw_watch(small_api, kind="Pod", start_revision=start))
            assert error.code is grpc.StatusCode.OUT_OF_RANGE
            assert error.first_available_revision == compacted + 1
            assert str(compacted + 1) in error.message and "list again" in error.message
        call = raw_watch(small_api, kind="Pod", start_revision=compacted + 1)
        assert next(response for response in call if response.events).events[0].revision == compacted + 1
        call.cancel()  # type: ignore[attr-defined]


def test_a_revision_that_has_not_happened_is_refused(small_api: Serving) -> None:
    with Client(small_api.address) as client:
        revision = client.list_all("pods").revision
    error = failure_of(raw_watch(small_api, kind="Pod", start_revision=revision + 1000))
    assert error.code is grpc.StatusCode.OUT_OF_RANGE
    assert f"{revision + 1000} is in the future" in error.message


def test_a_watcher_that_does_not_read_is_cut_and_can_go_on_where_it_was(small_api: Serving) -> None:
    pad = "x" * 20_000
    with Client(small_api.address) as client:
        start = client.list_all("pods").revision + 1
        call = raw_watch(small_api, kind="Pod", start_revision=start)
        names: list[str] = []
        until(lambda: small_api.streams == 1)
        deadline = time.monotonic() + 8
        while small_api.streams and time.monotonic() < deadline:
            pod = a_pod(f"pod-{len(names)}")
            pod.metadata.annotations["pad"] = pad
            client.submit(pod)
            names.append(pod.metadata.name)
        assert small_api.streams == 0, "the watcher was not cut"
        got: list[tuple[int, str]] = []
        revision = start - 1
        with pytest.raises(grpc.RpcError) as caught:
            for response in call:
                got += [(e.revision, e.object.pod.metadata.name) for e in response.events if e.type != WatchEvent.BOOKMARK]
                revision = response.revision
        assert caught.value.code() is grpc.StatusCode.ABORTED
        last = client.list_all("pods").revision
        with client.watch("pods", start_revision=revision + 1, bookmarks=True) as stream:
            for event in stream:
                if event.object is not None:
                    got.append((event.revision, event.object.metadata.name))
                if stream.revision >= last or len(got) >= len(names):
                    break
        assert [name for _, name in got] == names
        assert len({revision for revision, _ in got}) == len(got)


def test_streams_are_told_to_list_again_when_the_server_itself_had_to(small_api: Serving) -> None:
    with Client(small_api.address) as client:
        start = client.list_all("pods").revision + 1
        with client.watch("pods", start_revision=start) as stream:
            client.submit(a_pod("before"))
            assert next(stream).type is EventType.ADDED

            async def list_again() -> None:
                hub = small_api.hub
                hub.listed([entry for kind in KINDS for entry in hub.all_of(kind)], hub.revision + 1)

            small_api.run(list_again())
            with pytest.raises(ApiError, match="had to read etcd anew") as caught:
                next(stream)
            assert caught.value.code is grpc.StatusCode.OUT_OF_RANGE
        client.submit(a_pod("after"))
        assert [pod.metadata.name for pod in client.list("pods")] == ["after", "before"]


def test_a_server_that_stops_ends_its_streams_with_the_revision_to_go_on_from(etcd: EtcdServer, etcd_root: str) -> None:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root))
    with serving(options) as server, Client(server.address) as client:
        start = client.list_all("pods").revision + 1
        last = client.submit(a_pod()).revision
        call = raw_watch(server, kind="Pod", start_revision=start)
        assert next(call).revision == last
        thread = threading.Thread(target=lambda: server.run(server.server.stop()))
        thread.start()
        error = failure_of(call)
        thread.join(60)
        assert not thread.is_alive()
        assert error.code is grpc.StatusCode.UNAVAILABLE
        # Whether the response had left for good is known to the server a moment later than to the caller.
        assert error.resume_revision in (last, last + 1)


def test_unreadable_values_are_skipped_and_never_stop_a_stream(small_api: Serving, etcd: EtcdServer, etcd_root: str) -> None:
    key = f"{etcd_root}/cluster/pods/default/poisoned".encode()
    with Client(small_api.address) as client, open_channel([etcd.endpoint]) as channel:
        start = client.list_all("pods").revision + 1
        client.submit(a_pod("one"))
        rpc.KVStub(channel).Put(rpc.PutRequest(key=key, value=b"\xff\xfe no message"))
        client.submit(a_pod("two"))
        with client.watch("pods", start_revision=start) as stream:
            assert [next(stream).object.metadata.name for _ in range(2)] == ["one", "two"]  # type: ignore[union-attr]
        assert [pod.metadata.name for pod in client.list("pods")] == ["one", "two"]
        with pytest.raises(ApiError) as caught:
            client.get("pods", "poisoned")
        assert caught.value.code is grpc.StatusCode.DATA_LOSS


def test_events_have_a_stream_of_their_own(small_api: Serving) -> None:
    happened = Event(reason="Scheduled", type="Normal")
    happened.metadata.name = "web.1"
    happened.involved_object.name = "web"
    with Client(small_api.address) as client:
        start = client.list_all("events").revision + 1
        client.submit(a_pod("web"))
        client.submit(happened)
        with client.watch("events", field_selector="involvedObject.name=web", start_revision=start) as stream:
            found = next(stream).object
            assert isinstance(found, Event) and found.reason == "Scheduled"
        all_kinds = raw_watch(small_api, start_revision=start)
        response = next(response for response in all_kinds if response.events)
        assert [event.object.WhichOneof("kind") for event in response.events] == ["pod"]
        client.register_node(a_node("node-1"))
        response = next(r for r in all_kinds if any(e.type != WatchEvent.BOOKMARK for e in r.events))
        assert response.events[0].object.WhichOneof("kind") == "node"
        all_kinds.cancel()  # type: ignore[attr-defined]


@pytest.mark.row("B106")
def test_a_caller_that_leaves_while_it_is_written_to_is_no_error_in_the_log(
    api: Serving, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(8):
        pod = a_pod(f"fat-{number}")
        pod.metadata.annotations["filler"] = f"{number}" * 200_000
        client.submit(pod)
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535)]
    for _ in range(3):
        with grpc.insecure_channel(api.address, options=options) as channel:
            calls = [WatchStub(channel).Watch(WatchRequest(kind="Pod")) for _ in range(30)]
            until(lambda: api.server._running.watch.streams >= 30)
            time.sleep(0.3)
            for call in calls[::2]:
                call.cancel()
    until(lambda: api.server._running.watch.streams == 0)
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []
