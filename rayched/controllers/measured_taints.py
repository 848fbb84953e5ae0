"""Since when the leader itself has seen nodes' NoExecute taints, so that no other host's clock cuts a toleration short.

A taint's timeAdded is written by the clock of whoever set it, a replica or a leader before, and read by the leader's. A taint
that the leader saw come counts from then at the earliest, less the slack of measured_ends.py, within which clocks that agree
change nothing. Of one that was there when the leader read all objects nothing is measured; then its timeAdded alone counts.

A taint is told by its time: one that is swapped for another (not-ready, unreachable) keeps that, and goes on.

Pure: the time comes in, from any monotonic clock in seconds. Cost: an entry for each node that has such taints.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from typing import Final

from rayched.api.tolerations import NO_EXECUTE
from rayched.controllers.measured_ends import SLACK_SECONDS
from rayched.v1.core_pb2 import Node, Taint

UNMEASURED: Final = -math.inf


class MeasuredTaints:
    """`seen` with each change of nodes, also of those that have no such taint any more."""

    def __init__(self) -> None:
        self._since: dict[str, dict[int, float]] = {}
        """By node and timeAdded."""
        self._lists = 0

    def seen(self, nodes: Iterable[tuple[str, Node]], lists: int, now: float) -> None:
        """`lists`: how often all objects have been read; what came with a list has no known beginning."""
        new, self._lists = UNMEASURED if lists != self._lists else now - SLACK_SECONDS, lists
        for name, node in nodes:
            known = self._since.pop(name, {})
            times = [taint.time_added.seconds for taint in node.spec.taints if taint.effect == NO_EXECUTE]
            if times:
                self._since[name] = {time: known.get(time, new) for time in times}

    def since(self, name: str, taint: Taint) -> float:
        """UNMEASURED, or the time from which it counts at the earliest."""
        return self._since.get(name, {}).get(taint.time_added.seconds, UNMEASURED)

    def keep(self, names: Container[str]) -> None:
        """Forgets all other nodes."""
        self._since = {name: times for name, times in self._since.items() if name in names}
