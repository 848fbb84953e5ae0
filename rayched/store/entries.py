"""Keys with their values as etcd holds them, before anything is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A key that is there. `create_revision == mod_revision` tells a creation from a change."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int


class Deleted(NamedTuple):
    """A key that went away at `mod_revision`."""

    key: bytes
    mod_revision: int


Change = Entry | Deleted


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing, in the order of the keys, as of `revision`. The next page starts at `next_key`; None: no more."""

    entries: tuple[Entry, ...]
    revision: int
    next_key: bytes | None


@dataclass(frozen=True, slots=True)
class Reading:
    """Some keys read at one revision, in the order in which they were asked for; None: not there."""

    entries: tuple[Entry | None, ...]
    revision: int


def entry_of(pair: Any) -> Entry:
    """From etcd's KeyValue."""
    return Entry(pair.key, pair.value, pair.create_revision, pair.mod_revision)


def first_entry(answer: Any) -> Entry | None:
    """From a RangeResponse on one key."""
    return entry_of(answer.kvs[0]) if answer.kvs else None
