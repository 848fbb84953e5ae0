"""What a watch from the present state begins with: pages of events, each encoded once for all who read it at the same time.

Watches of one selection that begin while nothing of its kind changes share one view of the state. A page is there as long as
somebody sends it: those who do not read all wait at the same page, so that they cost one page together, and gRPC's copy each. A
page that everybody has sent is encoded anew for who comes later.

Owner: the event loop. Cost: an encoding for each event of a page that nobody else sends, in turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final
from weakref import WeakValueDictionary

from rayched.server.admission.turns import Turns
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.selection import Selection
from rayched.server.watching.subscriptions import BYTES_A_BATCH, EVENTS_A_BATCH
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.entries import Entry


class PresentPage:
    """Events of the entries of a view from one on, as bytes; empty where none of them is selected."""

    __slots__ = ("__weakref__", "content", "end")

    def __init__(self, content: bytes, end: int) -> None:
        self.content: Final = content
        self.end: Final = end
        """Where the next page begins."""


class PresentView:
    """What there is of one selection."""

    def __init__(self, hub: WatchHub, selection: Selection) -> None:
        self.hub: Final = hub
        self._selection = selection
        self._entries: Sequence[Entry] = hub.entries(selection)
        self._encoder: EventEncoder = hub.encoder
        self._pages: WeakValueDictionary[int, PresentPage] = WeakValueDictionary()
        self._encoding = asyncio.Lock()

    def __len__(self) -> int:
        """Of its entries."""
        return len(self._entries)

    async def page(self, start: int) -> PresentPage:
        """That which begins at an entry: 0, or the end of another page. At most BYTES_A_BATCH, or one event."""
        found = self._pages.get(start)
        if found is None:
            async with self._encoding:
                # Somebody else may have encoded it meanwhile, and be sending it.
                found = self._pages.get(start)
                if found is None:
                    found = self._pages[start] = await self._encoded(start)
        return found

    async def _encoded(self, start: int) -> PresentPage:
        turns, part, size, end = Turns(time.monotonic), list[bytes](), 0, start
        while end < len(self._entries):
            # However many of them the selectors leave out.
            await turns.pause()
            event = self._encoder.encode_initial(self._entries[end], self._selection)
            if event is not None:
                if part and (len(part) >= EVENTS_A_BATCH or size + len(event) > BYTES_A_BATCH):
                    break
                part.append(event)
                size += len(event)
            end += 1
        return PresentPage(part[0] if len(part) == 1 else b"".join(part), end)


class PresentViews:
    """The views that somebody reads."""

    def __init__(self) -> None:
        self._views: WeakValueDictionary[tuple[int, bytes, tuple[int, int]], PresentView] = WeakValueDictionary()

    def of(self, hub: WatchHub, selection: Selection) -> PresentView:
        """The present state, as of the hub's revision."""
        if selection.kind is None:
            return PresentView(hub, selection)
        # A view keeps its hub, so as long as it is there no other hub has that id.
        key = id(hub), selection.digest(), hub.version(selection.kind)
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = PresentView(hub, selection)
        return found
