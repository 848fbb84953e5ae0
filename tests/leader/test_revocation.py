"""The end of another's term: exactly the one that was meant, over a real etcd."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_lock import EtcdLock
from leader.etcd_requests import LockKeys
from leader.etcd_shim import rpc
from leader.record import RecordError
from leader.revocation import Evidence, HeldTerm, RevocationNote, build_revocation, revoke
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.leader.members import Member, eventually, value_of

TIMEOUT_SECONDS = 5.0
NOTE = RevocationNote(7, Evidence.DEAD, "guardian of a", "process 12 has ended")


@pytest.fixture
def channel(etcd: EtcdServer) -> Iterator[grpc.Channel]:
    with open_channel([etcd.endpoint]) as opened:
        yield opened


def keys_of(root: str) -> LockKeys:
    return LockKeys(f"{root}/leader/record".encode(), f"{root}/cluster/epoch".encode(), f"{root}/leader/note".encode())


def held_term(channel: grpc.Channel, keys: LockKeys) -> HeldTerm:
    """A record under a lease of its own and an epoch, as an acquisition writes them."""
    lease = int(rpc.LeaseStub(channel).LeaseGrant(rpc.LeaseGrantRequest(TTL=60), timeout=TIMEOUT_SECONDS).ID)
    puts = [rpc.PutRequest(key=keys.record, value=b"{}", lease=lease), rpc.PutRequest(key=keys.epoch, value=b"{}")]
    request = rpc.TxnRequest(success=[rpc.RequestOp(request_put=put) for put in puts])
    return HeldTerm(lease, int(rpc.KVStub(channel).Txn(request, timeout=TIMEOUT_SECONDS).header.revision))


def lease_lives(channel: grpc.Channel, lease_id: int) -> bool:
    answer = rpc.LeaseStub(channel).LeaseTimeToLive(rpc.LeaseTimeToLiveRequest(ID=lease_id), timeout=TIMEOUT_SECONDS)
    return int(answer.TTL) > 0


@pytest.mark.cluster
def test_the_record_goes_with_its_lease_and_a_note_says_why(channel: grpc.Channel, etcd_root: str) -> None:
    keys = keys_of(etcd_root)
    held = held_term(channel, keys)
    assert revoke(channel, keys, held, NOTE, TIMEOUT_SECONDS)
    assert value_of(channel, keys.record.decode()) is None
    assert value_of(channel, keys.epoch.decode()) == b"{}", "the epoch is the successor's to write"
    assert not lease_lives(channel, held.lease_id)
    assert RevocationNote.from_json(value_of(channel, keys.note.decode()) or b"") == NOTE
    assert not revoke(channel, keys, held, NOTE, TIMEOUT_SECONDS), "there is nothing left to end"


@pytest.mark.cluster
def test_nobody_elses_term_is_ended(channel: grpc.Channel, etcd_root: str) -> None:
    keys = keys_of(etcd_root)
    former = held_term(channel, keys)
    present = held_term(channel, keys)
    for wrong in (former, HeldTerm(former.lease_id, present.epoch), HeldTerm(present.lease_id, former.epoch)):
        assert not revoke(channel, keys, wrong, NOTE, TIMEOUT_SECONDS)
        assert value_of(channel, keys.record.decode()) == b"{}"
    assert lease_lives(channel, present.lease_id) and lease_lives(channel, former.lease_id)
    assert value_of(channel, keys.note.decode()) is None


def test_the_guard_names_lease_and_epoch_and_without_a_key_no_note_is_written() -> None:
    keys = LockKeys(b"/record", b"/epoch")
    request = build_revocation(HeldTerm(5, 9), keys, NOTE)
    guards = {(one.key, one.target): one.lease or one.mod_revision for one in request.compare}
    assert guards == {(b"/record", rpc.Compare.LEASE): 5, (b"/epoch", rpc.Compare.MOD): 9}
    assert all(one.result == rpc.Compare.EQUAL for one in request.compare)
    assert [op.WhichOneof("request") for op in request.success] == ["request_delete_range"]


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"epoch":1,"evidence":"hearsay","by":"a","detail":""}'])
def test_a_note_that_nobody_can_read_is_named(value: bytes) -> None:
    with pytest.raises(RecordError, match="note of a revocation"):
        RevocationNote.from_json(value)


@pytest.mark.cluster
def test_a_leader_tells_the_term_that_etcd_has_confirmed(channel: grpc.Channel, etcd: EtcdServer, etcd_root: str) -> None:
    keys, told = keys_of(etcd_root), list[HeldTerm | None]()
    lock = EtcdLock([etcd.endpoint], keys.record, keys.epoch, told.append)
    member = Member("a", [etcd.endpoint], etcd_root, lock=lock).start()
    epoch = member.leads()
    pair = rpc.KVStub(channel).Range(rpc.RangeRequest(key=keys.record), timeout=TIMEOUT_SECONDS).kvs[0]
    first = HeldTerm(int(pair.lease), epoch)
    eventually(lambda: told == [first])
    second = member.elector.begin_new_term().result(5)
    eventually(lambda: told == [first, HeldTerm(first.lease_id, second)])
    assert member.elector.stop()
    assert told[2:] == [None]


@pytest.mark.cluster
def test_a_follower_leads_at_once_and_one_that_was_dead_only_in_name_writes_its_record_again(
    channel: grpc.Channel, etcd: EtcdServer, etcd_root: str
) -> None:
    keys, told = keys_of(etcd_root), list[HeldTerm | None]()
    lock = EtcdLock([etcd.endpoint], keys.record, keys.epoch, told.append)
    member = Member("a", [etcd.endpoint], etcd_root, lock=lock).start()
    epoch = member.leads()
    eventually(lambda: told)
    held = told[0]
    assert held is not None
    assert revoke(channel, keys, held, NOTE, TIMEOUT_SECONDS)
    again = eventually(lambda: [one for one in told[1:] if one is not None])[0]
    assert again.epoch == epoch == member.leads() and again.lease_id != held.lease_id
    assert member.elector.stop()
