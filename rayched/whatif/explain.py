"""Why a pod is where it is, or is nowhere: every plugin's word on every node, by the functions that decide.

Filters are all asked about each node, also where an earlier one has rejected it; scores are those of the feasible nodes. A pod
that has a node is judged as if its own room were free, over the cluster as it is now, which may differ from the one in which
it was placed.

`look` asks the plugins, which has to happen where the snapshot is; what it found holds nothing that changes, and can be sent
elsewhere to be put into words, which takes longer.

Pure. Cost: of `look` every plugin once over all nodes; of the words some 20 microseconds a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rayched.engine.engine import Engine
from rayched.engine.evaluation import PluginColumns, RowReason
from rayched.engine.nominations import Nomination
from rayched.framework.diagnosis import left_out_by
from rayched.framework.status import Code
from rayched.snapshot.columns import RowIndex, ScoreColumn
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate

BESIDE_NOMINATED: Final = " (with the pods nominated there)"
"""Ends what a filter says that takes the node as it is."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A filter that rejects a node."""

    plugin: str
    reasons: tuple[str, ...]
    """Sorted."""
    resolvable: bool
    """Whether the removal of pods could help."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a score plugin gives a node."""

    plugin: str
    weight: int
    raw: int
    normalized: int
    weighted: int


@dataclass(slots=True)
class NodeVerdict:
    """Everything about one node."""

    node_name: str
    rejections: list[Rejection] = field(default_factory=list)
    """Empty: the node is feasible. The first is why it counts as rejected: with the pods nominated there, where that is so."""
    scores: list[Score] = field(default_factory=list)
    """In the order of the score plugins; of feasible nodes only."""
    total: int = 0

    @property
    def feasible(self) -> bool:
        return not self.rejections


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """A pod against all nodes."""

    rejected: str
    """Why PreFilter rejected the pod as a whole; then there are no nodes."""
    nodes: tuple[NodeVerdict, ...]
    """The feasible ones by falling total, then the others; by name where equal."""
    best: tuple[str, ...]
    """The nodes with the highest total, in the order of their rows, as they are drawn from."""


@dataclass(frozen=True, slots=True)
class NodeLook:
    """What every plugin says about every node, as columns. Nothing in it changes with the snapshot."""

    rejected: str
    """Why PreFilter rejected the pod as a whole; then there are no rows."""
    names: tuple[str, ...]
    """Of the nodes by row; "" is a row without a node."""
    index: RowIndex
    """The rows that were looked at."""
    total: ScoreColumn
    """Of each of these; negative: not feasible."""
    scores: tuple[PluginColumns, ...]
    """Of each of these."""
    weights: Mapping[str, int]
    """Of score plugins."""
    reasons: tuple[RowReason, ...]
    narrowed: frozenset[str] | None
    """Names of the only nodes that were looked at; None: all of them."""
    narrowing: tuple[str, ...]
    """Plugins that left out all the others."""


def look(
    engine: Engine, snapshot: Snapshot, weights: Mapping[str, int], template: PodTemplate, nominated: Sequence[Nomination] = ()
) -> NodeLook:
    """The template against all nodes; `nominated` as for Engine.evaluate. Raises PluginError."""
    found = engine.explain(template, nominated)
    rejected = "" if found.status.ok else found.status.message()
    rows, names = found.rows, tuple(snapshot.names[: snapshot.n_rows])
    # The engine keeps the rows that it looks at from one question to the next.
    index, narrowing = rows.index.copy(), tuple(found.narrowing)
    return NodeLook(rejected, names, index, rows.total, rows.scores, dict(weights), found.reasons, found.narrowed, narrowing)


def explain(
    engine: Engine, snapshot: Snapshot, weights: Mapping[str, int], template: PodTemplate, nominated: Sequence[Nomination] = ()
) -> PodExplanation:
    """`look`, in words. Raises PluginError."""
    return in_words(look(engine, snapshot, weights, template, nominated))


def in_words(found: NodeLook) -> PodExplanation:
    """On any thread and in any process."""
    if found.rejected:
        return PodExplanation(found.rejected, (), ())
    index = found.index.tolist()
    verdicts = {row: NodeVerdict(found.names[row], total=total) for row, total in zip(index, found.total.tolist(), strict=True)}
    alone, beside = _said(found.reasons, nominated=False), _said(found.reasons, nominated=True)
    for row, verdict in verdicts.items():
        by_itself, as_nominated = alone.get(row, {}), beside.get(row, {})
        # What a plugin says with the nominated pods is what counts, as they are asked about first.
        for plugin, (reasons, code) in (as_nominated | by_itself | as_nominated).items():
            note = "" if plugin in by_itself else BESIDE_NOMINATED
            words = tuple(sorted(reason + note for reason in reasons))
            verdict.rejections.append(Rejection(plugin, words, code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE))
    for column in found.scores:
        assert column.raw is not None and column.normalized is not None and column.weighted is not None
        for place, row in enumerate(index):
            if verdicts[row].feasible:
                raw, normalized, weighted = (int(one[place]) for one in (column.raw, column.normalized, column.weighted))
                verdicts[row].scores.append(Score(column.plugin, found.weights[column.plugin], raw, normalized, weighted))
    left_out = _left_out(found)
    nodes = sorted((*verdicts.values(), *left_out), key=lambda one: (not one.feasible, -one.total, one.node_name))
    highest = max((one.total for one in verdicts.values() if one.feasible), default=None)
    best = tuple(one.node_name for one in verdicts.values() if one.feasible and one.total == highest)
    return PodExplanation("", tuple(nodes), best)


def _said(reasons: Sequence[RowReason], *, nominated: bool) -> dict[int, dict[str, tuple[list[str], Code]]]:
    """By row: what each filter says that rejects it, in the order of the filters, and its code."""
    said: dict[int, dict[str, tuple[list[str], Code]]] = {}
    for reason in reasons:
        if reason.nominated is nominated:
            for row, code in zip(reason.rows.tolist(), reason.codes.tolist(), strict=True):
                said.setdefault(row, {}).setdefault(reason.plugin, ([], Code(code)))[0].append(reason.reason)
    return said


def _left_out(found: NodeLook) -> list[NodeVerdict]:
    """Nodes that PreFilter did not leave."""
    narrowed, narrowing = found.narrowed, found.narrowing
    if narrowed is None:
        return []
    rejection = Rejection(", ".join(sorted(narrowing)), (left_out_by(narrowing),), resolvable=False)
    return [NodeVerdict(name, [rejection], total=-1) for name in found.names if name and name not in narrowed]
