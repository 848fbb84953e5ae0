"""Simple plugins: plain Python functions of one pod and one node, lifted to the contract of column plugins.

A user's plugin may be a class with one or both of

    filter_node(pod, node)   True or None: fits. False: does not. A text: does not, and this is the reason.
    score_node(pod, node)    an int, 0 to 100; more is better.

`pod` is a Pod message, without its own name and status, as all pods of a template get the same answer. `node` is a NodeView: it
has `metadata`, `spec` and `status` as a Node message has them (name, labels, taints, unschedulable), and `allocatable` and
`requested` in integers. It is made from the row, so the functions see the cluster exactly as column plugins do, also on a worker
and in a what-if. A class may narrow `reads` (a Log); what belongs to aspects that it does not read is left empty.

The functions must depend on nothing but their arguments. What they raise ends the attempt with an error that names the plugin and
the node. A class of this form has no methods of other forms (`contract`), and is lifted where profiles are built.
Cost: one Python call and one view for each row, 10 µs and up: fine for hundreds of nodes, for workers, and for few changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, runtime_checkable

import numpy as np

from rayched.framework.plugin import MAX_NODE_SCORE, Plugin
from rayched.framework.status import Code
from rayched.snapshot.columns import BoolColumn, CodeColumn, IdColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Node, NodeSpec, NodeStatus, Pod
from rayched.v1.meta_pb2 import ObjectMeta

T = TypeVar("T")

READS_BY_DEFAULT: Final = Log.LABELS | Log.TAINTS | Log.UNSCHEDULABLE | Log.USAGE


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as a row tells of it."""

    node: Node
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """Milli-CPU, bytes or counts, by resource."""
    requested: Mapping[str, int] = field(default_factory=dict)
    """What bound pods take up of it; "pods" counts them."""

    @property
    def metadata(self) -> ObjectMeta:
        return self.node.metadata

    @property
    def spec(self) -> NodeSpec:
        return self.node.spec

    @property
    def status(self) -> NodeStatus:
        return self.node.status


class SimplePlugin(Protocol):
    """What simple plugins have in common: no more than their form."""


@runtime_checkable
class FilterNodePlugin(SimplePlugin, Protocol):
    def filter_node(self, pod: Pod, node: NodeView) -> bool | str | None: ...


@runtime_checkable
class ScoreNodePlugin(SimplePlugin, Protocol):
    def score_node(self, pod: Pod, node: NodeView) -> int: ...


def lift(name: str, simple: FilterNodePlugin | ScoreNodePlugin) -> Plugin:
    """A column plugin that asks a simple one for each row."""
    reads = getattr(simple, "reads", READS_BY_DEFAULT)
    if not isinstance(simple, FilterNodePlugin):
        return _LiftedScore(name, reads, simple)
    if not isinstance(simple, ScoreNodePlugin):
        return _LiftedFilter(name, reads, simple)
    return _Lifted(name, reads, simple, simple)


class _PerNode:
    """What a lifted plugin has in common: every pod template has a column of its own."""

    def __init__(self, name: str, reads: Log) -> None:
        self.name = name
        self.reads = reads

    def key(self, pod: Pod) -> bytes:
        return pod.SerializeToString(deterministic=True)

    def prepare(self, pod: Pod) -> Pod:
        return pod


class _LiftedFilter(_PerNode):
    def __init__(self, name: str, reads: Log, simple: FilterNodePlugin) -> None:
        super().__init__(name, reads)
        self._filter_node = simple.filter_node

    def filter(self, state: Pod, rows: Rows) -> CodeColumn:
        """Shape (rows,), uint8. Removing pods can help only a plugin that reads usage."""
        rejection = Code.UNSCHEDULABLE if self.reads & Log.USAGE else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        answers = [self._ask(state, node) for node in nodes_of(rows, self.reads)]
        return np.array([Code.SUCCESS if answer is None else rejection for answer in answers], np.uint8)

    def reasons(self, state: Pod, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:  # noqa: ARG002
        answers = [self._ask(state, node) for node in nodes_of(rows, self.reads)]
        return [
            (reason, np.array([answer == reason for answer in answers], np.bool_))
            for reason in dict.fromkeys(answers)
            if reason is not None
        ]

    def _ask(self, pod: Pod, node: NodeView | None) -> str | None:
        """Why the node does not fit; None where it does."""
        answer = None if node is None else _asked(self._filter_node, pod, node)
        if answer is None or answer is True:
            return None
        return answer if isinstance(answer, str) and answer else f"node(s) were rejected by {self.name}"


class _LiftedScore(_PerNode):
    def __init__(self, name: str, reads: Log, simple: ScoreNodePlugin) -> None:
        super().__init__(name, reads)
        self._score_node = simple.score_node

    def score(self, state: Pod, rows: Rows) -> ScoreColumn:
        """Shape (rows,), int64, 0..100."""
        return np.array([self._ask(state, node) for node in nodes_of(rows, self.reads)], np.int64)

    def _ask(self, pod: Pod, node: NodeView | None) -> int:
        if node is None:
            return 0
        score = _asked(self._score_node, pod, node)
        if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= MAX_NODE_SCORE:
            found = f"score_node of {self.name} gave {score!r} for node {node.metadata.name}"
            raise ValueError(f"{found}; allowed is an int from 0 to {MAX_NODE_SCORE}")
        return score


class _Lifted(_LiftedFilter):
    def __init__(self, name: str, reads: Log, filtering: FilterNodePlugin, scoring: ScoreNodePlugin) -> None:
        super().__init__(name, reads, filtering)
        self._scoring = _LiftedScore(name, reads, scoring)

    def score(self, state: Pod, rows: Rows) -> ScoreColumn:
        """Shape (rows,), int64, 0..100."""
        return self._scoring.score(state, rows)


def _asked(method: Callable[[Pod, NodeView], T], pod: Pod, node: NodeView) -> T:
    """What the author's method says; what it raises notes the node."""
    try:
        return method(pod, node)
    except Exception as problem:
        problem.add_note(f"about node {node.metadata.name}")
        raise


def nodes_of(rows: Rows, reads: Log) -> list[NodeView | None]:
    """A view for each row, with what belongs to these aspects; None for a row that is no node."""
    alive = rows.alive.tolist()
    columns = {key: rows.label(key) for key in rows.snapshot.labels} if reads & Log.LABELS else {}
    return [
        _view_of(rows, place, row, reads, columns) if is_node else None
        for place, (row, is_node) in enumerate(zip(rows.index.tolist(), alive, strict=True))
    ]


def _view_of(rows: Rows, place: int, row: int, reads: Log, labels: Mapping[str, IdColumn]) -> NodeView:
    table, node = rows.snapshot, Node()
    node.metadata.name = table.name_of(row)
    for key, column in labels.items():
        if column[place] >= 0:
            node.metadata.labels[key] = table.label_values[column[place]]
    if reads & Log.UNSCHEDULABLE:
        node.spec.unschedulable = bool(rows.unschedulable[place])
    if reads & Log.TAINTS:
        node.spec.taints.extend(table.taint_sets[rows.taint_set[place]])
    if not reads & Log.USAGE:
        return NodeView(node)
    places = table.resources.items()
    return NodeView(
        node,
        allocatable={name: int(rows.allocatable[resource, place]) for name, resource in places},
        requested={name: int(rows.requested[resource, place]) for name, resource in places},
    )
