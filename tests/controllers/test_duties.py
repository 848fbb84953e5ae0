"""The leader's duties against a real etcd: what is old goes, what is not stays, and a fenced leader removes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leader.channel import open_channel
from rayched.controllers.garbage import SubmissionGarbage
from rayched.replica.etcd_server import EtcdServer
from rayched.store.client import StoreClient
from rayched.store.entries import Page
from rayched.store.keys import Keys
from rayched.store.transactions import GuardedPut
from rayched.v1.storage_pb2 import SubmissionRecord

pytestmark = pytest.mark.cluster

NOW = 1_000_000.0


@pytest.fixture
def store(etcd: EtcdServer) -> Iterator[StoreClient]:
    with open_channel([etcd.endpoint]) as channel:
        yield StoreClient(channel)


@pytest.fixture
def keys(etcd_root: str) -> Keys:
    return Keys(etcd_root)


def a_record(store: StoreClient, keys: Keys, uid: str, expires_at_seconds: float) -> None:
    store.put(keys.submission(uid), SubmissionRecord(uid=uid, expires_at_ms=int(expires_at_seconds * 1000)).SerializeToString())


def uids(store: StoreClient, keys: Keys) -> set[str | None]:
    return {keys.uid_of_submission(entry.key) for entry in store.list_all(keys.submissions_prefix).entries}


def test_records_go_when_their_hour_is_over_and_not_before(store: StoreClient, keys: Keys) -> None:
    a_record(store, keys, "living", 0)
    a_record(store, keys, "fresh", NOW + 1)
    a_record(store, keys, "expired", NOW - 1)
    store.put(keys.submission("foreign"), b"\xff\xff no record")
    epoch = store.put(keys.epoch, b"{}")
    SubmissionGarbage(keys, lambda: NOW).turn(store, epoch)
    assert uids(store, keys) == {"living", "fresh", "foreign"}


def test_a_turn_over_many_records_holds_one_page_at_a_time(
    store: StoreClient, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = [(f"{number:04}", 1 if number % 100 == 0 else 0) for number in range(1_200)]
    records = [(uid, SubmissionRecord(uid=uid, expires_at_ms=expires).SerializeToString()) for uid, expires in numbered]
    store.commit(None, [GuardedPut(keys.submission(uid), 0, value) for uid, value in records])
    epoch = store.put(keys.epoch, b"{}")
    sizes: list[int] = []
    read = store.list_page

    def list_page(prefix: bytes, **how: Any) -> Page:
        page = read(prefix, **how)
        sizes.append(len(page.entries))
        return page

    with monkeypatch.context() as watched:
        watched.setattr(store, "list_page", list_page)
        SubmissionGarbage(keys, lambda: NOW).turn(store, epoch)
    assert uids(store, keys) == {uid for uid, expires in numbered if not expires}
    assert sizes == [500, 500, 200]


def test_a_leader_whose_epoch_is_over_removes_nothing(store: StoreClient, keys: Keys) -> None:
    a_record(store, keys, "expired", NOW - 1)
    old = store.put(keys.epoch, b"{}")
    store.put(keys.epoch, b"{}")
    SubmissionGarbage(keys, lambda: NOW).turn(store, old)
    assert uids(store, keys) == {"expired"}


def test_a_standby_removes_nothing(store: StoreClient, keys: Keys) -> None:
    a_record(store, keys, "expired", NOW - 1)
    SubmissionGarbage(keys, lambda: NOW).turn(store, None)
    assert uids(store, keys) == {"expired"}
