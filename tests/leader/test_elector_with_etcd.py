"""The elector over a real etcd, with the FAST profile: what it promises, in seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leader import effects as fx
from leader import events as ev
from leader.belief import Belief, BeliefCell
from leader.channel import open_channel
from leader.config import FAST
from leader.election_state import State
from leader.etcd_lock import EtcdLock
from leader.etcd_shim import rpc
from leader.record import Epoch, LeaderRecord, StoredEpoch, StoredRecord, View
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.leader.members import Member, eventually, guarded_put, now, value_of

pytestmark = pytest.mark.cluster


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd that the test may pause and restart."""
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server:
        yield server
        if server.pid is not None:
            os.kill(server.pid, signal.SIGCONT)


def a_candidate_process(etcd: EtcdServer, root: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.leader.candidate_process", etcd.endpoint, root, "a"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


@pytest.mark.row("L12", "L23", "LE-01")
def test_a_lone_candidate_leads_at_once_and_its_record_can_be_read(etcd: EtcdServer, etcd_root: str) -> None:
    member = Member("a", [etcd.endpoint], etcd_root, address="127.0.0.1:1", version="1.2").start()
    epoch = member.leads()
    channel = open_channel([etcd.endpoint])
    pair = rpc.KVStub(channel).Range(rpc.RangeRequest(key=f"{etcd_root}/cluster/epoch".encode()), timeout=2).kvs[0]
    assert pair.mod_revision == epoch and pair.lease == 0
    assert json.loads(pair.value)["transitions"] == 0 and json.loads(pair.value)["holder"] == "a"
    record = LeaderRecord.from_json(value_of(channel, f"{etcd_root}/leader/record") or b"")
    assert (record.holder, record.lease_ms, record.address, record.version) == ("a", 2000, "127.0.0.1:1", "1.2")
    assert member.elector.stop()
    channel.close()


class SlowWrites(EtcdLock):
    """Its writes are answered half a second late."""

    def _answer(self, request: fx.Request, outcome: ev.Outcome) -> None:
        if isinstance(request, fx.Get):
            super()._answer(request, outcome)
        else:
            threading.Timer(0.5, super()._answer, (request, outcome)).start()


def test_a_leader_whose_etcd_takes_half_a_second_for_each_write_leads_and_stays(etcd: EtcdServer, etcd_root: str) -> None:
    lock = SlowWrites([etcd.endpoint], f"{etcd_root}/leader/record", f"{etcd_root}/cluster/epoch")
    member = Member("a", [etcd.endpoint], etcd_root, lock=lock).start()
    epoch = member.leads()
    time.sleep(4.0)
    assert member.leads() == epoch, "thrice the time that a belief lasts"
    member.elector.stop()


@pytest.mark.row("L1", "LE-03")
def test_a_killed_leader_is_replaced_after_its_lease_and_never_before(etcd: EtcdServer, etcd_root: str) -> None:
    leader = a_candidate_process(etcd, etcd_root)
    try:
        assert leader.stdout is not None
        assert leader.stdout.readline().startswith("leads")
        follower = Member("b", [etcd.endpoint], etcd_root).start()
        eventually(follower.elector.leader)
        time.sleep(0.5)
        killed = now()
        leader.kill()
        took = follower.when("started") - killed
    finally:
        leader.kill()
        leader.wait()
    assert 1.5 <= took <= 3.0
    assert follower.elector.stop()


@pytest.mark.row("LE-49", "L32")
def test_a_paused_leader_writes_nothing_after_its_successor_began(etcd: EtcdServer, etcd_root: str) -> None:
    leader = a_candidate_process(etcd, etcd_root)
    channel = open_channel([etcd.endpoint])
    try:
        assert leader.stdout is not None
        assert leader.stdout.readline().startswith("leads")
        follower = Member("b", [etcd.endpoint], etcd_root).start()
        eventually(follower.elector.leader)
        eventually(lambda: value_of(channel, f"{etcd_root}/work/a"))
        leader.send_signal(signal.SIGSTOP)
        epoch = follower.leads()
        leader.send_signal(signal.SIGCONT)
        assert leader.stdout.readline() == "refused\n"
        work = rpc.KVStub(channel).Range(rpc.RangeRequest(key=f"{etcd_root}/work/a".encode()), timeout=2).kvs[0]
        assert work.mod_revision < epoch
        assert follower.elector.epoch() == epoch
    finally:
        leader.kill()
        leader.wait()
        channel.close()
    assert follower.elector.stop()


@pytest.mark.row("L26", "LE-12")
def test_a_release_is_told_and_taken(etcd: EtcdServer, etcd_root: str) -> None:
    first = Member("a", [etcd.endpoint], etcd_root).start()
    first.leads()
    second = Member("b", [etcd.endpoint], etcd_root).start()
    eventually(second.elector.leader)
    assert first.elector.stop()
    second.when("started")
    leader = second.elector.leader()
    assert leader is not None and leader.holder == "b"
    assert [identity for _, identity in eventually(lambda: len(second.all("leader")) == 3 and second.all("leader"))] == [
        "a",
        "",
        "b",
    ]
    assert second.elector.stop()


@pytest.mark.row("L26", "LE-42")
def test_the_lease_is_given_back_only_after_the_work_has_stopped(etcd: EtcdServer, etcd_root: str) -> None:
    work_ended = threading.Event()
    first = Member("a", [etcd.endpoint], etcd_root, stop_work=lambda: bool(work_ended.wait(60))).start()
    first.leads()
    second = Member("b", [etcd.endpoint], etcd_root).start()
    eventually(second.elector.leader)
    first.elector.request_stop()
    first.when("stopped")
    assert not first.elector.is_leader()
    time.sleep(0.3)
    assert not second.elector.is_leader()
    work_ended.set()
    second.when("started")
    assert "" in [identity for _, identity in second.all("leader")], "the record was given back"
    assert first.elector.wait(60) and second.elector.stop()


@dataclass
class LockAlone:
    """An EtcdLock without an elector."""

    lock: EtcdLock
    told: list[ev.Event]
    number: int = 0

    def ask(self, kind: type[Any], *rest: Any) -> Any:
        """The outcome of one request."""
        self.number += 1
        self.lock.submit(kind(self.number, 10**9, *rest))
        answers = eventually(lambda: [e for e in list(self.told) if isinstance(e, ev.Answered) and e.number == self.number])
        return answers[0].outcome


@pytest.fixture
def lock_alone(etcd: EtcdServer, etcd_root: str) -> Iterator[LockAlone]:
    lock, told = EtcdLock([etcd.endpoint], f"{etcd_root}/leader/record", f"{etcd_root}/cluster/epoch"), list[ev.Event]()
    lock.start(told.append, FAST.store_ttl_seconds)
    eventually(lambda: any(isinstance(event, ev.Listed) for event in list(told)))
    yield LockAlone(lock, told)
    lock.close()


@pytest.mark.row("LE-28", "LE-29", "LE-32")
def test_what_was_acquired_is_read_back_and_is_not_acquired_twice(lock_alone: LockAlone) -> None:
    nothing = lock_alone.ask(fx.Get)
    assert nothing.view.record is None and nothing.view.epoch is None
    record, epoch = LeaderRecord("a", "i", 2000, 1_000_001, 2_000_002, "0.1", "here:1"), Epoch(3, "a", "i")
    written = lock_alone.ask(fx.Acquire, 0, 0, record, epoch)
    assert isinstance(written, ev.Written)
    view = View(StoredRecord(record, written.revision), StoredEpoch(epoch, written.revision), written.revision)
    assert lock_alone.ask(fx.Get) == ev.Found(view)
    assert lock_alone.ask(fx.Acquire, 0, 0, LeaderRecord("b"), Epoch(0, "b")) == ev.Refused(view)
    eventually(lambda: ev.RecordChanged(view.record, view.revision) in lock_alone.told)
    eventually(lambda: ev.EpochChanged(view.epoch, view.revision) in lock_alone.told)


@pytest.mark.row("LE-33", "LE-34")
def test_nothing_is_renewed_that_was_never_acquired_and_the_lock_says_where_it_is(lock_alone: LockAlone, etcd_root: str) -> None:
    assert isinstance(lock_alone.ask(fx.Renew, 1, LeaderRecord("a")), ev.Refused)
    assert lock_alone.ask(fx.Get).view.record is None
    assert lock_alone.lock.describe().startswith(f"{etcd_root}/leader/record in etcd at unix:/")


@pytest.mark.row("LE-40", "LE-41")
def test_a_release_and_a_renewal_under_an_old_epoch_touch_nothing(lock_alone: LockAlone) -> None:
    first = lock_alone.ask(fx.Acquire, 0, 0, LeaderRecord("a"), Epoch(0, "a"))
    successor = lock_alone.ask(fx.Acquire, first.revision, first.revision, LeaderRecord("b"), Epoch(1, "b"))
    for kind, *values in (
        (fx.Renew, LeaderRecord("a")),
        (fx.BeginTerm, LeaderRecord("a"), Epoch(1, "a")),
        (fx.Release, LeaderRecord(""), Epoch(0, "")),
    ):
        refused = lock_alone.ask(kind, first.revision, *values)
        assert isinstance(refused, ev.Refused)
        assert refused.view.record.record.holder == refused.view.epoch.epoch.holder == "b"
        assert refused.view.record.mod_revision == refused.view.epoch.mod_revision == successor.revision


def test_a_new_term_fences_what_was_sent_under_the_old_one(etcd: EtcdServer, etcd_root: str, tmp_path: Path) -> None:
    cell, channel = BeliefCell.create(tmp_path / "cell"), open_channel([etcd.endpoint])
    member = Member("a", [etcd.endpoint], etcd_root, belief=cell).start()
    old = member.leads()
    assert guarded_put(channel, etcd_root, old, "work")
    answer = member.elector.begin_new_term()
    at_once = cell.belief()
    assert member.elector.epoch() != old and (at_once is None or at_once.epoch != old)
    new = answer.result(2)
    assert new > old and member.elector.epoch() == new
    belief = cell.belief()
    assert isinstance(belief, Belief) and belief.epoch == new
    assert not guarded_put(channel, etcd_root, old, "work") and guarded_put(channel, etcd_root, new, "work")
    assert len(member.all("started")) == 1 and not member.all("stopped"), "leading goes on"
    assert member.elector.stop()
    assert cell.belief() is None and not guarded_put(channel, etcd_root, new, "work"), "a release fences its own late writes"
    cell.close()
    channel.close()


@pytest.mark.row("L4", "L21", "LE-43")
def test_a_frozen_etcd_ends_leading_at_the_deadline_and_resumes_it_under_the_same_epoch(
    own_etcd: EtcdServer, etcd_root: str, tmp_path: Path
) -> None:
    cell = BeliefCell.create(tmp_path / "cell")
    member = Member("a", [own_etcd.endpoint], etcd_root, belief=cell).start()
    epoch = member.leads()
    time.sleep(0.5)
    assert own_etcd.pid is not None
    os.kill(own_etcd.pid, signal.SIGSTOP)
    time.sleep(0.45)  # whatever was in flight has been answered, and no later renewal can be
    belief = cell.belief()
    assert belief is not None
    deadline = belief.valid_until_ns / 1e9
    stopped = member.when("stopped")
    assert abs(stopped - deadline) <= 0.1
    assert not member.elector.is_leader() and cell.belief() is None
    os.kill(own_etcd.pid, signal.SIGCONT)
    assert member.leads() == epoch
    eventually(lambda: [value for _, value in member.all("started")] == [epoch, epoch])
    assert member.elector.stop()
    cell.close()


@pytest.mark.row("L27", "LE-47")
def test_after_an_outage_longer_than_the_lease_leading_begins_anew_and_the_watch_goes_on(
    own_etcd: EtcdServer, etcd_root: str
) -> None:
    first = Member("a", [own_etcd.endpoint], etcd_root).start()
    epoch = first.leads()
    second = Member("b", [own_etcd.endpoint], etcd_root).start()
    eventually(second.elector.leader)
    own_etcd.stop()
    eventually(lambda: first.elector.state is State.FOLLOWER)
    own_etcd.start()
    leader, other = eventually(
        lambda: (first, second) if first.elector.is_leader() else (second, first) if second.elector.is_leader() else None
    )
    assert leader.elector.epoch() > epoch
    eventually(lambda: (seen := other.elector.leader()) is not None and seen.holder == leader.elector.identity)
    assert leader.elector.stop()
    other.leads()
    assert other.elector.stop()


def test_a_record_that_vanishes_is_written_again_under_a_new_etcd_lease(etcd: EtcdServer, etcd_root: str) -> None:
    member = Member("a", [etcd.endpoint], etcd_root).start()
    epoch = member.leads()
    channel = open_channel([etcd.endpoint])
    kv, key = rpc.KVStub(channel), f"{etcd_root}/leader/record".encode()

    def lease() -> int:
        pairs = kv.Range(rpc.RangeRequest(key=key), timeout=2).kvs
        return int(pairs[0].lease) if pairs else 0

    first = lease()
    assert first
    rpc.LeaseStub(channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=first), timeout=2)
    assert eventually(lease, 0.25) != first
    time.sleep(0.5)
    assert member.elector.epoch() == epoch and len(member.all("started")) == 1
    assert member.elector.stop()
    channel.close()


