"""A leader that dies is replaced on its guardian's word, without waiting for its lease."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leader.channel import open_channel
from leader.etcd_shim import kv, rpc
from leader.revocation import Evidence, RevocationNote
from rayched.store.keys import Keys
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


@pytest.mark.cluster
def test_a_killed_leaders_lease_is_revoked_by_its_guardian(tmp_path: Path) -> None:
    with nothing_left() as pids, SmallCluster(tmp_path, replicas=2) as pair:
        for replica in pair.local.replicas:
            until_true(lambda r=replica: "joins the election" in r.log_file.read_text(), START_SECONDS_MAX, "one does not stand")
            pids |= tree_of(replica.pid)
        (endpoint,) = pair.local.etcd_endpoints
        first, before = pair.leader(), pair.client.leader()
        pair.submit(5)
        kill(first.pid)
        until_true(lambda: pair.client.leader().epoch > before.epoch, START_SECONDS_MAX, "nobody takes over")
        pair.submit(20)
        pair.wait_until_all_bound()
        assert pair.first_binding_after(before.epoch)
        holders = record_changes(endpoint, before.epoch)
        gone = holders.index("")
        assert set(holders[:gone]) == {before.holder}
        assert holders[gone + 1] == pair.client.leader().holder != before.holder, "without a revocation it is overwritten"
        with open_channel([endpoint]) as channel:
            note = RevocationNote.from_json(value_of(channel, KEYS.revocation.decode()) or b"")
        assert note == RevocationNote(before.epoch, Evidence.DEAD, f"guardian of {before.holder}", "whose process has ended")
        assert (
            f"epoch {before.epoch} of {before.holder}, whose process has ended: its lease is revoked"
            in first.log_file.read_text()
        )
