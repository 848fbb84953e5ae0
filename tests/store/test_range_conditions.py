"""Writes that rely on all keys below a prefix, against a real etcd."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from leader.channel import open_channel
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.io.client import StoreClient
from rayched.store.transactions import Committed, Conflict, TogetherPut
from tests.patience import patient_store

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[StoreClient]:
    with contextlib.closing(open_channel([etcd.endpoint])) as channel:
        yield patient_store(channel)


def a_put(root: bytes, revision: int) -> TogetherPut:
    return TogetherPut(root + b"/plan", 0, b"plan", ((root + b"/nodes/", revision),))


def test_a_write_passes_while_nothing_below_the_prefix_was_written_since(client: StoreClient, etcd_root: str) -> None:
    root = etcd_root.encode()
    client.put(root + b"/nodes/a", b"")
    revision = client.put(root + b"/nodes/b", b"")
    client.put(root + b"/other/c", b"")
    (outcome,) = client.commit(None, [a_put(root, revision)])
    assert isinstance(outcome, Committed)


def test_a_write_passes_where_there_is_nothing_below_the_prefix(client: StoreClient, etcd_root: str) -> None:
    (outcome,) = client.commit(None, [a_put(etcd_root.encode(), client.revision())])
    assert isinstance(outcome, Committed)


def test_a_refusal_names_a_key_that_was_written_since(client: StoreClient, etcd_root: str) -> None:
    root = etcd_root.encode()
    revision = client.put(root + b"/nodes/a", b"long ago")
    changed = client.put(root + b"/nodes/b", b"just now")
    (outcome,) = client.commit(None, [a_put(root, revision)])
    assert isinstance(outcome, Conflict)
    (found,) = outcome.also
    assert found is not None and (found.key, found.mod_revision, found.value) == (root + b"/nodes/b", changed, b"")
    assert client.get(root + b"/plan") is None


def test_deletions_are_not_noticed(client: StoreClient, etcd_root: str) -> None:
    root = etcd_root.encode()
    revision = client.put(root + b"/nodes/a", b"")
    client.delete(root + b"/nodes/a")
    (outcome,) = client.commit(None, [a_put(root, revision)])
    assert isinstance(outcome, Committed)
