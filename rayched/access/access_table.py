"""What etcd has of who may what, below one prefix, as one replica knows it: fed in the order of etcd's revisions. Pure.

What cannot be read counts for nothing, and is told in `problems`. Owner: the event loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

PROBLEMS_MAX: Final = 20

T = TypeVar("T")


class AccessTable(ABC, Generic[T]):
    """Values of one kind, by their keys in etcd."""

    def __init__(self, unreadable: str) -> None:
        """`unreadable`: what it means that a value cannot be read, with {} for its key."""
        self._unreadable = unreadable
        self._by_key: dict[bytes, T] = {}
        self._problems: dict[bytes, str] = {}
        self.is_known = False
        """A first list of what etcd has has arrived."""

    @property
    def problems(self) -> list[str]:
        """What could not be read, a line each; the first of them."""
        return [self._problems[key] for key in sorted(self._problems)[:PROBLEMS_MAX]]

    def listed(self, entries: Mapping[bytes, bytes]) -> None:
        """All that etcd has, by key."""
        self._by_key.clear()
        self._problems.clear()
        self.is_known = True
        self.changed(entries.items())

    def changed(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Keys and what they have now, in order; None: nothing any more."""
        for key, value in changes:
            self._by_key.pop(key, None)
            self._problems.pop(key, None)
            found = None if value is None else self._read(key, value)
            if isinstance(found, str):
                self._problems[key] = f"{self._unreadable.format(key.decode(errors='backslashreplace'))}: {found}"
            elif found is not None:
                self._by_key[key] = found
        self._index()

    @abstractmethod
    def _read(self, key: bytes, value: bytes) -> T | str:
        """What lies at a key, or why that is nothing."""

    @abstractmethod
    def _index(self) -> None:
        """What is there by key has changed."""
