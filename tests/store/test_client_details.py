"""The store's clients on a real etcd: how long a call may take, who is told of it, an etcd that is full, streams that end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from leader.channel import open_aio_channel, open_channel
from leader.etcd_shim import rpc
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.calls import Deadlines
from rayched.store.errors import RequestTooLarge, StoreError, StoreFull, StoreUnavailable
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.io.client import PendingCommit, StoreClient
from rayched.store.io.leases import LeaseKeepAlives
from rayched.store.io.watcher import Watcher
from rayched.store.transactions import (
    Committed,
    Conflict,
    Guard,
    GuardedDelete,
    GuardedPut,
    Outcome,
    OutcomeUnknown,
    TransactionRefused,
    Write,
)
from tests.etcd_fixture import hang
from tests.patience import TRIES_MAX, least

pytestmark = pytest.mark.cluster

QUICK = Deadlines(read_seconds=0.2, page_seconds=0.8, write_seconds=0.2, patience_seconds=0.1)


class Times:
    """Notes down how each write went, and when it was sent."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def answered(self, sent: float) -> None:
        self.told.append(("answered", sent))

    def unanswered(self, sent: float) -> None:
        self.told.append(("unanswered", sent))


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True, quota_bytes=1 << 20) as server:
        yield server
        if server.pid is not None:
            os.kill(server.pid, signal.SIGCONT)


@contextlib.contextmanager
def client_of(server: EtcdServer, deadlines: Deadlines | None = None) -> Iterator[StoreClient]:
    with contextlib.closing(open_channel([server.endpoint])) as channel:
        yield StoreClient(channel, deadlines)


def on_a_loop(endpoint: str, work: Callable[[AsyncStoreClient], Any], *arguments: Any) -> Any:
    async def run() -> Any:
        async with open_aio_channel([endpoint]) as channel:
            return await work(AsyncStoreClient(channel, *arguments))

    return asyncio.run(run())


def own_etcd_answers(client: StoreClient) -> None:
    """Over the client's connection, so that none has to be made while etcd hangs."""
    until = time.monotonic() + 60.0
    while True:
        with contextlib.suppress(StoreUnavailable):
            client.put(b"/a/1", b"v")
            return
        assert time.monotonic() < until


def seconds_until_unavailable(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        call()
    return time.monotonic() - began


async def seconds_on_a_loop(call: Awaitable[object]) -> float:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await call
    return time.monotonic() - began


def test_a_page_may_take_longer_than_a_key(own_etcd: EtcdServer) -> None:
    assert own_etcd.pid is not None
    with client_of(own_etcd, QUICK) as client:

        def took(call: Callable[[bytes], object]) -> float:
            assert own_etcd.pid is not None
            own_etcd_answers(client)
            hang(own_etcd.pid)
            found = seconds_until_unavailable(partial(call, b"/a/"))
            os.kill(own_etcd.pid, signal.SIGCONT)
            return found

        assert min(took(client.list_page), took(client.list_all)) >= 0.75
        assert 0.15 <= least(lambda: took(client.get), 0.75) < 0.75


def test_a_page_may_take_longer_than_a_key_on_a_loop_too(own_etcd: EtcdServer) -> None:
    async def work(store: AsyncStoreClient) -> None:
        async def took(call: Callable[[bytes], Awaitable[object]]) -> float:
            assert own_etcd.pid is not None
            own_etcd_answers(client)
            while True:
                with contextlib.suppress(StoreUnavailable):
                    await store.put(b"/a/1", b"v")
                    break
            hang(own_etcd.pid)
            found = await seconds_on_a_loop(call(b"/a/"))
            os.kill(own_etcd.pid, signal.SIGCONT)
            return found

        with client_of(own_etcd, QUICK) as client:
            assert min(await took(store.list_page), await took(store.list_all)) >= 0.75
            of_keys = [await took(store.get)]
            while of_keys[-1] >= 0.75 and len(of_keys) < TRIES_MAX:
                of_keys.append(await took(store.get))
            assert 0.15 <= of_keys[-1] < 0.75

    on_a_loop(own_etcd.endpoint, work, QUICK)


def test_whoever_counts_answers_is_told_of_each_write_that_had_one_and_of_each_that_had_none(own_etcd: EtcdServer) -> None:
    assert own_etcd.pid is not None
    times = Times()
    began = time.monotonic()

    async def work(store: AsyncStoreClient) -> list[Outcome]:
        await store.put(b"/a", b"1")
        assert [what for what, _ in times.told] == ["answered"]
        await store.get(b"/a")
        await store.list_all(b"/")
        assert len(times.told) == 1, "reads are none of it"
        with pytest.raises(RequestTooLarge):
            await store.put(b"/a", bytes(5 << 20))
        assert len(times.told) == 1, "what is refused for its size says nothing about etcd"
        assert own_etcd.pid is not None
        hang(own_etcd.pid)
        with pytest.raises(StoreUnavailable):
            await store.put(b"/a", b"2")
        return await store.commit(None, [GuardedPut(b"/b", 0, b"")])

    outcomes = on_a_loop(own_etcd.endpoint, work, QUICK, times)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown]
    assert [what for what, _ in times.told] == ["answered", "unanswered", "unanswered"]
    moments = [sent for _, sent in times.told]
    moments = [began, *moments, time.monotonic()]
    assert moments == sorted(moments)


