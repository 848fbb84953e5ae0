"""A successor tells how the term before its own was ended; and of no other term."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leader.channel import open_channel
from leader.revocation import Evidence, RevocationNote
from rayched.api import kinds
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.revocation_news import RevocationNews
from rayched.store.codec import decode_entry
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Event
from tests.patience import patient_store

pytestmark = pytest.mark.cluster


@pytest.fixture
def store(etcd: EtcdServer) -> Iterator[StoreClient]:
    with open_channel([etcd.endpoint]) as channel:
        yield patient_store(channel)


def told(etcd: EtcdServer, keys: Keys, epoch: int) -> list[Evidence]:
    """What the replica counts that leads under this epoch."""
    counted: list[Evidence] = []
    RevocationNews([etcd.endpoint], keys, "successor", counted.append).ask(epoch).join()
    return counted


def events(store: StoreClient, keys: Keys) -> list[Event]:
    found = [kinds.unwrap(decode_entry(entry)) for entry in store.list_all(keys.events_prefix).entries]
    return [one for one in found if isinstance(one, Event)]


def test_the_term_before_is_told_of_in_log_count_and_event(
    etcd: EtcdServer, etcd_root: str, store: StoreClient, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keys(etcd_root)
    for number in (1, 2):
        former = store.put(keys.epoch, b"{}")
        note = RevocationNote(former, Evidence.DEAD, "guardian of a", "whose process has ended")
        store.put(keys.revocation, note.to_json())
        epoch = store.put(keys.epoch, b"{}")
        assert told(etcd, keys, epoch) == [Evidence.DEAD]
        words = f"guardian of a has ended epoch {former} of a leader whose process has ended"
        assert words in caplog.text
        (event,) = events(store, keys)
        assert (event.reason, event.type, event.message, event.count) == ("LeaderRevoked", "Warning", words, number)
        assert event.involved_object.kind == "Lease"


def test_of_terms_that_ended_in_another_way_nothing_is_told(etcd: EtcdServer, etcd_root: str, store: StoreClient) -> None:
    keys = Keys(etcd_root)
    first = store.put(keys.epoch, b"{}")
    assert told(etcd, keys, first) == []
    store.put(keys.revocation, RevocationNote(first, Evidence.SILENT, "b", "who is silent").to_json())
    assert told(etcd, keys, first) == [], "the note is of this very term"
    store.put(keys.epoch, b"{}")
    assert told(etcd, keys, store.put(keys.epoch, b"{}")) == [], "there was a term in between"
    assert events(store, keys) == []


def test_a_note_that_nobody_can_read_is_told_and_no_more(
    etcd: EtcdServer, etcd_root: str, store: StoreClient, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keys(etcd_root)
    store.put(keys.revocation, b"?")
    assert told(etcd, keys, store.put(keys.epoch, b"{}")) == []
    assert "cannot be told: note of a revocation: not JSON" in caplog.text
