"""The shared core of a replica's watches: one stream of changes comes in, any number of positions in it go out.

Fed with what the store's watcher delivers, the hub keeps the present state of all keys and a bounded window of the latest
changes, each with the state before and after. A subscriber is a position in that window: reading takes what it has not read yet,
whole revisions at a time, so a slow subscriber costs a number and gets larger batches. When the window has moved past it, it
is told so (Lost) and has to read etcd's own history from its revision.

No I/O, no clock. One owner: all calls come from the event loop's thread. Nothing here waits; `on_ready` of a subscription is
called when there may be something to read, and must not call back into the hub.

Memory: the present state (one copy of each value) plus the window (bounded by count and bytes). Cost: about 2 µs a change, and
0.3 µs a change and subscriber of its kind and namespace; others are not woken.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rayched.api.kinds import EVENT, NODE, POD, Kind
from rayched.server.present_state import PresentState
from rayched.server.watching.changes import EventEncoder, ObjectChange
from rayched.server.watching.node_index import NodeIndex, NodeSelection
from rayched.server.watching.selection import Selection
from rayched.server.watching.subscriptions import Loss, NodeSubscription, Place, Subscription, place_of
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import ObjectKey

ParseKey = Callable[[bytes], ObjectKey | None]
"""What a key names; None for a key that holds no object."""


@dataclass(frozen=True, slots=True)
class HubLimits:
    """Bounds of the window, exceeded by the last delivery only: some seconds at full speed, so that none but a really slow
    subscriber falls out of it."""

    changes_max: int = 50_000
    bytes_max: int = 64 << 20


class WatchHub:
    """Present state, window and subscriptions of one prefix."""

    def __init__(self, parse: ParseKey, encoder: EventEncoder, limits: HubLimits | None = None) -> None:
        self._parse = parse
        self._limits = limits or HubLimits()
        self._state = PresentState()
        self._changed_at: dict[str, int] = {}
        self._lists = 0
        self._window_bytes = 0
        self.encoder = encoder
        self.window: list[ObjectChange] = []
        self.first = 0
        """Position of the window's first change; positions count all changes ever fed."""
        self.floor = 0
        """The window has every change above this revision."""
        self.revision = 0
        """Everything up to here was fed."""
        self.synced = False
        self._nodes: NodeIndex | None = None
        """None: nobody has asked for one node yet, or not since the last list."""
        self._on_nodes: dict[str, set[NodeSubscription]] = {}
        self._at: dict[Place, set[Subscription]] = {}
        """Who watches a kind and a namespace."""
        self.overflows = 0
        """Subscriptions lost because nobody read them in time."""

    # ---- fed by the store's watcher

    def listed(self, entries: Iterable[Entry], revision: int) -> None:
        """All keys as of `revision`. Changes since the last one fed are not known, nor is it known that etcd has that one."""
        former, self._state = self._state, PresentState()
        for entry in entries:
            parsed = self._parse(entry.key)
            if parsed is not None:
                self._state.put(parsed, entry)
        self._changed_at = {}
        self._lists += 1
        if not self.synced or revision != self.revision or not self._state.same_as(former):
            self.first += len(self.window)
            self.window.clear()
            self._window_bytes = 0
            self._nodes = None
            self.floor = self.revision = revision
            self.lose_all(Loss.RELISTED)
        self.synced = True

    def changed(self, changes: Iterable[Entry | Deleted], revision: int) -> None:
        """Changes of whole revisions, in their order, up to `revision`."""
        # Before they are added: a delivery larger than the window is still there for those who read it at once.
        if len(self.window) > self._limits.changes_max or self._window_bytes > self._limits.bytes_max:
            self._trim()
        places, nodes = dict[Place, int](), set[str]()
        before_this, start = self.revision, self.first + len(self.window)
        for item in changes:
            key = self._parse(item.key)
            if key is None:
                continue
            after = item if isinstance(item, Entry) else None
            before = self._state.remove(key) if after is None else self._state.put(key, after)
            if after is None and before is None:
                continue
            change = ObjectChange(key, item.mod_revision, before, after)
            if self._nodes is not None:
                concerned = self._nodes.changed(self.first + len(self.window), change)
                nodes |= self._on_nodes.keys() if concerned is None else concerned
            places.setdefault((key.kind, key.namespace), self.first + len(self.window))
            self.window.append(change)
            self._window_bytes += change.size
            self._changed_at[key.kind] = item.mod_revision
        self.revision = max(self.revision, revision)
        # In the order of the changes, so that the first one that wakes somebody is the first that concerns it.
        for (kind, namespace), position in places.items():
            of_any_kind = () if kind == EVENT.name else (("", namespace), ("", ""))
            for place in ((kind, namespace), (kind, ""), *of_any_kind):
                for subscription in self._at.get(place, ()):
                    subscription.wake(position, before_this)
        for node in nodes & self._on_nodes.keys():
            for watching in self._on_nodes[node]:
                watching.wake(start, before_this)

    def lose_all(self, reason: Loss) -> None:
        """Ends all subscriptions."""
        for subscription in self._everybody():
            subscription.lose(reason)

    # ---- asked by handlers of calls

    def subscribe(self, selection: Selection, after_revision: int, on_ready: Callable[[], None]) -> Subscription | None:
        """A subscription to what comes after a revision; None when the window does not reach back so far."""
        if after_revision < self.floor:
            return None
        index = bisect.bisect_right(self.window, after_revision, key=lambda change: change.revision)
        if isinstance(selection, NodeSelection):
            found = NodeSubscription(self, selection, self._indexed(), self.first + index, after_revision, on_ready)
            self._on_nodes.setdefault(selection.node, set()).add(found)
            return found
        subscription = Subscription(self, selection, self.first + index, after_revision, on_ready)
        self._at.setdefault(place_of(selection), set()).add(subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """It is over; repeated, nothing."""
        place = place_of(subscription.selection)
        watching = self._at.get(place, set())
        watching.discard(subscription)
        if not watching:
            self._at.pop(place, None)

    def leave_node(self, subscription: NodeSubscription) -> None:
        """It is over; repeated, nothing."""
        watching = self._on_nodes.get(subscription.node, set())
        watching.discard(subscription)
        if not watching:
            self._on_nodes.pop(subscription.node, None)

    def _indexed(self) -> NodeIndex:
        if self._nodes is None:
            self._nodes = index = NodeIndex(self.encoder)
            pods = ((self._parse(entry.key), entry) for entry in self._state.all_of(POD.name))
            index.present((key, entry) for key, entry in pods if key is not None)
            for position, change in enumerate(self.window, self.first):
                index.was_changed(position, change)
        return self._nodes

    @property
    def subscriptions(self) -> list[Subscription]:
        """But those of single nodes. From any thread: nothing of Python's runs while a set is copied."""
        return [one for watching in tuple(self._at.values()) for one in tuple(watching)]

    def _everybody(self) -> tuple[Subscription, ...]:
        return (*self.subscriptions, *itertools.chain.from_iterable(self._on_nodes.values()))

    def entries(self, selection: Selection) -> list[Entry]:
        """What is there now and covered by the selection, in the order of the keys; selectors are still to be asked.

        Cost: 0.1 µs an entry of the namespaces asked for, or one look-up for an object that is named.
        """
        if isinstance(selection, NodeSelection):
            keys = [ObjectKey(NODE.name, "", selection.node), *self._indexed().pods_on(selection.node)]
            return [entry for entry in map(self._state.find, keys) if entry is not None]
        kinds = (
            [selection.kind.name] if selection.kind is not None else [kind for kind in self._state.kinds() if kind != EVENT.name]
        )
        names = selection.names
        found: list[Entry] = []
        for kind in kinds:
            found += (
                self._state.ordered(kind, selection.namespace)
                if names is None
                else self._state.named(kind, selection.namespace, names)
            )
        return found

    def unreadable(self, selection: Selection) -> list[ObjectKey]:
        """What is there now, cannot be read, and is to be told all the same."""
        if not isinstance(selection, NodeSelection):
            return []
        node = ObjectKey(NODE.name, "", selection.node)
        entry = self._state.find(node)
        nodes = [node] if entry is not None and self.encoder.message(entry) is None else []
        return [*nodes, *self._indexed().unreadable(selection.node)]

    def find(self, key: ObjectKey) -> Entry | None:
        """The present state of one object."""
        return self._state.find(key)

    def all_of(self, kind: Kind) -> Iterable[Entry]:
        return self._state.all_of(kind.name)

    def everything(self) -> Iterable[Entry]:
        """What is there now, in no order."""
        return itertools.chain.from_iterable(self._state.all_of(kind) for kind in self._state.kinds())

    @property
    def n_objects(self) -> int:
        """From any thread."""
        return self._state.size

    def version(self, kind: Kind) -> tuple[int, int]:
        """Equal as long as nothing of the kind has changed."""
        return self._lists, self._changed_at.get(kind.name, 0)

    def _trim(self) -> None:
        """Drops whole revisions from the front until both bounds hold with a quarter to spare."""
        drop = 0
        count_max, bytes_max = self._limits.changes_max * 3 // 4, self._limits.bytes_max * 3 // 4
        while drop < len(self.window) and (len(self.window) - drop > count_max or self._window_bytes > bytes_max):
            self._window_bytes -= self.window[drop].size
            drop += 1
        while 0 < drop < len(self.window) and self.window[drop].revision == self.window[drop - 1].revision:
            self._window_bytes -= self.window[drop].size
            drop += 1
        if drop:
            self.floor = self.window[drop - 1].revision
            self.first += drop
            del self.window[:drop]
            if self._nodes is not None:
                self._nodes.trimmed(self.first)
            for subscription in self._everybody():
                subscription.trimmed(self.first, self.floor)
