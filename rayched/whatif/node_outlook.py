"""What a plan changes on nodes: what pods take up there before and after.

Pure. Cost: two copies of the columns of usage, then linear in the nodes that change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rayched.api.names import ZONE_LABEL
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class NodeOutlook:
    """A node that changes. Amounts by resource, those of which there are any: cpu in thousandths of a core, memory in bytes."""

    node_name: str
    zone: str
    """Empty: it is in none."""
    is_new: bool
    unschedulable: bool
    """It takes no pods afterwards."""
    allocatable: dict[str, int]
    requested_before: dict[str, int]
    requested: dict[str, int]
    """Afterwards."""


class NodesBefore:
    """The nodes of a copy of a cluster at one moment."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._names = snapshot.names[: snapshot.n_rows]
        self._requested = snapshot.requested[:, : snapshot.n_rows].copy()
        self._unschedulable = snapshot.unschedulable[: snapshot.n_rows].copy()

    def outlooks(self) -> tuple[NodeOutlook, ...]:
        """The nodes that are not as they were, by name."""
        found = [self._outlook(row) for row in self._changed().tolist()]
        return tuple(sorted(found, key=lambda outlook: outlook.node_name))

    def _changed(self) -> RowIndex:
        table, known = self._snapshot, len(self._names)
        changed = table.alive.copy()
        # There may be more resources now.
        places, now = len(self._requested), table.requested[:, :known]
        same = (now[:places] == self._requested).all(axis=0) & ~now[places:].any(axis=0)
        same &= table.unschedulable[:known] == self._unschedulable
        same &= np.array([before == after for before, after in zip(self._names, table.names, strict=False)], np.bool_)
        changed[:known] &= ~same
        return np.flatnonzero(changed)

    def _outlook(self, row: int) -> NodeOutlook:
        table, name = self._snapshot, self._snapshot.names[row]
        node = table.node(name)
        assert node is not None
        is_new = row >= len(self._names) or self._names[row] != name
        before = {} if is_new else self._amounts(self._requested[:, row].tolist())
        return NodeOutlook(
            name,
            node.metadata.labels.get(ZONE_LABEL, ""),
            is_new,
            bool(table.unschedulable[row]),
            self._amounts(table.allocatable[:, row].tolist()),
            before,
            self._amounts(table.requested[:, row].tolist()),
        )

    def _amounts(self, amounts: list[int]) -> dict[str, int]:
        return {resource: amount for resource, amount in zip(self._snapshot.resources, amounts, strict=False) if amount}
