"""The watcher on a real etcd that is restarted, compacted, restored and stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leader.channel import open_channel
from rayched.api import kinds
from rayched.api.kinds import wrap
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.calls import Deadlines
from rayched.store.codec import encode
from rayched.store.entries import Deleted, Entry
from rayched.store.following import OwnWatches
from rayched.store.io.client import StoreClient
from rayched.store.io.watcher import Watcher
from rayched.store.keys import Keys
from rayched.store.list_watch import ListWatchCore, Pace
from rayched.store.list_watch_effects import Break, Broken, Changed, Delivery, ListedAll, Resumed
from rayched.v1.core_pb2 import Node

pytestmark = pytest.mark.cluster

PREFIX = b"/watched/"
WAIT_SECONDS = 60.0


class Consumer:
    """A handler that keeps the map and all deliveries, and lets a test wait for a state."""

    def __init__(self) -> None:
        self.map: dict[bytes, bytes] = {}
        self.revisions: list[int] = []
        self.deliveries: list[Delivery] = []
        self._changed = threading.Condition()

    def __call__(self, delivery: Delivery) -> None:
        with self._changed:
            self.deliveries.append(delivery)
            match delivery:
                case ListedAll(entries=entries):
                    self.map = {entry.key: entry.value for entry in entries}
                    self.revisions = []
                case Changed(changes=changes):
                    for change in changes:
                        self.revisions.append(change.mod_revision)
                        if isinstance(change, Deleted):
                            self.map.pop(change.key)
                        else:
                            self.map[change.key] = change.value
                case _:
                    pass
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[Consumer], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), WAIT_SECONDS), self.deliveries[-5:]

    def count(self, kind: type[Delivery]) -> int:
        return sum(isinstance(delivery, kind) for delivery in self.deliveries)


@contextlib.contextmanager
def watching(server: EtcdServer, consumer: Consumer, pace: Pace | None = None) -> Iterator[Watcher]:
    core = ListWatchCore(PREFIX, page_size=50, pace=pace)
    with (
        contextlib.closing(open_channel([server.endpoint])) as channel,
        Watcher(channel, PREFIX, consumer, core=core) as watcher,
    ):
        consumer.wait_until(lambda c: c.count(Resumed) > 0)
        yield watcher


@contextlib.contextmanager
def client_of(server: EtcdServer) -> Iterator[StoreClient]:
    with contextlib.closing(open_channel([server.endpoint])) as channel:
        yield StoreClient(channel, Deadlines(patience_seconds=60.0))


def stored(client: StoreClient) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in client.list_all(PREFIX).entries}


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server:
        yield server


def test_a_watcher_lists_follows_and_ends_when_stopped(etcd: EtcdServer) -> None:
    consumer = Consumer()
    with client_of(etcd) as client:
        client.put_many([(PREFIX + b"%d" % number, b"old") for number in range(120)])
        with watching(etcd, consumer) as watcher:
            assert len(consumer.map) == 120
            client.put_many([(PREFIX + b"%d" % number, b"new") for number in range(40)])
            client.delete(PREFIX + b"119")
            client.put(b"/elsewhere", b"x")
            consumer.wait_until(lambda c: PREFIX + b"119" not in c.map)
            assert consumer.map == stored(client)
            assert len(set(consumer.revisions)) == 2
        assert not watcher.alive
        assert watcher.failure is None


def test_a_watcher_resumes_over_a_restart_of_etcd_and_misses_nothing(own_etcd: EtcdServer) -> None:
    consumer = Consumer()
    with client_of(own_etcd) as client, watching(own_etcd, consumer):
        client.put(PREFIX + b"a", b"1")
        own_etcd.stop()
        own_etcd.start()
        last = client.revision()
        for number in range(20):
            last = client.put(PREFIX + b"%d" % number, b"2")
        consumer.wait_until(lambda c: c.revisions[-1:] == [last])
        assert consumer.count(ListedAll) == 1
        assert consumer.revisions == sorted(set(consumer.revisions))
        assert consumer.map == stored(client)


def test_a_watcher_lists_anew_when_what_it_missed_was_compacted(own_etcd: EtcdServer, tmp_path: Path) -> None:
    consumer = Consumer()
    with client_of(own_etcd) as client, watching(own_etcd, consumer) as watcher:
        client.put_many([(PREFIX + b"a", b"1"), (PREFIX + b"b", b"1")])
        consumer.wait_until(lambda c: len(c.map) == 2)
        own_etcd.stop()
        # The same data behind another address: the watcher sees nothing of what happens now.
        with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as elsewhere, client_of(elsewhere) as hidden:
            hidden.delete(PREFIX + b"a")
            hidden.put(PREFIX + b"c", b"1")
            hidden.compact(hidden.revision())
        own_etcd.start()
        consumer.wait_until(lambda c: c.count(ListedAll) == 2)
        assert watcher.core.breaks[Break.COMPACTED] == 1
        client.put(PREFIX + b"d", b"1")
        consumer.wait_until(lambda c: PREFIX + b"d" in c.map)
        assert consumer.map == stored(client)


def test_a_watcher_lists_anew_when_etcd_was_restored_to_an_earlier_revision(own_etcd: EtcdServer, tmp_path: Path) -> None:
    consumer = Consumer()
    with client_of(own_etcd) as client, watching(own_etcd, consumer) as watcher:
        client.put(PREFIX + b"kept", b"1")
        own_etcd.stop()
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        own_etcd.start()
        client.revision()
        for number in range(5):
            client.put(PREFIX + b"lost%d" % number, b"1")
        consumer.wait_until(lambda c: PREFIX + b"lost4" in c.map)
        own_etcd.stop()
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(tmp_path / "backup", tmp_path / "data")
        own_etcd.start()
        consumer.wait_until(lambda c: list(c.map) == [PREFIX + b"kept"])
        assert watcher.core.breaks[Break.SET_BACK] >= 1
        client.put(PREFIX + b"after", b"1")
        consumer.wait_until(lambda c: PREFIX + b"after" in c.map)
        assert consumer.map == stored(client)


@pytest.mark.parametrize("puts", [1, 0], ids=["something was put since the list", "nothing was put since the list"])
def test_a_restored_etcd_that_has_grown_past_what_was_followed_is_noticed(
    own_etcd: EtcdServer, tmp_path: Path, puts: int
) -> None:
    consumer = Consumer()
    with client_of(own_etcd) as client:
        client.put(PREFIX + b"kept", b"1")
        own_etcd.stop()
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        own_etcd.start()
        # A read is made again until it is answered, a write never.
        client.revision()
        client.put(PREFIX + b"lost", b"1")
        with watching(own_etcd, consumer) as watcher:
            for _ in range(puts):
                client.put(PREFIX + b"lost too", b"1")
                consumer.wait_until(lambda c: PREFIX + b"lost too" in c.map)
            followed = watcher.core.revision
            own_etcd.stop()
            shutil.rmtree(tmp_path / "data")
            shutil.copytree(tmp_path / "backup", tmp_path / "data")
            # The restored data behind another address: the watcher sees nothing of what happens now.
            with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as elsewhere, client_of(elsewhere) as hidden:
                for number in range(20):
                    hidden.put(PREFIX + b"hidden%d" % number, b"1")
                assert hidden.revision() > followed
            own_etcd.start()
            consumer.wait_until(lambda c: PREFIX + b"hidden19" in c.map)
            with client_of(own_etcd) as present:
                present.put(PREFIX + b"after", b"1")
                consumer.wait_until(lambda c: PREFIX + b"after" in c.map)
                assert consumer.map == stored(present)
            assert watcher.core.breaks[Break.SET_BACK] == puts


def test_a_watch_whose_last_change_was_a_deletion_goes_on_without_a_list(own_etcd: EtcdServer) -> None:
    consumer = Consumer()
    with client_of(own_etcd) as client, watching(own_etcd, consumer):
        client.put(PREFIX + b"a", b"1")
        client.delete(PREFIX + b"a")
        consumer.wait_until(lambda c: len(c.revisions) == 2)
        own_etcd.stop()
        own_etcd.start()
        # A read is made again until it is answered, a write never.
        client.revision()
        client.put(PREFIX + b"b", b"1")
        consumer.wait_until(lambda c: PREFIX + b"b" in c.map)
        assert consumer.count(ListedAll) == 1 and consumer.revisions == sorted(set(consumer.revisions))


def test_a_hung_etcd_is_noticed_and_followed_again_when_it_goes_on(own_etcd: EtcdServer) -> None:
    consumer = Consumer()
    pace = Pace(ask_seconds=0.2, answer_seconds=0.3)
    with client_of(own_etcd) as client, watching(own_etcd, consumer, pace) as watcher:
        assert own_etcd.pid is not None
        client.put(PREFIX + b"before", b"1")
        consumer.wait_until(lambda c: PREFIX + b"before" in c.map)
        threads = threading.active_count()
        os.kill(own_etcd.pid, signal.SIGSTOP)
        try:
            consumer.wait_until(lambda c: c.count(Broken) >= 2)
        finally:
            os.kill(own_etcd.pid, signal.SIGCONT)
        assert watcher.core.breaks[Break.SILENT] >= 1
        client.put(PREFIX + b"a", b"1")
        consumer.wait_until(lambda c: PREFIX + b"a" in c.map)
        assert consumer.count(ListedAll) == 1
        # The streams given up are closed: each open one has a thread of gRPC's that sends its requests.
        until = time.monotonic() + WAIT_SECONDS
        while threading.active_count() > threads:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_an_idle_stream_is_asked_and_lives_on(etcd: EtcdServer) -> None:
    consumer = Consumer()
    with client_of(etcd) as client, watching(etcd, consumer, Pace(ask_seconds=0.02, answer_seconds=2.0)) as watcher:
        threading.Event().wait(0.3)
        client.put(PREFIX + b"idle", b"1")
        consumer.wait_until(lambda c: PREFIX + b"idle" in c.map)
        assert not watcher.core.breaks


def test_a_slow_handler_gets_everything_in_order(etcd: EtcdServer) -> None:
    gate = threading.Event()
    consumer = Consumer()

    def handler(delivery: Delivery) -> None:
        if isinstance(delivery, Changed):
            assert gate.wait(WAIT_SECONDS)
        consumer(delivery)

    with (
        client_of(etcd) as client,
        contextlib.closing(open_channel([etcd.endpoint])) as channel,
        Watcher(channel, PREFIX, handler),
    ):
        consumer.wait_until(lambda c: c.count(Resumed) > 0)
        written = [client.put(PREFIX + b"slow", b"%d" % number) for number in range(300)]
        gate.set()
        consumer.wait_until(lambda c: c.revisions[-1:] == written[-1:])
    # Leases of other tests end meanwhile, and have revisions too.
    assert consumer.revisions[-300:] == written


def test_a_stream_is_not_silent_while_the_handler_is_at_work(etcd: EtcdServer) -> None:
    began, at_work = threading.Event(), threading.Event()
    consumer = Consumer()

    def handler(delivery: Delivery) -> None:
        if isinstance(delivery, Changed) and not began.is_set():
            began.set()
            # Longer than it takes to ask a silent stream and to give it up.
            assert not at_work.wait(2.0)
        consumer(delivery)

    core = ListWatchCore(PREFIX, pace=Pace(ask_seconds=0.2, answer_seconds=1.0))
    with (
        client_of(etcd) as client,
        contextlib.closing(open_channel([etcd.endpoint])) as channel,
        Watcher(channel, PREFIX, handler, core=core) as watcher,
    ):
        consumer.wait_until(lambda c: c.count(Resumed) > 0)
        client.put(PREFIX + b"slow", b"1")
        assert began.wait(WAIT_SECONDS)
        client.put(PREFIX + b"next", b"1")
        consumer.wait_until(lambda c: PREFIX + b"next" in c.map)
        assert consumer.count(Broken) == 0 and watcher.core.breaks[Break.SILENT] == 0


def test_a_handler_that_fails_ends_the_watcher_and_is_told(etcd: EtcdServer) -> None:
    told = threading.Event()
    bug = RuntimeError("a bug of the consumer")

    def handler(delivery: Delivery) -> None:
        raise bug

    with contextlib.closing(open_channel([etcd.endpoint])) as channel:
        watcher = Watcher(channel, PREFIX, handler, on_failure=lambda error: told.set())
        watcher.start()
        assert told.wait(WAIT_SECONDS)
        watcher.stop()
        assert watcher.failure is bug
        assert not watcher.alive


def test_a_watcher_stops_promptly_while_etcd_is_away(own_etcd: EtcdServer) -> None:
    consumer = Consumer()
    with watching(own_etcd, consumer) as watcher:
        own_etcd.stop()
        consumer.wait_until(lambda c: c.count(Broken) >= 2)
    assert not watcher.alive


def test_whoever_follows_over_a_watch_of_its_own_is_told_and_stops_with_its_connection(etcd: EtcdServer, etcd_root: str) -> None:
    consumer, changes = Consumer(), OwnWatches([etcd.endpoint])
    key = Keys(etcd_root).object_key(kinds.NODE, "", "n")
    with client_of(etcd) as client:
        following = changes.follow(etcd_root.encode(), consumer)
        consumer.wait_until(lambda one: one.count(ListedAll) == 1)
        client.put(key, encode(wrap(a_node("n"))))
        consumer.wait_until(lambda one: key in one.map)
        (change,) = next(delivery for delivery in consumer.deliveries if isinstance(delivery, Changed)).changes
        assert isinstance(change, Entry) and changes.decode(change).node.metadata.name == "n"
        assert following.alive
        following.stop()
        assert not following.alive
        client.put(key + b"2", b"")
    following.stop()
    assert key + b"2" not in consumer.map


def a_node(name: str) -> Node:
    node = Node()
    node.metadata.name = name
    return node
