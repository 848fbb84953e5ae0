"""A leader that dies is replaced on its guardian's word, without waiting for its lease."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from leader.channel import open_channel
from leader.etcd_shim import kv, rpc
from leader.revocation import Evidence, RevocationNote
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Event
from rayched.v1.services_pb2 import GetLeaderResponse
from tests.leader.members import value_of
from tests.replica.clusters import SmallCluster, kill, nothing_left, tree_of, until_true

KEYS = Keys()
START_SECONDS_MAX = 60.0


def record_changes(endpoint: str, since: int) -> list[str]:
    """Holders that the record had from a revision on, oldest first; "" where it was removed or released."""
    found: list[str] = []
    create = rpc.WatchCreateRequest(key=KEYS.record, start_revision=since)
    with open_channel([endpoint]) as channel:
        last = rpc.KVStub(channel).Range(rpc.RangeRequest(key=KEYS.record), timeout=5).kvs[0].mod_revision
        for answer in rpc.WatchStub(channel).Watch(iter([rpc.WatchRequest(create_request=create)]), timeout=30):
            for event in answer.events:
                found.append("" if event.type == kv.Event.DELETE else str(json.loads(event.kv.value)["holder"]))
                if event.kv.mod_revision >= last:
                    return found
    raise AssertionError("the watch has ended")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[SmallCluster]:
    """Two replicas that stand for election."""
    with nothing_left() as pids, SmallCluster(tmp_path, replicas=2) as pair:
        for replica in pair.local.replicas:
            until_true(lambda r=replica: "joins the election" in r.log_file.read_text(), START_SECONDS_MAX, "one does not stand")
            pids |= tree_of(replica.pid)
        yield pair


def revocation(pair: SmallCluster) -> RevocationNote:
    (endpoint,) = pair.local.etcd_endpoints
    with open_channel([endpoint]) as channel:
        return RevocationNote.from_json(value_of(channel, KEYS.revocation.decode()) or b"")


def is_taken_over(pair: SmallCluster, before: GetLeaderResponse) -> None:
    """By the other one, to whom the record was left: without a revocation it would have been overwritten."""
    until_true(lambda: pair.client.leader().epoch > before.epoch, START_SECONDS_MAX, "nobody takes over")
    pair.submit(20)
    pair.wait_until_all_bound()
    assert pair.first_binding_after(before.epoch)
    (endpoint,) = pair.local.etcd_endpoints
    holders = record_changes(endpoint, before.epoch)
    gone = holders.index("")
    assert set(holders[:gone]) == {before.holder}
    assert holders[gone + 1] == pair.client.leader().holder != before.holder


@pytest.mark.cluster
def test_a_killed_leaders_lease_is_revoked_by_its_guardian(pair: SmallCluster) -> None:
    first, before = pair.leader(), pair.client.leader()
    pair.submit(5)
    kill(first.pid)
    is_taken_over(pair, before)
    assert revocation(pair).epoch == before.epoch
    words = f"epoch {before.epoch} of {before.holder}, whose process has ended: "
    until_true(lambda: words in first.log_file.read_text(), START_SECONDS_MAX, "its guardian does not say so")


@pytest.mark.cluster
def test_the_lease_of_a_leader_whose_whole_tree_is_killed_is_revoked_by_a_follower(pair: SmallCluster) -> None:
    first, before = pair.leader(), pair.client.leader()
    pair.submit(5)
    guardian = pair.pid_of("guardian")
    # Before the replica can see that its Ray is gone, and give its lease back.
    tree = tree_of(first.pid)
    for pid in (guardian, first.pid, *(tree - {guardian, first.pid})):
        # Some end with those before them.
        with suppress(ProcessLookupError):
            kill(pid)
    is_taken_over(pair, before)
    after = pair.client.leader()
    note = revocation(pair)
    assert (note.epoch, note.evidence, note.by) == (before.epoch, Evidence.REFUSED, after.holder)

    def told() -> list[str]:
        events = [one for one in pair.client.list("Event", namespace="kube-system") if isinstance(one, Event)]
        return [event.message for event in events if event.reason == "LeaderRevoked"]

    until_true(lambda: len(told()) == 1, START_SECONDS_MAX, "there is no Event of it")
    assert note.detail in told()[0]
    log = pair.local.replica_at(after.address).log_file.read_text()
    assert "took over before the lease was over" in log