def test_a_commit_under_way_tells_when_it_is_done(own_etcd: EtcdServer) -> None:
    told: list[PendingCommit] = []
    done = threading.Event()

    def callback(commit: PendingCommit) -> None:
        told.append(commit)
        done.set()

    with client_of(own_etcd) as client:
        writes = [GuardedPut(b"/a", 0, b"v")]
        commit = client.send(None, writes)
        commit.add_done_callback(callback)
        assert done.wait(10) and told == [commit] and commit.done()
        assert commit.writes is writes and [type(outcome) for outcome in commit.outcomes()] == [Committed]


# ------------------------------------------------------------------------------------------------------------ a full etcd


def fill(client: StoreClient) -> dict[bytes, int]:
    """Until etcd takes no more; what is there, and its revisions."""
    found: dict[bytes, int] = {}
    with contextlib.suppress(StoreFull):
        for number in range(1000):
            found[b"/%03d" % number] = client.put(b"/%03d" % number, bytes(100_000))
            # etcd looks at the size of its file, which grows every 100 ms.
            time.sleep(0.01)
    with pytest.raises(StoreFull):
        client.put(b"/one more", b"")
    return found


def test_a_full_etcd_takes_deletions_and_refuses_them_where_they_are_conditional_on_something_else(own_etcd: EtcdServer) -> None:
    with client_of(own_etcd) as client:
        there = fill(client)
        keys = list(there)

        async def commit(store: AsyncStoreClient) -> None:
            async def one(write: Write, guard: Guard | None = None) -> Outcome:
                (outcome,) = await store.commit(guard, [write])
                return outcome

            putting = GuardedDelete(keys[0], there[keys[0]], (), ((b"/needed", b""),))
            assert isinstance(await one(putting), TransactionRefused)
            stale = await one(GuardedDelete(keys[0], there[keys[0]] - 1))
            assert isinstance(stale, Conflict) and stale.current is not None and stale.current.mod_revision == there[keys[0]]
            other = GuardedDelete(keys[0], there[keys[0]], ((keys[1], there[keys[1]] - 1), (b"/absent", 0)))
            conflict = await one(other)
            assert isinstance(conflict, Conflict) and [entry and entry.key for entry in conflict.also] == [keys[1], None]
            assert conflict.revision >= there[keys[-1]] and await store.get(keys[0]) is not None
            sparing = other._replace(
                also=((keys[1], there[keys[1]]), (b"/absent", 0), (b"/record", 7)),
                with_puts=((b"/record", b""),),
                spare=b"/record",
            )
            assert isinstance(await one(sparing), Committed) and await store.get(keys[0]) is None
            plain = GuardedDelete(keys[1], there[keys[1]])
            assert isinstance(await one(plain), Committed) and await store.get(keys[1]) is None
            several = [GuardedPut(b"/new", 0, b""), *(GuardedDelete(key, there[key]) for key in keys[2:4]), putting]
            kinds = [type(outcome) for outcome in await store.commit(None, several)]
            assert kinds == [TransactionRefused, Committed, Committed, TransactionRefused]
            assert [await store.get(key) for key in keys[2:4]] == [None, None]
            gone = await one(GuardedDelete(keys[2], there[keys[2]]))
            assert gone == Committed(await store.revision()), "as one is that etcd has done and refused in one"
            guarded = await one(GuardedDelete(keys[4], there[keys[4]]), Guard(b"/epoch", 7))
            assert not isinstance(guarded, Committed) and await store.get(keys[4]) is not None

        on_a_loop(own_etcd.endpoint, commit)
        for key in keys:
            client.delete(key)
        before = client.status().database_bytes
        client.compact(client.revision())
        # etcd answers before it has taken out what a compaction forgets.
        deadline = time.monotonic() + 60.0
        while client.status().database_bytes > before // 2:
            assert time.monotonic() < deadline
            client.defragment(30.0)
        assert client.status().alarms == ("NOSPACE",)
        assert client.disarm_nospace() == 1 and client.status().alarms == () and client.disarm_nospace() == 0
        client.put(b"/again", b"")


