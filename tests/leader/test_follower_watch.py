"""A follower over a real etcd and real connections: whoever refuses them is replaced, whoever is silent only on two words."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_lock import EtcdLock
from leader.etcd_requests import LockKeys
from leader.etcd_shim import rpc
from leader.events import EpochChanged, RecordChanged
from leader.failure_detector import Counted, LeaderSeen
from leader.follower_watch import FollowerWatch
from leader.record import Epoch, LeaderRecord, StoredEpoch, StoredRecord
from leader.revocation import Evidence, HeldTerm, RevocationNote
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.leader.members import Member, eventually, value_of
from tests.leader.test_revocation import TIMEOUT_SECONDS, keys_of, lease_lives

pytestmark = pytest.mark.cluster
SECONDS_MAX = 20.0
Acted = tuple[Evidence, bool | None]


@pytest.fixture
def channel(etcd: EtcdServer) -> Iterator[grpc.Channel]:
    with open_channel([etcd.endpoint]) as opened:
        yield opened


class Standby:
    """A follower's watch with the watch of a lock, and no elector that would act too."""

    def __init__(self, etcd: EtcdServer, keys: LockKeys, votes: str, identity: str, suspect_after: float | None) -> None:
        self.suspicions: list[Evidence] = []
        self.acted: list[Acted] = []
        self.watch = FollowerWatch(
            [etcd.endpoint],
            keys,
            votes.encode(),
            identity,
            retry_period=0.4,
            suspect_after=suspect_after,
            suspects=self.suspicions.append,
            acted=lambda *outcome: self.acted.append(outcome),
        )
        self.watch.start()
        self._lock = EtcdLock([etcd.endpoint], keys.record, keys.epoch, watched=self.watch.seen)
        self._lock.start(lambda _: None, 3)

    def close(self) -> None:
        self._lock.close()
        self.watch.close()


Standbys = Callable[..., Standby]


@pytest.fixture
def standby(etcd: EtcdServer, etcd_root: str) -> Iterator[Standbys]:
    with ExitStack() as owned:

        def make(identity: str, suspect_after: float | None = None) -> Standby:
            made = Standby(etcd, keys_of(etcd_root), f"{etcd_root}/leader/followers/", identity, suspect_after)
            owned.callback(made.close)
            return made

        yield make


def lead(channel: grpc.Channel, keys: LockKeys, address: str) -> HeldTerm:
    """A leader that has published itself and does not renew."""
    lease = int(rpc.LeaseStub(channel).LeaseGrant(rpc.LeaseGrantRequest(TTL=60), timeout=TIMEOUT_SECONDS).ID)
    record = LeaderRecord("leader", "run", 60_000, address=address)
    puts = [
        rpc.PutRequest(key=keys.record, value=record.to_json(), lease=lease),
        rpc.PutRequest(key=keys.epoch, value=Epoch(0, "leader", "run").to_json()),
    ]
    request = rpc.TxnRequest(success=[rpc.RequestOp(request_put=put) for put in puts])
    return HeldTerm(lease, int(rpc.KVStub(channel).Txn(request, timeout=TIMEOUT_SECONDS).header.revision))


def followers(channel: grpc.Channel, root: str) -> dict[str, int]:
    """Which epoch each one suspects."""
    prefix = f"{root}/leader/followers/".encode()
    read = rpc.RangeRequest(key=prefix, range_end=prefix[:-1] + b"0")
    pairs = rpc.KVStub(channel).Range(read, timeout=TIMEOUT_SECONDS).kvs
    return {pair.key[len(prefix) :].decode(): json.loads(pair.value)["suspects"] for pair in pairs}


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


def test_a_leader_whose_address_refuses_connections_is_replaced(
    standby: Standbys, channel: grpc.Channel, etcd: EtcdServer, etcd_root: str
) -> None:
    keys = keys_of(etcd_root)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = lead(channel, keys, address_of(listener))
        first = standby("first")
        connection, _ = listener.accept()
        member = Member("second", [etcd.endpoint], etcd_root).start()
        eventually(member.elector.leader, SECONDS_MAX)
        assert first.acted == []
        listener.close()
        connection.close()
        eventually(lambda: first.acted == [(Evidence.REFUSED, True)], SECONDS_MAX)
        assert first.suspicions == [Evidence.REFUSED]
    assert member.leads(SECONDS_MAX) > held.epoch
    assert not lease_lives(channel, held.lease_id)
    note = RevocationNote.from_json(value_of(channel, keys.note.decode()) or b"")
    assert (note.epoch, note.evidence, note.by) == (held.epoch, Evidence.REFUSED, "first")
    assert member.elector.stop()


def test_a_connection_that_was_closed_is_opened_anew_and_the_leader_left_alone(
    standby: Standbys, channel: grpc.Channel, etcd_root: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = lead(channel, keys_of(etcd_root), address_of(listener))
        first = standby("first")
        for _ in range(3):
            listener.accept()[0].close()
        connection, _ = listener.accept()
        with connection:
            assert first.acted == []
            assert lease_lives(channel, held.lease_id)


def test_silence_is_acted_on_when_a_second_follower_says_so(standby: Standbys, channel: grpc.Channel, etcd_root: str) -> None:
    keys = keys_of(etcd_root)
    # Its queue is full and nobody accepts: no attempt is answered, as by a host without power.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as held_open:
        for _ in range(2):
            filler = held_open.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        deaf = standby("second")
        eventually(lambda: followers(channel, etcd_root) == {}, SECONDS_MAX)
        first = standby("first", suspect_after=0.7)
        other = standby("third", suspect_after=60.0)
        eventually(lambda: followers(channel, etcd_root) == {"first": 0, "third": 0}, SECONDS_MAX)
        held = lead(channel, keys, address_of(listener))
        eventually(lambda: followers(channel, etcd_root)["first"] == held.epoch, SECONDS_MAX)
        time.sleep(1.0)
        assert first.suspicions == [Evidence.SILENT] and first.acted == [], "one of two followers is not enough"
        assert value_of(channel, keys.record.decode()) is not None
        second = standby("fourth", suspect_after=0.7)
        eventually(lambda: value_of(channel, keys.record.decode()) is None, SECONDS_MAX)
        eventually(lambda: (Evidence.SILENT, True) in [*first.acted, *second.acted], SECONDS_MAX)
        assert deaf.acted == other.acted == []
    note = RevocationNote.from_json(value_of(channel, keys.note.decode()) or b"")
    assert (note.epoch, note.evidence) == (held.epoch, Evidence.SILENT)


def test_a_renewal_that_is_seen_while_votes_are_counted_comes_before_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = keys_of("/unused")
    watch = FollowerWatch(["127.0.0.1:1"], keys, b"/followers/", "me", retry_period=0.4, suspect_after=0.7)
    renewals = [StoredRecord(LeaderRecord("leader", "run", 2_000, address="127.0.0.1:1"), revision, 5) for revision in (7, 8)]
    watch.seen(EpochChanged(StoredEpoch(Epoch(0, "leader", "run"), 7), 7))
    watch.seen(RecordChanged(renewals[0], 7))
    watch._take_news()
    watch._happened.clear()

    def slow_answer(epoch: int) -> list[object]:
        watch.seen(RecordChanged(renewals[1], 8))
        return []

    monkeypatch.setattr(watch, "_call_with_presence", slow_answer)
    watch._vote(7)
    assert [type(event) for event in watch._happened] == [LeaderSeen, Counted], "the detector takes its vote back first"
