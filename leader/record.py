"""The two values in the store: the leader's record and the epoch.

    record key   LeaderRecord   rewritten at each renewal; bound to an etcd lease, so it can vanish
    epoch key    Epoch          permanent; written only when a term begins and when it is released

The mod_revision of the epoch key is the fencing token E: it is the revision of the transaction that began the term, so it is
unique and grows from term to term. Every write of the record is guarded by it. Therefore the record's instance tells who
holds the current epoch.

Both are JSON, so that a person can read them with etcdctl. Fields that a reader does not know are ignored: a rolling upgrade
may add some. Durations are in milliseconds, times are RFC 3339 with microseconds and for people only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

UNREADABLE_HOLDER: Final = "(unreadable record)"
UNREADABLE_LEASE_MS: Final = 15_000
RELEASED_LEASE_MS: Final = 1000

_EPOCH_OF_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RecordError(ValueError):
    """A value that is not a record or not an epoch."""


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """Who leads, as everybody sees it. An empty holder means that the lease is free."""

    holder: str
    instance: str = ""
    """Unique to the run of the elector that wrote it; tells two lives of one identity apart."""
    lease_ms: int = 0
    acquire_us: int = 0
    renew_us: int = 0
    version: str = ""
    address: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Of anybody who has something to say about the record, by name. Whoever writes it keeps those that are not its own."""

    def to_json(self) -> bytes:
        return _dump(
            {
                "holder": self.holder,
                "instance": self.instance,
                "lease_ms": self.lease_ms,
                "acquire": _time_text(self.acquire_us),
                "renew": _time_text(self.renew_us),
                "version": self.version,
                "address": self.address,
                **({"labels": dict(self.labels)} if self.labels else {}),
            }
        )

    @classmethod
    def from_json(cls, value: bytes) -> LeaderRecord:
        """Absent fields take their defaults, so an empty object is a free record. Raises RecordError."""
        fields = load_fields(value, "leader record")
        return cls(
            holder=_text(fields, "holder"),
            instance=_text(fields, "instance"),
            lease_ms=_count(fields, "lease_ms"),
            acquire_us=_time(fields, "acquire"),
            renew_us=_time(fields, "renew"),
            version=_text(fields, "version"),
            address=_text(fields, "address"),
            labels=_labels(fields),
        )


@dataclass(frozen=True, slots=True)
class Epoch:
    """Value of the epoch key. `transitions` counts changes of holder, as leaderTransitions does in a Lease."""

    transitions: int
    holder: str
    instance: str = ""

    def to_json(self) -> bytes:
        return _dump({"transitions": self.transitions, "holder": self.holder, "instance": self.instance})

    @classmethod
    def from_json(cls, value: bytes) -> Epoch:
        """Raises RecordError."""
        fields = load_fields(value, "epoch")
        return cls(_count(fields, "transitions"), _text(fields, "holder"), _text(fields, "instance"))


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and the revision that wrote it. Two renewals always differ in it, however close they are."""

    record: LeaderRecord
    mod_revision: int
    lease_id: int = field(default=0, compare=False)
    """Of the store, where that has told; it decides nothing but what may be revoked."""


@dataclass(frozen=True, slots=True)
class StoredEpoch:
    epoch: Epoch
    mod_revision: int
    """The fencing token of the term that this value began."""


@dataclass(frozen=True, slots=True)
class View:
    """Both keys as of one revision of the store; None for a key that is not there."""

    record: StoredRecord | None
    epoch: StoredEpoch | None
    revision: int


def read_stored_record(value: bytes, mod_revision: int, lease_id: int = 0) -> StoredRecord:
    """A value that nobody can read counts as held by nobody known, and is taken over when it has not changed for a while."""
    try:
        return StoredRecord(LeaderRecord.from_json(value), mod_revision, lease_id)
    except RecordError:
        return StoredRecord(LeaderRecord(UNREADABLE_HOLDER, lease_ms=UNREADABLE_LEASE_MS), mod_revision)


def read_stored_epoch(value: bytes, mod_revision: int) -> StoredEpoch:
    """A value that nobody can read loses the count of transitions, but not its revision, which is the token."""
    try:
        return StoredEpoch(Epoch.from_json(value), mod_revision)
    except RecordError:
        return StoredEpoch(Epoch(0, UNREADABLE_HOLDER), mod_revision)


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def load_fields(value: bytes, what: str) -> dict[str, object]:
    """The fields of a JSON object. Raises RecordError."""
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{what}: not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise RecordError(f"{what}: found {type(fields).__name__}, want a JSON object")
    return fields


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise RecordError(f"{name}: found {value!r}, want a text")
    return value


def _labels(fields: dict[str, object]) -> tuple[tuple[str, str], ...]:
    value = fields.get("labels", {})
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise RecordError(f"labels: found {value!r}, want texts by name")
    return tuple(sorted(value.items()))


def _count(fields: dict[str, object], name: str) -> int:
    value = fields.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise RecordError(f"{name}: found {value!r}, want a number of 0 or more")
    return value


def _time_text(time_us: int) -> str:
    return (_EPOCH_OF_TIME + timedelta(microseconds=time_us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(fields: dict[str, object], name: str) -> int:
    text = _text(fields, name)
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RecordError(f"{name}: found {text!r}, want an RFC 3339 time") from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH_OF_TIME) // timedelta(microseconds=1)
