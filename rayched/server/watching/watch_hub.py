"""The shared core of a replica's watches: one stream of changes comes in, any number of positions in it go out.

Fed with what the store's watcher delivers, the hub keeps the present state of all keys and a bounded window of the latest
changes, each with the state before and after. A subscriber is a position in that window: reading takes what it has not read yet,
whole revisions at a time, so a slow subscriber costs a number and gets larger batches. When the window has moved past it, it
is told so (Lost) and has to read etcd's own history from its revision.

No I/O, no clock. One owner: all calls come from the event loop's thread. Nothing here waits; `on_ready` of a subscription is
called when there may be something to read, and must not call back into the hub.

Memory: the present state (one copy of each value) plus the window (bounded by count and bytes). Cost: about 2 µs a change, and
0.3 µs a change and subscriber.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rayched.api.kinds import EVENT, NODE, POD, Kind
from rayched.server.present_state import PresentState
from rayched.server.watching.changes import EventEncoder, ObjectChange
from rayched.server.watching.node_index import NodeIndex, NodeSelection
from rayched.server.watching.selection import Selection
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import ObjectKey

EVENTS_A_BATCH: Final = 500
BYTES_A_BATCH: Final = 256 << 10
"""What a subscriber that does not read holds at most, or one revision."""
CHANGES_A_READ: Final = 5_000
"""One read looks at this many changes, so that a subscription that matches nothing cannot occupy the event loop."""

ParseKey = Callable[[bytes], ObjectKey | None]
"""What a key names; None for a key that holds no object."""


@dataclass(frozen=True, slots=True)
class HubLimits:
    """Bounds of the window, exceeded by the last delivery only: some seconds at full speed, so that none but a really slow
    subscriber falls out of it."""

    changes_max: int = 50_000
    bytes_max: int = 64 << 20


class Loss(enum.Enum):
    """Why a subscription cannot go on in the window."""

    SLOW = "slow"
    FAILED = "failed"
    """Nobody feeds the hub any more."""
    RELISTED = "relisted"
    """The hub itself missed changes, or cannot prove that it did not, and had to list again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The window no longer has what comes after `revision`."""

    reason: Loss
    revision: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded events; everything up to `revision` has been read. `more`: there is more to read now."""

    events: list[bytes]
    revision: int
    more: bool


class Subscription:
    """A position in the hub's window, for one selection."""

    __slots__ = ("_after", "_hub", "_lost", "_on_ready", "_position", "pending", "revision", "selection")

    def __init__(self, hub: WatchHub, selection: Selection, position: int, revision: int, on_ready: Callable[[], None]) -> None:
        self._hub = hub
        self._position = position
        self._after = revision
        self._on_ready = on_ready
        self._lost: Loss | None = None
        self.selection = selection
        self.revision = revision
        """Everything up to here was read."""
        self.pending = True
        """There may be something to read."""

    def read(self, events_max: int = EVENTS_A_BATCH, bytes_max: int = BYTES_A_BATCH) -> Batch | Lost:
        """The next events: whole revisions, at most about `events_max` and `bytes_max`, possibly none."""
        if self._lost is not None:
            return Lost(self._lost, self.revision)
        hub, selection = self._hub, self.selection
        window, encoder = hub.window, hub.encoder
        start = self._position - hub.first
        stop = min(len(window), start + CHANGES_A_READ)
        events: list[bytes] = []
        size = 0
        index = start
        while index < len(window):
            change = window[index]
            begins = change.revision != self.revision
            if begins and (index >= stop or len(events) >= events_max or size >= bytes_max):
                break
            # A watch may begin ahead of what the hub has seen.
            if change.revision > self._after and selection.covers(change.key):
                event = encoder.encode(change, selection)
                if event is not None:
                    if begins and events and size + len(event) > bytes_max:
                        break
                    events.append(event)
                    size += len(event)
            self.revision = max(self.revision, change.revision)
            index += 1
        self._position = hub.first + index
        self.pending = index < len(window)
        if not self.pending:
            self.revision = max(self.revision, hub.revision)
        return Batch(events, self.revision, self.pending)

    def close(self) -> None:
        self._hub.subscriptions.discard(self)

    # ---- called by the hub

    def wake(self) -> None:
        if not self.pending:
            self.pending = True
            self._on_ready()

    def trimmed(self, first: int, floor: int) -> None:
        """The window begins at position `first` now, and lacks the changes up to revision `floor`."""
        if self._position >= first or self._lost is not None:
            return
        if self.pending:
            self._hub.overflows += 1
            self.lose(Loss.SLOW)
        else:
            self._position = first
            self.revision = max(self.revision, floor)

    def lose(self, reason: Loss) -> None:
        self._lost = reason
        self.pending = True
        self._on_ready()


class NodeSubscription(Subscription):
    """A position in the window, for one node: its own changes are all that is looked at."""

    __slots__ = ("_index", "node")

    def __init__(
        self,
        hub: WatchHub,
        selection: NodeSelection,
        index: NodeIndex,
        position: int,
        revision: int,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(hub, selection, position, revision, on_ready)
        self._index = index
        self.node = selection.node

    def read(self, events_max: int = EVENTS_A_BATCH, bytes_max: int = BYTES_A_BATCH) -> Batch | Lost:
        if self._lost is not None:
            return Lost(self._lost, self.revision)
        hub = self._hub
        events: list[bytes] = []
        size = 0
        for position in self._index.positions(self.node, self._position):
            change = hub.window[position - hub.first]
            begins = change.revision != self.revision
            if begins and (len(events) >= events_max or size >= bytes_max):
                return Batch(events, self.revision, True)
            event = hub.encoder.encode(change, self.selection) if change.revision > self._after else None
            if event is not None:
                if begins and events and size + len(event) > bytes_max:
                    return Batch(events, self.revision, True)
                events.append(event)
                size += len(event)
            self.revision, self._position = max(self.revision, change.revision), position + 1
        self._position = hub.first + len(hub.window)
        self.pending = False
        self.revision = max(self.revision, hub.revision)
        return Batch(events, self.revision, False)

    def close(self) -> None:
        self._hub.leave_node(self)


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
        self.subscriptions: set[Subscription] = set()
        """But those of single nodes."""
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
        kinds, nodes = set[str](), set[str]()
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
            self.window.append(change)
            self._window_bytes += change.size
            kinds.add(key.kind)
            self._changed_at[key.kind] = item.mod_revision
        self.revision = max(self.revision, revision)
        for subscription in self.subscriptions:
            wanted = subscription.selection.kind
            if wanted is None or wanted.name in kinds:
                subscription.wake()
        for node in nodes & self._on_nodes.keys():
            for watching in self._on_nodes[node]:
                watching.wake()

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
        self.subscriptions.add(subscription)
        return subscription

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
