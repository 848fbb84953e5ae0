"""How full nodes are, as columns: what the page draws its heat map and its zones from. Pure.

A row is a node, in the order of names; of pods nothing is known but what those of a node take up together. Whoever knows the
columns as of a `sequence` gets the rows that changed since; after a node came, went or changed its zone rows have other numbers,
and all columns are given anew.

Shares are thousandths of what a node offers, rounded down, 1,000 at most. CPU is counted in thousandths of a core, memory in
bytes. What pods request counts, as for the scheduler. Behind cpu, memory and pods come the extended resources that nodes offer;
a node that does not offer one has NOT_OFFERED there.

Cost: a change of a node is O(1); `full` is O(nodes log nodes) after a node came or went, else O(nodes); `since` is linear in the
rows that changed; `zones` is O(nodes) once after each change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rayched.api import quantity
from rayched.api.columns import node_status
from rayched.api.names import ZONE_LABEL
from rayched.api.resources import CPU, MEMORY, PODS, is_extended
from rayched.v1.core_pb2 import Node

CORDONED: Final = 1
NOT_READY: Final = 2
TAINTED: Final = 4
"""Bits of a node's state. A taint of the node's own trouble, as not-ready has, is no reason for the last one."""
_OWN_TAINTS: Final = "node.kubernetes.io/"
_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
_FULL: Final = 1_000

NOT_OFFERED: Final = -1
EXTENDED_MAX: Final = 8
"""Extended resources that have columns, by name."""

Amounts3 = tuple[int, int, int]
"""Of cpu, memory and pods."""
Amounts = tuple[int, ...]
"""Of cpu, memory and pods, and of extended resources in the order of `extended`."""
_BASIC: Final = 3
_NOTHING: Final = (0, 0, 0)


@dataclass(slots=True)
class _NodeShare:
    """One node. `row` counts from the last `full` on that all columns were laid out for."""

    name: str
    zone: str
    state: int
    offered: Amounts3
    extended: Mapping[str, int]
    """What it offers of extended resources."""
    row: int = -1


@dataclass(frozen=True, slots=True)
class ZoneTotals:
    """Nodes of a zone together, each amount of cpu, memory and pods."""

    zone: str
    nodes: int
    ready: int
    """Of them those that pods may go to: ready and not cordoned."""
    used: Amounts3
    offered: Amounts3
    unusable: Amounts3
    """What is free on nodes that no pod may go to."""

    def plain(self) -> dict[str, Any]:
        return {
            "zone": self.zone,
            "nodes": self.nodes,
            "ready": self.ready,
            "used": self.used,
            "offered": self.offered,
            "unusable": self.unusable,
        }


@dataclass(slots=True)
class UsageColumns:
    """All nodes. `sequence` grows with each change."""

    sequence: int = 0
    revision: int = 0
    """Of what pods take up: everything up to it is in here."""
    _nodes: dict[str, _NodeShare] = field(default_factory=dict)
    extended: tuple[str, ...] = ()
    """Names of the extended resources that have columns. What pods take up of others is not known."""
    _offering: Counter[str] = field(default_factory=Counter)
    """How many nodes offer an extended resource."""
    _allocated: dict[str, Amounts] = field(default_factory=dict)
    """By name of the node, known or not."""
    _changed: dict[str, int] = field(default_factory=dict)
    """Names by the sequence of their last change, the latest last."""
    _laid_out: int = 0
    """The sequence at which rows got other numbers last."""
    _has_rows: bool = False
    _zones: tuple[ZoneTotals, ...] = ()
    _zones_at: int = -1

    def __len__(self) -> int:
        return len(self._nodes)

    # ---------------------------------------------------------------------------------------------------------- changes

    def see_node(self, node: Node) -> None:
        name = node.metadata.name
        zone = node.metadata.labels.get(ZONE_LABEL, "")
        before = self._nodes.get(name)
        found = _NodeShare(name, zone, _state_of(node), _offered(node), _extended(node))
        if before is None or before.zone != zone:
            self._nodes[name] = found
            self._lay_out_anew()
        elif (before.state, before.offered, before.extended) != (found.state, found.offered, found.extended):
            found.row = before.row
            self._nodes[name] = found
            self._touch(name)
        self._offer(found.extended, before.extended if before is not None else {})

    def forget_node(self, name: str) -> None:
        found = self._nodes.pop(name, None)
        if found is not None:
            self._changed.pop(name, None)
            self._lay_out_anew()
            self._offer({}, found.extended)

    def _offer(self, more: Mapping[str, int], less: Mapping[str, int]) -> None:
        if more.keys() == less.keys():
            return
        self._offering.update(more.keys())
        self._offering.subtract(less.keys())
        self._offering = +self._offering
        extended = tuple(sorted(self._offering)[:EXTENDED_MAX])
        if extended != self.extended:
            self.extended = extended
            # What is known of extended resources is in the order of the former ones.
            self._allocated = {name: amounts[:_BASIC] for name, amounts in self._allocated.items()}
            self._lay_out_anew()

    def see_allocated(self, name: str, amounts: Amounts) -> None:
        """What pods take up on a node, whether it was seen yet or not."""
        if self._allocated.get(name, _NOTHING) != amounts:
            self._allocated[name] = amounts
            if name in self._nodes:
                self._touch(name)

    def see_all_allocated(self, amounts: Mapping[str, Amounts]) -> None:
        """The same of all nodes; on others pods take nothing up."""
        for name in self._allocated.keys() - amounts.keys():
            self.see_allocated(name, _NOTHING)
        for name, found in amounts.items():
            self.see_allocated(name, found)
        self._allocated = dict(amounts)

    def forget_nodes(self) -> None:
        """To be told them anew; who knew something before gets all of it."""
        self._nodes.clear()
        self._changed.clear()
        self._offering.clear()
        self.extended = ()
        self._lay_out_anew()

    def _touch(self, name: str) -> None:
        self.sequence += 1
        self._changed.pop(name, None)
        self._changed[name] = self.sequence

    def _lay_out_anew(self) -> None:
        self.sequence += 1
        self._laid_out = self.sequence
        self._has_rows = False

    # ---------------------------------------------------------------------------------------------------------- answers

    def full(self) -> dict[str, Any]:
        """All columns, rows in the order of names."""
        if not self._has_rows:
            for row, name in enumerate(sorted(self._nodes)):
                self._nodes[name].row = row
            self._has_rows = True
        shares = sorted(self._nodes.values(), key=lambda share: share.row)
        zones = sorted({share.zone for share in shares})
        number = {zone: place for place, zone in enumerate(zones)}
        rows = [self._row(share) for share in shares]
        return {
            "full": True,
            "sequence": self.sequence,
            "revision": self.revision,
            "names": [share.name for share in shares],
            "zones": zones,
            "zone": [number[share.zone] for share in shares],
            "cpu": [row[1] for row in rows],
            "memory": [row[2] for row in rows],
            "pods": [row[3] for row in rows],
            "state": [row[4] for row in rows],
            "extended": {name: [row[place] for row in rows] for place, name in enumerate(self.extended, 5)},
        }

    def since(self, sequence: int) -> dict[str, Any] | None:
        """What changed after `sequence`, 0 for whoever knows nothing: `full`, or rows; None: nothing."""
        if sequence < self._laid_out:
            return self.full()
        if sequence >= self.sequence:
            return None
        names = []
        for name in reversed(self._changed):
            if self._changed[name] <= sequence:
                break
            names.append(name)
        rows = [self._row(self._nodes[name]) for name in names]
        return {"sequence": self.sequence, "revision": self.revision, "rows": sorted(rows)}

    def zones(self) -> tuple[ZoneTotals, ...]:
        """In the order of names."""
        if self._zones_at != self.sequence:
            self._zones = self._added_up()
            self._zones_at = self.sequence
        return self._zones

    def allocated_on(self, name: str) -> Amounts:
        """What pods take up on a node."""
        return self._allocated.get(name, _NOTHING)

    def _row(self, share: _NodeShare) -> list[int]:
        """Row, cpu, memory, pods, state, extended resources."""
        taken = self.allocated_on(share.name)
        row = [share.row, *(thousandths(part, of) for part, of in zip(taken, share.offered, strict=False)), share.state]
        for place, name in enumerate(self.extended, _BASIC):
            part = taken[place] if place < len(taken) else 0
            row.append(thousandths(part, share.extended[name]) if name in share.extended else NOT_OFFERED)
        return row

    def _added_up(self) -> tuple[ZoneTotals, ...]:
        found: dict[str, list[Any]] = {}
        for share in self._nodes.values():
            sums = found.setdefault(share.zone, [0, 0, [0] * 3, [0] * 3, [0] * 3])
            usable = not share.state & (CORDONED | NOT_READY)
            sums[0] += 1
            sums[1] += usable
            for place, (part, of) in enumerate(zip(self.allocated_on(share.name), share.offered, strict=False)):
                sums[2][place] += part
                sums[3][place] += of
                if not usable:
                    sums[4][place] += max(0, of - part)
        return tuple(
            ZoneTotals(zone, nodes, ready, _three(used), _three(offered), _three(unusable))
            for zone, (nodes, ready, used, offered, unusable) in sorted(found.items())
        )


def _three(amounts: list[int]) -> Amounts3:
    return amounts[0], amounts[1], amounts[2]


def thousandths(part: int, of: int) -> int:
    """Rounded down, so that nothing is full before all of it is taken; of nothing all is taken."""
    if part <= 0:
        return 0
    return min(_FULL, part * _FULL // of) if of else _FULL


def _state_of(node: Node) -> int:
    ready = node_status(node).partition(",")[0] == "Ready"
    tainted = any(taint.effect in _KEEPS_AWAY and not taint.key.startswith(_OWN_TAINTS) for taint in node.spec.taints)
    return CORDONED * node.spec.unschedulable | NOT_READY * (not ready) | TAINTED * tainted


def _offered(node: Node) -> Amounts3:
    allocatable = node.status.allocatable
    cpu = quantity.milli_value(allocatable[CPU].string) if CPU in allocatable else 0
    memory, pods = (quantity.value(allocatable[name].string) if name in allocatable else 0 for name in (MEMORY, PODS))
    return cpu, memory, pods


def _extended(node: Node) -> Mapping[str, int]:
    found = {}
    for name, amount in node.status.allocatable.items():
        if is_extended(name) and (offered := quantity.value(amount.string)):
            found[name] = offered
    return found