def test_a_leader_keeps_its_etcd_lease_beyond_its_time_to_live_beside_threads_that_never_rest(
    etcd: EtcdServer, etcd_root: str
) -> None:
    member = Member("a", [etcd.endpoint], etcd_root).start()
    epoch = member.leads()
    channel = open_channel([etcd.endpoint])
    key = f"{etcd_root}/leader/record".encode()
    lease = rpc.KVStub(channel).Range(rpc.RangeRequest(key=key), timeout=2).kvs[0].lease
    resting = threading.Event()

    def spin() -> None:
        while not resting.is_set():
            sum(range(20_000))

    spinners = [threading.Thread(target=spin) for _ in range(2)]
    for spinner in spinners:
        spinner.start()
    time.sleep(FAST.store_ttl_seconds + 1)
    resting.set()
    for spinner in spinners:
        spinner.join()
    assert member.elector.epoch() == epoch and not member.all("stopped")
    assert rpc.KVStub(channel).Range(rpc.RangeRequest(key=key), timeout=2).kvs[0].lease == lease
    assert member.elector.stop()
    channel.close()


@pytest.mark.row("LE-51")
def test_a_leader_whose_work_hangs_loses_the_lease_to_another(etcd: EtcdServer, etcd_root: str) -> None:
    hung = Member("a", [etcd.endpoint], etcd_root, progress=lambda: 1, progress_limit=0.5).start()
    hung.leads()
    second = Member("b", [etcd.endpoint], etcd_root).start()
    assert second.when("started") - hung.when("started") <= 0.5 + FAST.lease_duration + 0.5
    assert second.elector.stop() and hung.elector.stop()


def test_of_many_candidates_one_leads_and_one_takes_over(etcd: EtcdServer, etcd_root: str) -> None:
    members = [Member(f"m{number}", [etcd.endpoint], etcd_root).start() for number in range(8)]
    for _ in range(2):
        leader = eventually(lambda: next((member for member in members if member.elector.is_leader()), None))
        time.sleep(0.2)
        assert [member for member in members if member.elector.is_leader()] == [leader]
        members.remove(leader)
        assert leader.elector.stop()
    for member in members:
        member.elector.request_stop()
    assert all(member.elector.wait(3) for member in members)
