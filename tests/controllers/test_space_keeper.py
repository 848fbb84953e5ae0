"""A full etcd, real and small: refused in time, emptied by deletions, and back by itself; and history that is forgotten."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leader.channel import open_channel
from rayched.actors.event_room_cell import EventRoomCell
from rayched.client import ApiError, Client
from rayched.controllers.compaction import Moment, moments_in, value_of
from rayched.controllers.space_keeper import SpaceKeeper
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.calls import Member, MemberStatus
from rayched.store.errors import Compacted, StoreDenied, StoreError, StoreFull
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.space import SpaceState
from rayched.testing.builders import a_pod
from rayched.v1.core_pb2 import Pod
from tests.patience import patient_store
from tests.runbook import execute, steps
from tests.server.serving import serving, until

pytestmark = pytest.mark.cluster

QUOTA = 16 << 20
KEYS = Keys("/r")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd", unsafe_no_fsync=True, quota_bytes=QUOTA) as server:
        yield server


@pytest.fixture
def store(etcd: EtcdServer) -> Iterator[StoreClient]:
    with contextlib.closing(open_channel([etcd.endpoint])) as channel:
        yield patient_store(channel)


@contextlib.contextmanager
def keeping(
    etcd: EtcdServer,
    epoch: int | None = 1,
    *,
    compact: bool = True,
    alone: float = 0.0,
    room_for_events: Callable[[bool], None] = lambda _: None,
) -> Iterator[SpaceKeeper]:
    keeper = SpaceKeeper(
        [etcd.endpoint],
        KEYS,
        lambda: epoch,
        compact=compact,
        look_seconds=0.1,
        alone_seconds=alone,
        room_for_events=room_for_events,
    )
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()


def fill(store: StoreClient, key: Callable[[int], bytes]) -> None:
    """Until etcd refuses."""
    with pytest.raises(StoreFull):
        for number in range(2000):
            store.put(key(number), bytes(100_000))
    until(lambda: "NOSPACE" in store.status().alarms)


def test_events_have_no_room_before_anything_else_is_refused_and_have_it_again(
    etcd: EtcdServer, store: StoreClient, tmp_path: Path
) -> None:
    """As the scheduler's process reads it."""
    seen = EventRoomCell.at(tmp_path)
    with keeping(etcd, room_for_events=EventRoomCell.at(tmp_path).write) as keeper:
        until(lambda: keeper.gate.space.quota_bytes == QUOTA)
        assert seen.read()
        for number in range(int(0.73 * QUOTA) // 100_000):
            store.put(b"/r/%d" % number, bytes(100_000))
            # What comes fast is expected to be written twice more.
            time.sleep(0.02)
        until(lambda: keeper.gate.refusal() is None and keeper.gate.space.in_use_bytes > 0.7 * QUOTA, 30)
        until(lambda: not seen.read())
        assert keeper.gate.refusal() is None, "pods have it still"
        for entry in store.list_all(b"/r/", keys_only=True).entries:
            store.delete(entry.key)
        # The keeper would wait for a minute, as long as history is kept.
        store.compact(store.status().revision)

        def has_room() -> bool:
            store.put(KEYS.record, b"{}")
            return seen.read()

        until(has_room, 60)


def a_large_pod(name: str) -> Pod:
    pod = a_pod(name)
    pod.metadata.annotations["notes"] = "n" * 100_000
    return pod


def test_an_etcd_full_of_history_comes_back_without_a_leader(etcd: EtcdServer, store: StoreClient) -> None:
    fill(store, lambda _: b"/r/one key")
    with keeping(etcd, epoch=None) as keeper:
        until(lambda: keeper.gate.space.file_bytes > 0 and keeper.gate.space.state is SpaceState.AMPLE, 30)
        assert keeper.full() is None
    store.put(b"/r/again", b"")
    assert store.status().database_bytes < QUOTA // 4


def test_while_somebody_leads_the_others_only_look(etcd: EtcdServer, store: StoreClient) -> None:
    fill(store, lambda _: b"/r/one key")
    with keeping(etcd, epoch=None, alone=3600.0) as keeper:
        until(lambda: keeper.gate.space.state is SpaceState.FULL)
        time.sleep(0.5)
    assert store.status().alarms == ("NOSPACE",)


def test_without_the_leave_to_compact_it_tells_what_is_wrong_and_does_nothing(etcd: EtcdServer, store: StoreClient) -> None:
    fill(store, lambda _: b"/r/one key")
    with keeping(etcd, compact=False) as keeper:
        until(lambda: keeper.full() is not None)
        told = keeper.full()
        assert told is not None and "etcdctl alarm disarm" in told
        assert keeper.problems() == [told]
        time.sleep(0.5)
    assert store.status().alarms == ("NOSPACE",)


def test_what_is_new_is_refused_before_the_quota_and_deletions_bring_a_full_etcd_back(
    etcd: EtcdServer, store: StoreClient
) -> None:
    with keeping(etcd) as keeper:
        until(lambda: keeper.gate.space.quota_bytes == QUOTA)
        options = ServerOptions("127.0.0.1:0", [etcd.endpoint], KEYS, gate=keeper.gate, problems=keeper.problems)
        with serving(options) as server, Client(server.address, timeout_seconds=5) as client:
            names = []
            with pytest.raises(ApiError, match="Nothing new is taken") as refused:
                for number in range(400):
                    names.append(f"p-{number}")
                    try:
                        client.submit(a_large_pod(names[-1]))
                    except ApiError as error:
                        # What comes too fast is refused for a moment, before the space is nearly used up.
                        if "for a moment" not in str(error):
                            raise
                        names.pop()
                        time.sleep(0.2)
            assert refused.value.code.name == "RESOURCE_EXHAUSTED"
            assert refused.value.retry_after_seconds
            # Refused, and etcd has a good part of its quota left for what goes on.
            assert store.status().database_bytes < 0.93 * QUOTA
            store.put(KEYS.record, b"{}")
            until(lambda: keeper.gate.space.state is SpaceState.TIGHT)
            # Of many at once, each.
            (outcome,) = client.submit_many([a_large_pod("one-of-many")], timeout_seconds=5.0)
            assert outcome.error is not None and outcome.error.retry_after_seconds == 30.0
            assert "nearly used up" in client.leader().problems[0]
            # Somebody else uses up the rest.
            fill(store, lambda number: b"/somebody/%d" % number)
            until(lambda: keeper.full() is not None)
            for name in names[:-1]:
                client.delete("Pod", name)
            until(lambda: keeper.full() is None, 60)
            for entry in store.list_all(b"/somebody/", keys_only=True).entries:
                store.delete(entry.key)

            def takes_again() -> bool:
                # As renewals do: etcd counts what compaction made free when it commits the next write.
                store.put(KEYS.record, b"{}")
                return keeper.gate.refusal() is None

            until(takes_again, 60)
            client.submit(a_large_pod("afterwards"))
            assert not client.leader().problems


def test_a_file_in_the_way_is_defragmented_also_while_others_go_on_writing(etcd: EtcdServer, store: StoreClient) -> None:
    while (file := store.status().database_bytes) < 0.97 * QUOTA:
        store.put(b"/r/one key", bytes(20_000 if file > 0.85 * QUOTA else 100_000))
        if file > 0.85 * QUOTA:
            time.sleep(0.11)  # etcd counts what it has committed, ten times a second where its host is not busy
    stopped = threading.Event()

    def renew() -> None:
        while not stopped.wait(0.05):
            # While it is defragmented etcd answers nobody.
            with contextlib.suppress(StoreError):
                store.put(KEYS.record, b"{}")

    renewals = threading.Thread(target=renew)
    renewals.start()
    try:
        with keeping(etcd) as keeper:
            # How far it shrinks depends on how much of the history etcd had forgotten by then.
            until(lambda: 0 < keeper.gate.space.file_bytes < 0.90 * QUOTA and keeper.gate.space.state < SpaceState.TIGHT, 30)
    finally:
        stopped.set()
        renewals.join()


def test_history_is_forgotten_by_moments_in_etcd_however_short_a_replica_lives(etcd: EtcdServer, store: StoreClient) -> None:
    old = store.put(b"/r/a", b"1")
    store.put(KEYS.compaction, value_of([Moment(old + 1, time.time() - 700)]))
    store.put(b"/r/a", b"2")
    with keeping(etcd):
        until(lambda: is_compacted(store, old))
    entry = store.get(KEYS.compaction)
    assert entry is not None
    assert moments_in(entry.value)[0].revision == old + 1
    assert len(moments_in(entry.value)) == 2


class StoreOfAUser(StoreClient):
    """etcd with users, of a version that asks them: the tests' own asks nobody."""

    denied: frozenset[str] = frozenset()

    def _asked(self, what: str) -> None:
        if what in self.denied:
            raise StoreDenied("etcd: PERMISSION_DENIED: permission denied")

    def compact(self, revision: int) -> None:
        self._asked("compact")
        super().compact(revision)

    def status(self) -> MemberStatus:
        self._asked("status")
        return super().status()

    def members(self) -> tuple[Member, ...]:
        self._asked("members")
        return super().members()

    def disarm_nospace(self) -> int:
        self._asked("disarm")
        return super().disarm_nospace()

    def defragment(self, timeout_seconds: float) -> None:
        self._asked("defragment")
        super().defragment(timeout_seconds)


@pytest.mark.row("B112")
@pytest.mark.parametrize(
    ("denied", "told"),
    [
        ("compact", "will not be compacted (etcd: PERMISSION_DENIED: permission denied): start etcd with --auto-compaction-mode"),
        ("status", "will not tell how full it is (etcd: PERMISSION_DENIED: permission denied): watch etcd's own metrics"),
        ("members", "will not name its members"),
        ("defragment", "will not be defragmented"),
        ("disarm", "will not have its alarm disarmed"),
    ],
)
def test_what_etcds_user_may_not_do_is_told_until_it_may(
    etcd: EtcdServer, store: StoreClient, denied: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, lambda _: b"/r/one key")
    keeper = SpaceKeeper([etcd.endpoint], KEYS, lambda: 1)
    with contextlib.closing(open_channel([etcd.endpoint])) as channel:
        asked = StoreOfAUser(channel)
        if denied == "disarm":
            # What is in its way was compacted and defragmented by others.
            store.compact(store.status().revision)
            store.defragment(60.0)
        asked.denied = frozenset({denied})

        def is_told() -> bool:
            keeper._compact_at = keeper._moments_at = keeper._ask_at = keeper._defragment_at = 0.0
            with contextlib.suppress(StoreDenied):
                keeper.look([asked])
            return any(told in line for line in keeper.problems())

        until(is_told, 30)
        is_told()
        assert [record.levelname for record in caplog.records if told in record.message] == ["ERROR"]
        asked.denied = frozenset()
        until(lambda: not is_told(), 30)


def test_the_quota_and_the_sizes_are_read_from_etcd_itself(etcd: EtcdServer, store: StoreClient) -> None:
    with keeping(etcd) as keeper:
        until(lambda: keeper.gate.space.quota_bytes == QUOTA)
        store.put(b"/r/a", bytes(1_000_000))
        until(lambda: keeper.gate.space.in_use_bytes > 1_000_000)
        assert keeper.problem() is None


def is_compacted(store: StoreClient, revision: int) -> bool:
    try:
        store.list_page(b"/r/a", revision=revision)
    except Compacted:
        return True
    return False


def test_the_runbook_brings_back_an_etcd_that_is_left_to_an_administrator(etcd: EtcdServer, store: StoreClient) -> None:
    script = steps("RaychedEtcdFull")
    fill(store, lambda _: b"/r/one key")
    with keeping(etcd, compact=False) as keeper:
        until(lambda: keeper.full() is not None)
        told = keeper.full() or ""
        named = re.findall(r"`(etcdctl \w+)", told)
        assert named and all(command in script for command in named)
        execute(script, etcd.binary, etcd.endpoint)
        until(lambda: keeper.full() is None)
    store.put(b"/r/again", b"")
