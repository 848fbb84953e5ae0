"""Which changes and pods belong to which node, so that the watch of one node costs what happens there and no more.

A pod that cannot be read is of the node that it was on when it could be read last; of one that could not be read since the
beginning nobody knows the node, so it is each one's.

Made when the first node is watched; a cluster without such watches pays nothing. Owner: the hub. Memory: some 200 bytes a pod on
a node, and 8 a change of the window. Cost: a decoding for each change of a pod, and for each pod that is there at the beginning.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.api.kinds import NODE, POD, AnyObject
from rayched.api.selectors import FieldSelector, Requirements
from rayched.server.watching.changes import EventEncoder, ObjectChange
from rayched.server.watching.selection import Selection, UnreadablePolicy
from rayched.store.entries import Entry
from rayched.store.keys import ObjectKey
from rayched.v1.core_pb2 import Pod

_EVERY_NODE: Final = ""


@dataclass(frozen=True, slots=True)
class NodeSelection(Selection):
    """One node and the pods on it."""

    node: str = ""
    takes_unreadable: bool = True
    """Its watcher knows what it means that an object cannot be read."""

    @property
    def unreadable(self) -> UnreadablePolicy:
        return UnreadablePolicy.TOLD if self.takes_unreadable else UnreadablePolicy.REFUSED

    @property
    def by_key(self) -> bool:
        return False

    @property
    def names(self) -> frozenset[str] | None:
        return None

    def covers(self, key: ObjectKey) -> bool:
        return key.kind == POD.name or (key.kind == NODE.name and key.name == self.node)

    def matches(self, item: AnyObject) -> bool:
        return item.spec.node_name == self.node if isinstance(item, Pod) else item.metadata.name == self.node


def select_node(name: str, *, takes_unreadable: bool = True) -> NodeSelection:
    return NodeSelection(None, "", Requirements(()), FieldSelector(()), name, takes_unreadable)


class NodeIndex:
    """Pods by their node, and the positions of changes in the hub's window."""

    def __init__(self, encoder: EventEncoder) -> None:
        self._encoder = encoder
        self._node_of: dict[ObjectKey, str] = {}
        self._unreadable: dict[ObjectKey, str] = {}
        """Pods that cannot be read, with their node; _EVERY_NODE: unknown."""
        self._pods_on: dict[str, dict[ObjectKey, None]] = {}
        self._positions: dict[str, list[int]] = {}

    def present(self, pods: Iterable[tuple[ObjectKey, Entry]]) -> None:
        """What is there now; to be told once, before the changes of the window."""
        for key, entry in pods:
            if self._is_unreadable(entry):
                self._unreadable[key] = _EVERY_NODE
            else:
                self._moves(key, self._node_in(entry))

    def was_changed(self, position: int, change: ObjectChange) -> None:
        """A change that came before the present state."""
        if change.key.kind == NODE.name:
            self._note(change.key.name, position)
        elif change.key.kind == POD.name:
            for node in {self._node_in(change.before), self._node_in(change.after)} - {""}:
                self._note(node, position)
            if self._is_unreadable(change.before) or self._is_unreadable(change.after):
                self._note(_EVERY_NODE, position)

    def changed(self, position: int, change: ObjectChange) -> set[str] | None:
        """The nodes that it is about; None: all of them."""
        if change.key.kind == NODE.name:
            nodes = {change.key.name}
        elif change.key.kind == POD.name:
            nodes = self._pod_changed(change)
        else:
            return set()
        for node in nodes:
            self._note(node, position)
        return None if _EVERY_NODE in nodes else nodes

    def _pod_changed(self, change: ObjectChange) -> set[str]:
        key, was_unreadable = change.key, change.key in self._unreadable
        home = self._unreadable.pop(key, _EVERY_NODE)
        item = self._encoder.message(change.after)
        if change.after is not None and item is None:
            home = self._moves(key, "") or home
            self._unreadable[key] = home
            return {home}
        after = item.spec.node_name if isinstance(item, Pod) else ""
        nodes = {self._moves(key, after), after} - {""}
        return nodes | {home} if was_unreadable else nodes

    def pods_on(self, node: str) -> list[ObjectKey]:
        """In the order of their names."""
        return sorted(self._pods_on.get(node, ()))

    def unreadable(self, node: str) -> list[ObjectKey]:
        """Pods that are there, cannot be read, and may be the node's."""
        return sorted(key for key, home in self._unreadable.items() if home in (node, _EVERY_NODE))

    def positions(self, node: str, first: int) -> Sequence[int]:
        """Of its changes, from that position on."""
        own, common = self._positions_from(node, first), self._positions_from(_EVERY_NODE, first)
        return sorted({*own, *common}) if common else own

    def _positions_from(self, node: str, first: int) -> list[int]:
        found = self._positions.get(node, [])
        return found[bisect.bisect_left(found, first) :]

    def trimmed(self, first: int) -> None:
        """The window begins there now."""
        for node, found in list(self._positions.items()):
            del found[: bisect.bisect_left(found, first)]
            if not found:
                del self._positions[node]

    def _note(self, node: str, position: int) -> None:
        self._positions.setdefault(node, []).append(position)

    def _is_unreadable(self, entry: Entry | None) -> bool:
        return entry is not None and self._encoder.message(entry) is None

    def _moves(self, key: ObjectKey, node: str) -> str:
        """Where it was before."""
        before = self._node_of.pop(key, "")
        if before and before != node:
            pods = self._pods_on[before]
            del pods[key]
            if not pods:
                del self._pods_on[before]
        if node:
            self._node_of[key] = node
            self._pods_on.setdefault(node, {})[key] = None
        return before

    def _node_in(self, entry: Entry | None) -> str:
        """Empty for a pod without a node, and for none."""
        item = self._encoder.message(entry)
        return item.spec.node_name if isinstance(item, Pod) else ""
