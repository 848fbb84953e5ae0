"""For how long nodes have been silent, by this observer's own clock.

A node's heartbeat is a key of etcd; that its revision has changed is the sign of life, and what is measured is the time since
this observer first saw the present revision. Clocks of other machines play no part, and an observer that has just begun takes
every node to have spoken at that moment: it may be late, and never early.

Time in which the observer itself could not read the heartbeats does not count: agents could not write them then either. So an
etcd that was away for an hour brings down no node.

Pure: the time comes in, from any monotonic clock in seconds. Cost: a dictionary look-up a node and reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _Sign:
    revision: int
    seen_at: float


class HeartbeatAges:
    """`observed` with each reading of all heartbeats; the questions after it."""

    def __init__(self, gap_seconds_max: float) -> None:
        """Of the time between two readings at most this counts."""
        self._gap_seconds_max = gap_seconds_max
        self._signs: dict[str, _Sign] = {}
        self._read_at: float | None = None

    def observed(self, revisions: Mapping[str, int], now: float) -> None:
        """All heartbeats that are there, as the revisions of their keys by node."""
        if self._read_at is not None:
            uncounted = now - self._read_at - self._gap_seconds_max
            if uncounted > 0:
                for sign in self._signs.values():
                    sign.seen_at += uncounted
        self._read_at = now
        signs = self._signs
        for name, revision in revisions.items():
            known = signs.get(name)
            if known is None:
                signs[name] = _Sign(revision, now)
            elif known.revision != revision:
                known.revision, known.seen_at = revision, now
        for name in [name for name, sign in signs.items() if sign.revision and name not in revisions]:
            del signs[name]

    def silent_seconds(self, name: str) -> float:
        """At the last reading. A node that never gave a sign of life is silent since it was first asked for."""
        if self._read_at is None:
            return 0.0
        sign = self._signs.get(name)
        if sign is None:
            self._signs[name] = _Sign(0, self._read_at)
            return 0.0
        return self._read_at - sign.seen_at

    def revision(self, name: str) -> int:
        """Of the node's heartbeat at the last reading; 0: there is none."""
        sign = self._signs.get(name)
        return 0 if sign is None else sign.revision

    def keep(self, names: Iterable[str]) -> None:
        """Forgets what never gave a sign of life and is none of these nodes."""
        kept = set(names)
        for name in [name for name, sign in self._signs.items() if not sign.revision and name not in kept]:
            del self._signs[name]

    def forgive(self) -> None:
        """All nodes count as heard of at the last reading."""
        for sign in self._signs.values():
            if self._read_at is not None:
                sign.seen_at = self._read_at
