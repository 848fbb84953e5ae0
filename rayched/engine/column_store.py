"""What evaluations of several templates share, counted by its users and by its bytes.

An entry is found by its key and lives while at least one template uses it. The store drops nothing by itself: whoever owns the
templates lets the least recently used ones go while `n_bytes` is above its limit.

Owner: one Engine. Cost: a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar, cast


class CacheEntry:
    """Something shared; `n_bytes` is what its arrays take up now."""

    __slots__ = ("accounted_bytes", "key", "users")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.users = 0
        self.accounted_bytes = 0

    @property
    def n_bytes(self) -> int:
        return 0


S = TypeVar("S", bound=CacheEntry)


class ColumnStore:
    """Entries by key."""

    __slots__ = ("_entries", "n_bytes")

    def __init__(self) -> None:
        self._entries: dict[Hashable, CacheEntry] = {}
        self.n_bytes = 0
        """Bytes of all entries, as of the last `account` for each."""

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, key: Hashable, make: Callable[[], S]) -> S:
        """The entry of this key, made where there is none; its taker gives it back with `release`. A key stands for one type."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = make()
        entry.users += 1
        return cast(S, entry)

    def find(self, key: Hashable) -> CacheEntry | None:
        """The entry of this key, if somebody holds one."""
        return self._entries.get(key)

    def release(self, entries: Iterable[CacheEntry]) -> None:
        """Give entries back; those that nobody uses any more are forgotten."""
        for entry in entries:
            entry.users -= 1
            if not entry.users:
                del self._entries[entry.key]
                self.n_bytes -= entry.accounted_bytes

    def account(self, entries: Iterable[CacheEntry] | None = None) -> None:
        """Count the bytes of these entries anew; None: of all."""
        for entry in self._entries.values() if entries is None else entries:
            found = entry.n_bytes
            self.n_bytes += found - entry.accounted_bytes
            entry.accounted_bytes = found
