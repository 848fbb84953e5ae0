"""The present state of all objects that a hub follows, by kind, namespace and name; each namespace in the order of its names.

An order is found out when somebody asks for it, and kept until an object comes that was not there: a watch from the beginning
costs what it is told, not what the kind has in other namespaces. Names in their order are keys in theirs, as both are UTF-8.

Memory: some 100 bytes an object beside the entry. Cost: 0.5 µs a change; 0.05 µs an entry that is asked for, 0.4 where the order
has to be found out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from rayched.store.entries import Entry
from rayched.store.keys import ObjectKey


class PresentState:
    """Entries by what their keys name. One owner; `size` may be read from any thread."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, dict[str, Entry]]] = {}
        self._unordered: set[tuple[str, str]] = set()
        """Kinds and namespaces whose names may be out of order."""
        self.size = 0

    def put(self, key: ObjectKey, entry: Entry) -> Entry | None:
        """Takes an object's new state; answers the one before."""
        kind, namespace, name = key
        entries = self._kinds.setdefault(kind, {}).setdefault(namespace, {})
        before = entries.get(name)
        # A name that is there keeps its place.
        entries[name] = entry
        if before is None:
            self.size += 1
            self._unordered.add((kind, namespace))
        return before

    def remove(self, key: ObjectKey) -> Entry | None:
        """Forgets an object; answers the state it had."""
        kind, namespace, name = key
        namespaces = self._kinds.get(kind, {})
        entries = namespaces.get(namespace, {})
        before = entries.pop(name, None)
        if before is not None:
            self.size -= 1
            if not entries:
                del namespaces[namespace]
                self._unordered.discard((kind, namespace))
        return before

    def find(self, key: ObjectKey) -> Entry | None:
        return self._kinds.get(key.kind, {}).get(key.namespace, {}).get(key.name)

    def kinds(self) -> list[str]:
        return sorted(self._kinds)

    def all_of(self, kind: str) -> Iterable[Entry]:
        """In no order."""
        return itertools.chain.from_iterable(entries.values() for entries in self._kinds.get(kind, {}).values())

    def ordered(self, kind: str, namespace: str = "") -> list[Entry]:
        """The entries of a kind, of one namespace where one is given, in the order of their keys."""
        namespaces = self._asked(kind, namespace)
        found: list[Entry] = []
        for one in namespaces:
            found += self._in_order(kind, one).values()
        return found

    def named(self, kind: str, namespace: str, names: Iterable[str]) -> list[Entry]:
        """As `ordered`, of those that have one of these names."""
        state = self._kinds.get(kind, {})
        found = (state.get(one, {}).get(name) for one in self._asked(kind, namespace) for name in sorted(names))
        return [entry for entry in found if entry is not None]

    def same_as(self, other: PresentState) -> bool:
        return self._kinds == other._kinds

    def _asked(self, kind: str, namespace: str) -> list[str]:
        # In a key a slash follows, which comes after "-" and ".".
        return [namespace] if namespace else sorted(self._kinds.get(kind, {}), key=lambda one: f"{one}/")

    def _in_order(self, kind: str, namespace: str) -> dict[str, Entry]:
        namespaces = self._kinds.get(kind, {})
        if (kind, namespace) in self._unordered:
            namespaces[namespace] = dict(sorted(namespaces[namespace].items()))
            self._unordered.remove((kind, namespace))
        return namespaces.get(namespace, {})
