"""A pod in whose cycle a scheduler died is known to every scheduler, through a real etcd."""

from __future__ import annotations

from pathlib import Path

import pytest

from leader.channel import open_channel
from rayched.actors.deciding_cell import DecidingCell, pod_being_decided
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.suspicions import AGAIN_SECONDS, Suspicions
from rayched.store.keys import Keys
from rayched.v1.storage_pb2 import Suspect
from tests.patience import patient_store


def test_the_file_has_the_pod_of_the_cycle_that_is_under_way(tmp_path: Path) -> None:
    assert pod_being_decided(tmp_path) == ""
    cell = DecidingCell.create(tmp_path)
    assert pod_being_decided(tmp_path) == ""
    for uid in ("a-rather-long-uid", "short", "ü" * 10, "x" * 10_000):
        cell.write(uid)
        assert pod_being_decided(tmp_path) == uid[: 4094 // len(uid[0].encode())]
    cell.write("")
    assert pod_being_decided(tmp_path) == ""
    cell.write("left behind")
    DecidingCell.create(tmp_path)
    assert pod_being_decided(tmp_path) == "", "another scheduler has begun"


@pytest.mark.cluster
def test_each_death_is_counted_once_and_the_record_expires(etcd: EtcdServer, etcd_root: str) -> None:
    keys = Keys(etcd_root)
    suspicions = Suspicions([etcd.endpoint], keys, "replica-1")

    def note(uid: str, now: float) -> bool:
        thread = suspicions.note(uid, now)
        if thread is not None:
            thread.join(10)
        return thread is not None

    assert not note("", 0.0)
    assert note("uid-1", 0.0)
    # That it hung, and then died, is one thing.
    assert not note("uid-1", AGAIN_SECONDS - 1)
    assert note("uid-1", AGAIN_SECONDS + 1)
    assert note("uid-2", AGAIN_SECONDS + 2)
    # What cannot be a key is logged, and ends nobody.
    assert note("a/b", AGAIN_SECONDS + 3)
    with open_channel([etcd.endpoint]) as channel:
        store = patient_store(channel)
        page = store.list_all(keys.suspects_prefix)
        found = {keys.uid_of_suspect(entry.key): Suspect.FromString(entry.value) for entry in page.entries}
        assert {uid: one.deaths for uid, one in found.items()} == {"uid-1": 2, "uid-2": 1}
        assert {one.told_by for one in found.values()} == {"replica-1"}


@pytest.mark.cluster
def test_an_etcd_that_does_not_answer_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    thread = Suspicions(["127.0.0.1:1"], Keys("/t"), "replica-1").note("uid-1", 0.0)
    assert thread is not None
    thread.join(30)
    assert not thread.is_alive() and "no other replica can be notified" in caplog.text
