"""The leader's duties against a real etcd: what is old goes, what is not stays, and a fenced leader removes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from leader.channel import open_channel
from rayched.api.kinds import NODE, POD
from rayched.controllers.garbage import SHARES, SubmissionGarbage
from rayched.controllers.heartbeat_garbage import HeartbeatGarbage
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.entries import Page
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys, ObjectKey
from rayched.store.removals import RECORD_KEPT_MS
from rayched.store.transactions import Guard, GuardedDelete, GuardedPut, Outcome, Write, create
from rayched.v1.services_pb2 import ObjectKey as ApiKey
from rayched.v1.storage_pb2 import SubmissionRecord
from tests.patience import patient_store

pytestmark = pytest.mark.cluster

NOW = 1_000_000.0


@pytest.fixture
def store(etcd: EtcdServer) -> Iterator[StoreClient]:
    with open_channel([etcd.endpoint]) as channel:
        yield patient_store(channel)


@pytest.fixture
def keys(etcd_root: str) -> Keys:
    return Keys(etcd_root)


def a_record(store: StoreClient, keys: Keys, uid: str, expires_at_seconds: float) -> None:
    store.put(keys.submission(uid), SubmissionRecord(uid=uid, expires_at_ms=int(expires_at_seconds * 1000)).SerializeToString())


def a_pod_and_its_record(store: StoreClient, keys: Keys, name: str, kind: str = "Pod") -> bytes:
    """The pod's key; both are created at one revision, as by a submission. The record's uid is `of-` and the name."""
    record = SubmissionRecord(key=ApiKey(kind=kind, namespace="default", name=name), uid=f"of-{name}")
    key = keys.object_key(POD, "default", name)
    store.commit(None, [create(key, b"a pod", keys.submission(record.uid), record.SerializeToString())])
    return key


def uids(store: StoreClient, keys: Keys) -> set[str | None]:
    return {keys.uid_of_submission(entry.key) for entry in store.list_all(keys.submissions_prefix).entries}


def unknown(key: ObjectKey, create_revision: int) -> bool:
    return False


def a_pass(garbage: SubmissionGarbage, store: StoreClient, epoch: int | None) -> None:
    for _ in range(SHARES):
        garbage.turn(store, epoch)


def test_records_go_when_their_hour_is_over_and_not_before(store: StoreClient, keys: Keys) -> None:
    a_record(store, keys, "living", 0)
    a_record(store, keys, "fresh", NOW + 1)
    a_record(store, keys, "expired", NOW - 1)
    store.put(keys.submission("foreign"), b"\xff\xff no record")
    of_a_namespace = {at: keys.submission_in("team-b", at) for at in ("expired", "living")}
    for at, expires_at_ms in (("expired", int((NOW - 1) * 1000)), ("living", 0)):
        store.put(of_a_namespace[at], SubmissionRecord(uid="drawn", expires_at_ms=expires_at_ms).SerializeToString())
    epoch = store.put(keys.epoch, b"{}")
    a_pass(SubmissionGarbage(keys, unknown, lambda: NOW), store, epoch)
    assert uids(store, keys) == {"living", "fresh", "foreign", None}
    assert store.get(of_a_namespace["expired"]) is None and store.get(of_a_namespace["living"]) is not None


def test_a_record_whose_object_went_without_it_gets_its_last_hour_when_it_is_found(store: StoreClient, keys: Keys) -> None:
    """As when etcd took deletions alone. A pod of the same name that came later is not the record's."""
    names = ("here", "gone", "replaced", "known")
    there, gone, replaced, known = (a_pod_and_its_record(store, keys, name) for name in names)
    a_pod_and_its_record(store, keys, "strange", kind="Nothing")
    for key in (gone, replaced, known):
        store.commit(None, [GuardedDelete(key, entry.mod_revision) for entry in [store.get(key)] if entry is not None])
    store.put(replaced, b"another pod")
    asked: list[str] = []

    def is_there(key: ObjectKey, create_revision: int) -> bool:
        asked.append(key.name)
        entry = store.get(there)
        assert key.name != "here" or (entry is not None and entry.create_revision == create_revision)
        return key.name == "known"

    now = [NOW]
    garbage = SubmissionGarbage(keys, is_there, lambda: now[0])
    epoch = store.put(keys.epoch, b"{}")
    a_pass(garbage, store, epoch)
    expiries = {
        record.uid: record.expires_at_ms
        for entry in store.list_all(keys.submissions_prefix).entries
        for record in [SubmissionRecord.FromString(entry.value)]
    }
    hour = int(NOW * 1000) + RECORD_KEPT_MS
    assert expiries == {"of-here": 0, "of-gone": hour, "of-replaced": hour, "of-known": 0, "of-strange": 0}
    assert sorted(asked) == sorted((*names, "strange"))
    now[0] += RECORD_KEPT_MS / 1000 - 1
    a_pass(garbage, store, epoch)
    assert uids(store, keys) == {"of-here", "of-gone", "of-replaced", "of-known", "of-strange"}
    now[0] += 1
    a_pass(garbage, store, epoch)
    assert uids(store, keys) == {"of-here", "of-known", "of-strange"}