# ------------------------------------------------------------------------------------------------- streams of lease renewals


class OneAnswerAStream(grpc.GenericRpcHandler):
    """A server that answers one renewal and ends the stream in good order; no etcd can be made to do so."""

    def __init__(self) -> None:
        self.streams = 0

    def service(self, details: Any) -> Any:
        if not details.method.endswith("/LeaseKeepAlive"):
            return None

        def answer(requests: Iterator[Any], context: Any) -> Iterator[Any]:
            self.streams += 1
            yield rpc.LeaseKeepAliveResponse(ID=next(requests).ID, TTL=7)

        return grpc.stream_stream_rpc_method_handler(
            answer,
            request_deserializer=rpc.LeaseKeepAliveRequest.FromString,
            response_serializer=rpc.LeaseKeepAliveResponse.SerializeToString,
        )


@pytest.fixture
def ending() -> Iterator[tuple[str, OneAnswerAStream]]:
    handler = OneAnswerAStream()
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", handler
    server.stop(None).wait()


def test_a_stream_that_ends_before_all_answers_is_no_answer_and_the_next_renewal_opens_another(
    ending: tuple[str, OneAnswerAStream],
) -> None:
    endpoint, handler = ending
    with contextlib.closing(open_channel([endpoint])) as channel:
        renewals = StoreClient(channel).keep_alives()
        with pytest.raises(StoreUnavailable, match="the stream of lease renewals ended"):
            renewals.renew([1, 2])
        assert renewals.renew([3]) == {3: 7} and handler.streams == 2
        renewals.close()
        renewals.close()
        assert renewals.renew([4]) == {4: 7} and handler.streams == 3
        renewals.close()


def test_on_a_loop_too(ending: tuple[str, OneAnswerAStream]) -> None:
    endpoint, handler = ending

    async def work(store: AsyncStoreClient) -> None:
        renewals = store.keep_alives()
        # The second one is gRPC's, where the end comes before the second request is written.
        with pytest.raises(StoreError, match=r"the stream of lease renewals ended|Internal error from Core"):
            await renewals.renew([1, 2])
        assert await renewals.renew([3]) == {3: 7} and handler.streams == 2
        renewals.close()
        renewals.close()
        assert await renewals.renew([4]) == {4: 7} and handler.streams == 3
        renewals.close()

    on_a_loop(endpoint, work)


def test_a_stream_of_renewals_outlives_the_time_of_one_round(etcd: EtcdServer) -> None:
    with contextlib.closing(open_channel([etcd.endpoint])) as channel:
        client = StoreClient(channel)
        lease = client.grant_lease(600)
        threads = threading.active_count()
        renewals = LeaseKeepAlives(rpc.LeaseStub(channel), 1.0)
        assert renewals.renew([lease.id]) == {lease.id: 600}
        time.sleep(1.5)
        assert renewals.renew([lease.id]) == {lease.id: 600}, "only a round has a deadline, not the stream"
        assert threading.active_count() > threads
        renewals.close()
        until = time.monotonic() + 30.0
        while threading.active_count() > threads:
            assert time.monotonic() < until, "its thread has ended with it"
            time.sleep(0.01)


def test_the_threads_of_a_watcher_hold_up_nobodys_end(etcd: EtcdServer) -> None:
    with contextlib.closing(open_channel([etcd.endpoint])) as channel, Watcher(channel, b"/nothing/", lambda _: None):
        daemons = {thread.name: thread.daemon for thread in threading.enumerate() if thread.name in ("watcher", "watch-clock")}
    assert daemons == {"watcher": True, "watch-clock": True}
