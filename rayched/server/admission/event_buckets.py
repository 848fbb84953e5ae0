"""How many Events an agent may bring: RATE a second and BURST at once, on each replica. Pure: times come in as arguments.

Agents keep to the same numbers by themselves; one that does not shall cost neither etcd nor the others anything.

Source: kubelet's eventRecordQPS and eventBurst, Kubernetes 1.34. Memory: NODES_MAX nodes. Cost: a microsecond a call.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

RATE: Final = 50.0
BURST: Final = 100
NODES_MAX: Final = 10_000


class _Allowance(NamedTuple):
    events: float
    at: float


class EventBuckets:
    """The buckets of one replica, by node."""

    def __init__(self) -> None:
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        """Those that were used last come last."""

    def take(self, node: str, wanted: int, now: float) -> int:
        """How many of so many events may come in now."""
        allowed = self._allowed(node, now)
        taken = min(wanted, int(allowed))
        self._allowances[node] = _Allowance(allowed - taken, now)
        self._allowances.move_to_end(node)
        while len(self._allowances) > NODES_MAX:
            self._allowances.popitem(last=False)
        return taken

    def seconds_until(self, node: str, wanted: int, now: float) -> float:
        """When so many may come in, a full bucket at most; 0: now."""
        return max(0.0, min(wanted, BURST) - self._allowed(node, now)) / RATE

    def _allowed(self, node: str, now: float) -> float:
        found = self._allowances.get(node)
        return float(BURST) if found is None else min(BURST, found.events + RATE * max(now - found.at, 0.0))