def test_a_turn_reads_its_share_and_a_pass_reads_each_record_once(
    store: StoreClient, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uids of any form, and more in one share than a page has."""
    texts = ["!", "0", "00", "0g", "0a-", "0a", "9~", "f", "fe", "fe~", "ff", "ffff", "g", "job-1", "\u00e9"]
    texts += [hashlib.sha256(b"%d" % number).hexdigest() for number in range(600)] + [f"job-{number:04}" for number in range(600)]
    records = [(uid, SubmissionRecord(uid=uid, expires_at_ms=n % 3).SerializeToString()) for n, uid in enumerate(texts)]
    store.commit(None, [GuardedPut(keys.submission(uid), 0, value) for uid, value in records])
    epoch = store.put(keys.epoch, b"{}")
    read = store.list_page
    pages: list[list[str | None]] = []

    def list_page(prefix: bytes, **how: Any) -> Page:
        page = read(prefix, **how)
        pages.append([keys.uid_of_submission(entry.key) for entry in page.entries])
        return page

    with monkeypatch.context() as watched:
        watched.setattr(store, "list_page", list_page)
        a_pass(SubmissionGarbage(keys, unknown, lambda: NOW), store, epoch)
    assert sorted(str(uid) for page in pages for uid in page) == sorted(set(texts))
    assert max(map(len, pages)) == 500 and len(pages) == SHARES + 1
    assert uids(store, keys) == {uid for n, uid in enumerate(texts) if not n % 3}


def heartbeats(store: StoreClient, keys: Keys) -> set[str | None]:
    return {keys.node_of_heartbeat(entry.key) for entry in store.list_all(keys.heartbeats_prefix).entries}


def test_heartbeats_of_nodes_that_are_gone_go_and_others_stay(etcd: EtcdServer, store: StoreClient, keys: Keys) -> None:
    for name in ("here", "gone", "back", "speaks"):
        store.put(keys.heartbeat(name), b"")
    store.put(keys.heartbeats_prefix + b"a/part", b"of nobody")
    store.put(keys.object_key(NODE, "", "here"), b"a node")
    old = store.put(keys.epoch, b"{}")
    epoch = store.put(keys.epoch, b"{}")
    garbage = HeartbeatGarbage(keys)
    for no_leaders in (None, old):
        garbage.turn(store, no_leaders)
    assert heartbeats(store, keys) == {"here", "gone", "back", "speaks", None}

    class Meanwhile(StoreClient):
        """One node comes back, and one heartbeat is another, before the removal arrives."""

        def commit(self, guard: Guard | None, writes: Sequence[Write]) -> list[Outcome]:
            store.put(keys.object_key(NODE, "", "back"), b"a node")
            store.put(keys.heartbeat("speaks"), b"")
            return super().commit(guard, writes)

    with open_channel([etcd.endpoint]) as channel:
        garbage.turn(Meanwhile(channel), epoch)
    assert heartbeats(store, keys) == {"here", "back", "speaks", None}
    garbage.turn(store, epoch)
    assert heartbeats(store, keys) == {"here", "back", None}


def test_a_leader_whose_epoch_is_over_removes_nothing(store: StoreClient, keys: Keys) -> None:
    a_record(store, keys, "expired", NOW - 1)
    old = store.put(keys.epoch, b"{}")
    store.put(keys.epoch, b"{}")
    a_pass(SubmissionGarbage(keys, unknown, lambda: NOW), store, old)
    assert uids(store, keys) == {"expired"}


def test_a_standby_removes_nothing(store: StoreClient, keys: Keys) -> None:
    a_record(store, keys, "expired", NOW - 1)
    a_pass(SubmissionGarbage(keys, unknown, lambda: NOW), store, None)
    assert uids(store, keys) == {"expired"}
