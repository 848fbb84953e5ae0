"""Why a pod is where it is, or is nowhere: every plugin's word on every node, by the functions that decide.

Filters are all asked about each node, also where an earlier one has rejected it; scores are those of the feasible nodes. A pod
that has a node is judged as if its own room were free, over the cluster as it is now, which may differ from the one in which
it was placed.

Pure. Cost: every plugin once over all nodes, and a few microseconds a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rayched.framework.diagnosis import left_out_by
from rayched.framework.engine import Engine
from rayched.framework.nominations import Nomination
from rayched.framework.status import Code
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate


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
    """In the order of the filters; empty: the node is feasible."""
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


def explain(
    engine: Engine, snapshot: Snapshot, weights: Mapping[str, int], template: PodTemplate, nominated: Sequence[Nomination] = ()
) -> PodExplanation:
    """The template against all nodes; `nominated` as for Engine.evaluate. Raises PluginError."""
    found = engine.explain(template, nominated)
    if not found.status.ok:
        return PodExplanation(found.status.message(), (), ())
    rows = found.rows
    verdicts = {row: NodeVerdict(snapshot.name_of(row), total=int(rows.total[i])) for i, row in enumerate(rows.index.tolist())}
    codes = {column.plugin: column.codes for column in rows.filters if column.codes is not None}
    places = {row: place for place, row in enumerate(rows.index.tolist())}
    texts: dict[tuple[int, str, bool], list[str]] = {}
    for reason in found.reasons:
        for row in reason.rows.tolist():
            texts.setdefault((row, reason.plugin, reason.nominated), []).append(reason.reason)
    for (row, plugin, for_nominated), reasons in texts.items():
        verdict = verdicts[row]
        if for_nominated and any(known.plugin == plugin for known in verdict.rejections):
            continue
        words = tuple(sorted(f"{text} (with the pods nominated there)" if for_nominated else text for text in reasons))
        code = Code.UNSCHEDULABLE if for_nominated else Code(int(codes[plugin][places[row]]))
        verdict.rejections.append(Rejection(plugin, words, code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE))
    for column in rows.scores:
        assert column.raw is not None and column.normalized is not None and column.weighted is not None
        for place, row in enumerate(rows.index.tolist()):
            if verdicts[row].feasible:
                raw, normalized, weighted = (int(one[place]) for one in (column.raw, column.normalized, column.weighted))
                verdicts[row].scores.append(Score(column.plugin, weights[column.plugin], raw, normalized, weighted))
    left_out = _left_out(snapshot, found.narrowed, found.narrowing)
    nodes = sorted((*verdicts.values(), *left_out), key=lambda one: (not one.feasible, -one.total, one.node_name))
    highest = max((one.total for one in verdicts.values() if one.feasible), default=None)
    best = tuple(one.node_name for one in verdicts.values() if one.feasible and one.total == highest)
    return PodExplanation("", tuple(nodes), best)


def _left_out(snapshot: Snapshot, narrowed: frozenset[str] | None, narrowing: Sequence[str]) -> list[NodeVerdict]:
    """Nodes that PreFilter did not leave."""
    if narrowed is None:
        return []
    rejection = Rejection(", ".join(sorted(narrowing)), (left_out_by(narrowing),), resolvable=False)
    return [NodeVerdict(name, [rejection], total=-1) for name in snapshot.rows_by_name if name not in narrowed]
