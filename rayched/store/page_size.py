"""How many entries to ask etcd for at a time: by what they weigh, as 2,000 of them may have 1 MiB or 512.

A page begins small, and has what comes to BYTES from then on, by the weight of the last one. After a failure it has half of that,
so that a list comes to its end over a slow line, too.

Pure. Owner: whoever reads the list.
"""

from __future__ import annotations

from typing import Final

BYTES: Final = 8 << 20
FIRST: Final = 256
"""Entries of the first page, of which nothing is known: 64 MiB of the largest pods."""


class PageSize:
    """How many keys the next page of a list asks for."""

    __slots__ = ("_bytes", "_most", "wanted")

    def __init__(self, most: int, first: int = FIRST, size: int = BYTES) -> None:
        """`most`: entries of any page. `size`: bytes that a page is to have."""
        self._most, self._bytes = most, size
        self.wanted = min(first, most)
        """Entries of the next page."""

    def arrived(self, entries: int, size: int) -> None:
        """A page with so many entries, of so many bytes in all."""
        if entries:
            self.wanted = max(1, min(self._most, self._bytes * entries // max(1, size)))

    def failed(self) -> None:
        """A page did not arrive."""
        self.wanted = max(1, self.wanted // 2)
