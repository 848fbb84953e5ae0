"""What `explain` prints, in lines of at most 80 columns: what the pod is doing, when it was placed, if it were placed now.

Pure. Scores stand with plugins as rows and nodes as columns, as many side by side as fit; reasons of the same plugin are one row.
Names longer than the width make a line longer, for they are never cut, nor parted from their numbers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from rayched.cli.printing import counted, shown, widths
from rayched.cli.printing import line as table_line
from rayched.cli.scheduling.wake_words import waiting_rows
from rayched.v1.services_pb2 import ExplainResponse, NodeVerdict, PastDecision, PendingPod, PluginScore

WIDTH: Final = 80
NAMES_SHOWN: Final = 5
_INDENT: Final = "  "
_GAP: Final = 2
_OWN: Final = "*"
"""Behind the name of the node that the pod is on."""
_UNBROKEN: Final = "\xa0"
"""A blank at which no line ends, while lines are made."""

Row = tuple[str, str | list[str]]
"""A name and a value. A list is told with commas, and no line ends within one of its parts."""


class ExplanationPage:
    """An answer, and how it is to be told."""

    def __init__(
        self, found: ExplainResponse, waiting: PendingPod | None, *, shown: int | None, one_by_one: bool, wide: bool = False
    ) -> None:
        """`shown`: so many feasible nodes at most; None: all. `one_by_one`: rejected nodes are named, not counted."""
        self._found = found
        self._waiting = waiting
        feasible = [one for one in found.verdicts if not one.rejections]
        # The pod's own node comes first among its equals.
        feasible.sort(key=lambda verdict: (-verdict.total, verdict.node != found.node))
        self._feasible = feasible[:shown]
        self._n_left_out = len(feasible) - len(self._feasible)
        self._rejected = [one for one in found.verdicts if one.rejections]
        self._one_by_one = one_by_one
        self._wide = wide

    @property
    def has_scores(self) -> bool:
        return any(verdict.scores for verdict in self._feasible)

    def lines(self, pod: str, of: int) -> Iterator[str]:
        """`of`: so many nodes were asked for."""
        found, waiting = self._found, self._waiting
        yield from _block([("Pod", pod), ("Node", found.node or "<none>"), *_place(found, waiting)], "")
        if found.HasField("decision"):
            yield from ("", _decision_heading(found.decision), *_block(_decided(found.decision), _INDENT))
        elif found.node or (waiting is not None and waiting.attempts):
            yield from ("", "When it was placed: not remembered, by an earlier leader or too long ago")
        yield from ("", f"If it were placed now (revision {found.revision})", *_block(self._now(), _INDENT))
        if self.has_scores:
            yield from ("", *self._scores())
            if any(self._is_own(verdict) for verdict in self._feasible):
                yield from ("", f"{_INDENT}{_OWN} The pod is on this node.")
            if self._n_left_out:
                yield from ("", f"{_INDENT}{counted(self._n_left_out, 'more feasible node')} not shown; --nodes 0 shows all.")
        if self._rejected:
            yield from ("", *(self._rejections_by_node() if self._one_by_one else self._rejections()))
        told = len(self._feasible) + self._n_left_out + len(self._rejected)
        if told < of:
            yield from ("", f"{_INDENT}{counted(of - told, 'more node')} not shown; --nodes 0 shows all.")

    def _now(self) -> list[Row]:
        found = self._found
        if found.rejected:
            return [("Rejected", found.rejected)]
        rows: list[Row] = [("Feasible", f"{found.feasible} of {counted(found.nodes, 'node')}")]
        if len(found.best) == 1:
            rows.append(("Best", found.best[0]))
        elif found.best:
            rows.append(("Best", f"{len(found.best)} nodes with the same total, one is drawn: {_some(found.best)}"))
        return rows

    def _scores(self) -> Iterator[str]:
        """As many nodes side by side as fit, and then the next ones."""
        plugins = list(dict.fromkeys(score.plugin for verdict in self._feasible for score in verdict.scores))
        weights = {score.plugin: score.weight for verdict in self._feasible for score in verdict.scores}
        heads = [f"{plugin} x{weights[plugin]}" for plugin in plugins]
        first = max(len(head) for head in (*heads, "POINTS"))
        columns = [self._column(verdict, plugins) for verdict in self._feasible]
        while columns:
            count, used = 0, len(_INDENT) + first
            for column in columns:
                used += _GAP + max(map(len, column))
                if count and used > WIDTH:
                    break
                count += 1
            here, columns = columns[:count], columns[count:]
            sizes = [max(map(len, column)) for column in here]
            for number, head in enumerate(("POINTS", "total", *heads)):
                cells = "".join(" " * _GAP + column[number].rjust(size) for column, size in zip(here, sizes, strict=True))
                yield f"{_INDENT}{head.ljust(first)}{cells}"
            if columns:
                yield ""

    def _column(self, verdict: NodeVerdict, plugins: Sequence[str]) -> list[str]:
        by_plugin = {score.plugin: score for score in verdict.scores}
        name = shown(verdict.node) + _OWN * self._is_own(verdict)
        return [name, str(verdict.total), *(self._cell(by_plugin.get(plugin)) for plugin in plugins)]

    def _is_own(self, verdict: NodeVerdict) -> bool:
        return bool(self._found.node) and verdict.node == self._found.node

    def _cell(self, score: PluginScore | None) -> str:
        if score is None:
            return "-"
        return f"{score.weighted} ({score.normalized}, raw {score.raw})" if self._wide else str(score.weighted)

    def _rejections(self) -> Iterator[str]:
        """One row for all nodes that the same plugin rejects for the same reasons."""
        groups: dict[tuple[str, bool, str], int] = {}
        for verdict in self._rejected:
            for one in verdict.rejections:
                key = (one.plugin, one.resolvable, "; ".join(one.reasons))
                groups[key] = groups.get(key, 0) + 1
        rows = [
            [f"{_INDENT}{plugin}", counted(count, "node"), _help(resolvable)]
            for (plugin, resolvable, _), count in sorted(groups.items(), key=lambda group: -group[1])
        ]
        reasons = [reasons for _, _, reasons in sorted(groups, key=lambda key: -groups[key])]
        yield from _with_reasons([f"{_INDENT}REJECTED BY", "NODES", "PREEMPTION"], rows, reasons)
        if any(len(verdict.rejections) > 1 for verdict in self._rejected):
            yield from _wrapped(
                "A node that several plugins reject is counted at each of them, and when it was placed at the first alone.",
                _INDENT,
            )

    def _rejections_by_node(self) -> Iterator[str]:
        rows, reasons = [], []
        for verdict in self._rejected:
            for place, one in enumerate(verdict.rejections):
                rows.append([f"{_INDENT}{verdict.node}" if place == 0 else _INDENT, one.plugin, _help(one.resolvable)])
                reasons.append("; ".join(one.reasons))
        yield from _with_reasons([f"{_INDENT}NODE", "REJECTED BY", "PREEMPTION"], rows, reasons)


def _help(resolvable: bool) -> str:
    return "could help" if resolvable else "cannot help"


def _with_reasons(headings: list[str], rows: list[list[str]], reasons: list[str]) -> Iterator[str]:
    """Each row with its reason below it where that does not fit behind it."""
    sizes = widths(headings, rows)
    room = WIDTH - sum(sizes) - 3 * len(sizes)
    beside = all(len(shown(reason)) <= room for reason in reasons)
    yield table_line([*headings, "REASON"], [*sizes, 0]) if beside else table_line(headings, sizes)
    for row, reason in zip(rows, reasons, strict=True):
        if beside:
            yield table_line([*row, reason], [*sizes, 0])
        else:
            yield table_line(row, sizes)
            yield from _wrapped(shown(reason), _INDENT * 3)


def _place(found: ExplainResponse, waiting: PendingPod | None) -> list[Row]:
    rows: list[Row] = [("Nominated node", found.nominated_node)] if found.nominated_node else []
    return rows if waiting is None else [*rows, *waiting_rows(waiting)]


def _decision_heading(decision: PastDecision) -> str:
    when = "When it was placed" if decision.node else "When it was last tried"
    took = f", {decision.seconds * 1000:.2f} ms" if decision.seconds else ""
    return f"{when} (decision {decision.number}, seed {decision.seed}, revision {decision.revision}{took})"


def _decided(decision: PastDecision) -> Iterator[Row]:
    """The last attempt as it was."""
    if not decision.node:
        yield "Result", decision.message
        if decision.nominated_node:
            yield "Preempting", f"{counted(decision.victims, 'pod')} on node {decision.nominated_node}"
    elif decision.ties == 0:
        yield "Result", f"{decision.node}, to which the pod was nominated"
    else:
        yield "Result", decision.node + (f", drawn among {decision.ties} with the same total" if decision.ties > 1 else "")
        yield "Best nodes", _ranked(decision)
    if decision.rejections:
        rejected = sorted(decision.rejections.items(), key=lambda item: (-item[1], item[0]))
        told = [f"{plugin} {counted(count, 'node')}" for plugin, count in rejected]
        if decision.rejections_revision != decision.revision:
            told[-1] += f" (at revision {decision.rejections_revision})"
        yield "Rejected by", told


def _ranked(decision: PastDecision) -> list[str]:
    told = [f"{one.node} {one.total}" if one.HasField("total") else f"{one.node} alone" for one in decision.best]
    more = decision.ties - len(told)
    return [*told, f"{more} more with the same total"] if more > 0 else told


def group_lines(name: str, found: ExplainResponse, waiting: PendingPod | None) -> Iterator[str]:
    """A pod group: how many would fit now, and what stands against the next one."""
    group = found.group
    members = f"{group.bound} bound, {group.waiting} waiting; {group.min_count} needed"
    yield from _block([("Pod group", name), ("Members", members), *_place(found, waiting)], "")
    if group.held:
        yield from ("", *_block([("Held back", group.held)], ""))
        return
    if not group.waiting:
        return
    rows = [("Fit", f"{group.fit} of {counted(group.waiting, 'member')} that wait")]
    if group.domain:
        rows.append(("Domain", group.domain))
    if group.reason:
        rows.append(("Next", f"{group.next}: {group.reason}" if group.next else group.reason))
    if group.victims:
        rows.append(("Preemption", f"{counted(len(group.victims), 'pod')} would have to end: {_some(group.victims)}"))
    elif group.no_preemption:
        rows.append(("Preemption", group.no_preemption))
    yield from ("", f"If it were placed now (revision {found.revision})", *_block(rows, _INDENT))


def _block(rows: Sequence[Row] | Iterator[Row], indent: str) -> Iterator[str]:
    """Names and values, values wrapped."""
    found = list(rows)
    size = max(len(name) for name, _ in found) + 1
    for name, value in found:
        text = shown(value) if isinstance(value, str) else ", ".join(shown(part).replace(" ", _UNBROKEN) for part in value)
        lines = _wrapped(text, " " * (len(indent) + size + _GAP))
        first, *more = (line.replace(_UNBROKEN, " ") for line in lines)
        yield f"{indent}{f'{name}:'.ljust(size + _GAP)}{first.lstrip()}"
        yield from more


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [indent]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
