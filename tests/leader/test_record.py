"""The record and the epoch as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leader.record import (
    UNREADABLE_HOLDER,
    Epoch,
    LeaderRecord,
    RecordError,
    StoredEpoch,
    StoredRecord,
    read_stored_epoch,
    read_stored_record,
)

texts = st.text(max_size=20)
times = st.integers(0, 4 * 10**15)
labels = st.dictionaries(texts, texts, max_size=3).map(lambda found: tuple(sorted(found.items())))
records = st.builds(LeaderRecord, texts, texts, st.integers(0, 10**9), times, times, texts, texts, labels)


@pytest.mark.row("LE-11", "LE-35")
@given(records)
def test_a_record_survives_the_round_trip_in_every_field(record: LeaderRecord) -> None:
    assert LeaderRecord.from_json(record.to_json()) == record


@given(st.integers(0, 10**9), texts, texts)
def test_an_epoch_survives_the_round_trip(transitions: int, holder: str, instance: str) -> None:
    epoch = Epoch(transitions, holder, instance)
    assert Epoch.from_json(epoch.to_json()) == epoch


@pytest.mark.row("L12", "LE-29")
def test_a_record_is_json_that_people_can_read() -> None:
    record = LeaderRecord("a", "i", 2000, 1_700_000_000_123_456, 1_700_000_001_000_000, "0.1", "127.0.0.1:7420")
    assert json.loads(record.to_json()) == {
        "holder": "a",
        "instance": "i",
        "lease_ms": 2000,
        "acquire": "2023-11-14T22:13:20.123456Z",
        "renew": "2023-11-14T22:13:21.000000Z",
        "version": "0.1",
        "address": "127.0.0.1:7420",
    }
    assert json.loads(Epoch(3, "a", "i").to_json()) == {"transitions": 3, "holder": "a", "instance": "i"}


def test_fields_of_a_later_version_are_ignored_and_absent_ones_have_defaults() -> None:
    assert LeaderRecord.from_json(b'{"holder":"a","colour":"red"}') == LeaderRecord("a")
    assert LeaderRecord.from_json(b"{}") == LeaderRecord("")
    assert LeaderRecord.from_json(b'{"lease_ms":9223372036854775807}').lease_ms == 2**63 - 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "leader record: not JSON"),
        (b"\xff", "leader record: not JSON"),
        (b"[]", "leader record: found list, want a JSON object"),
        (b'{"holder":1}', "holder: found 1, want a text"),
        (b'{"lease_ms":-1}', "lease_ms: found -1, want a number of 0 or more"),
        (b'{"lease_ms":9223372036854775808}', "lease_ms: found 9223372036854775808, want a number of 0 or more"),
        (b'{"lease_ms":true}', "lease_ms: found True, want a number of 0 or more"),
        (b'{"lease_ms":1.5}', "lease_ms: found 1.5, want a number of 0 or more"),
        (b'{"renew":"noon"}', "renew: found 'noon', want an RFC 3339 time"),
    ],
)
def test_what_is_not_a_record_is_refused_with_the_field(value: bytes, text: str) -> None:
    with pytest.raises(RecordError, match=None) as refusal:
        LeaderRecord.from_json(value)
    assert str(refusal.value).startswith(text)
    stored = read_stored_record(value, 7)
    assert stored.record.holder and stored.record.lease_ms > 0, "held by nobody known, for a while"
    assert read_stored_epoch(b"nonsense", 7) == StoredEpoch(Epoch(0, UNREADABLE_HOLDER), 7)
    assert stored == StoredRecord(LeaderRecord(UNREADABLE_HOLDER, lease_ms=15_000), 7)
