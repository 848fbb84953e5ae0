"""Positions in a hub's window: what one watch reads of the changes that concern it, at its own speed.

No I/O, no clock, on the event loop as the hub is. Nothing here waits.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rayched.server.watching.node_index import NodeIndex, NodeSelection
from rayched.server.watching.selection import Selection

if TYPE_CHECKING:
    from rayched.server.watching.watch_hub import WatchHub

EVENTS_A_BATCH: Final = 500
BYTES_A_BATCH: Final = 256 << 10
"""What a subscriber that does not read holds at most, or one revision."""
CHANGES_A_READ: Final = 5_000
"""One read looks at this many changes, so that a subscription that matches nothing cannot occupy the event loop."""

Place = tuple[str, str]
"""A kind and a namespace; "": all of them."""


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


def place_of(selection: Selection) -> Place:
    return selection.kind.name if selection.kind else "", selection.namespace


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
        if not self.pending:
            # Nobody has woken it, so nothing that came concerns it.
            self._position = hub.first + len(window)
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
        self._hub.leave(self)

    # ---- called by the hub

    def wake(self, position: int, revision: int) -> None:
        """The change at this position, after `revision`, may concern it, and none before it that it was not woken for."""
        if not self.pending:
            self.pending = True
            # What lies between concerns others.
            self._position, self.revision = max(self._position, position), max(self.revision, revision)
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
