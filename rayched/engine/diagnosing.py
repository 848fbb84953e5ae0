"""A Diagnosis from the codes that filters gave: the first failing filter of each node, its reasons counted.

Cost: a few passes over the codes, and the filters' `reasons` on the rows they reject.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from rayched.engine.evaluation import PluginColumns, RowReason
from rayched.engine.plugin_calls import call_reasons
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.row_evaluation import Filtered
from rayched.framework.diagnosis import Diagnosis, left_out_by
from rayched.framework.plugin import FilterPlugin
from rayched.framework.status import SUCCESS, Code, Status
from rayched.snapshot.columns import CodeColumn, RowIndex
from rayched.snapshot.rows import Rows, compact


def rejected_outright(n_nodes: int, n_rows: int, status: Status, narrowing: Iterable[str]) -> Diagnosis:
    """PreFilter rejected the pod: every node has that status."""
    plugins = {status.plugin} - {""}
    pending = plugins if status.code is Code.PENDING else set[str]()
    return Diagnosis(
        n_nodes=n_nodes,
        pre_filter=status,
        reasons={},
        unschedulable_plugins=frozenset(narrowing) | plugins - pending,
        pending_plugins=frozenset(pending),
        codes=np.full(n_rows, status.code, np.uint8),
        failing=np.full(n_rows, -1, np.int16),
        rejections={status.plugin: n_nodes} if status.plugin else {},
    )


def diagnose_rows(
    rows: Rows,
    filters: Sequence[PreparedPlugin],
    columns: Sequence[CodeColumn | None],
    narrowing: Sequence[str],
    as_nominated: tuple[Rows, Filtered] | None = None,
) -> Diagnosis:
    """Count the reasons of the first failing filter of each row.

    `rows` are the nodes that were looked at, `columns` the codes of each filter over the whole table. Where `narrowing` names
    plugins, the nodes that are not among `rows` were left out by them. `as_nominated` are some of `rows` with the pods that are
    nominated to them: where that is rejected, it is what counts.
    """
    table = rows.snapshot
    codes = np.zeros(table.n_rows, np.uint8)
    failing = np.full(table.n_rows, -1, np.int16)
    counts: dict[str, int] = {}
    rejecting = set(narrowing)
    rejections: dict[str, int] = {}
    remaining = np.zeros(table.n_rows, np.bool_)
    remaining[rows.index] = True
    if as_nominated is not None:
        would_be, filtered = as_nominated
        for place, asked in enumerate(filters):
            found = (filtered.failing == place).nonzero()[0]
            if len(found):
                refused = would_be.only(found)
                codes[refused.index], failing[refused.index] = filtered.codes[found], place
                remaining[refused.index] = False
                rejecting.add(asked.plugin.name)
                rejections[asked.plugin.name] = len(found)
                _count(asked, refused, filtered.codes[found], counts)
    for place, (asked, column) in enumerate(zip(filters, columns, strict=True)):
        if column is None:
            continue
        rejects = remaining & (column[: table.n_rows] != Code.SUCCESS)
        at: RowIndex = rejects.nonzero()[0]
        if not len(at):
            continue
        remaining ^= rejects
        rejected = Rows(table, compact(at))
        rejection: CodeColumn = column[rejected.selection]
        codes[rejected.selection], failing[rejected.selection] = rejection, place
        rejecting.add(asked.plugin.name)
        rejections[asked.plugin.name] = rejections.get(asked.plugin.name, 0) + len(at)
        _count(asked, rejected, rejection, counts)
    if narrowing:
        left_out = table.alive.copy()
        left_out[rows.index] = False
        codes[left_out] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        # Counted as kube-scheduler does: all nodes but those that a filter rejected.
        count = table.n_nodes - (rows.n - int(np.count_nonzero(remaining)))
        if count:
            counts[left_out_by(narrowing)] = count
            rejections[", ".join(sorted(narrowing))] = count
    return Diagnosis(
        n_nodes=table.n_nodes,
        pre_filter=SUCCESS,
        reasons=counts,
        unschedulable_plugins=frozenset(rejecting),
        pending_plugins=frozenset(),
        codes=codes,
        failing=failing,
        filters=tuple(asked.plugin.name for asked in filters),
        rejections=rejections,
    )


def _count(asked: PreparedPlugin, rejected: Rows, codes: CodeColumn, counts: dict[str, int]) -> None:
    for reason, where in call_reasons(cast(FilterPlugin, asked.plugin), asked.state, rejected, codes):
        count = int(np.count_nonzero(where))
        if count:
            counts[reason] = counts.get(reason, 0) + count


def row_reasons(
    filters: Sequence[PreparedPlugin], rows: Rows, columns: Sequence[PluginColumns], *, nominated: bool = False
) -> list[RowReason]:
    """The reasons of every filter for all of these rows that it rejects; `columns` are the filters' codes over the rows."""
    found = []
    for asked, column in zip(filters, columns, strict=True):
        rejected = np.zeros(0, np.intp) if column.codes is None else (column.codes != Code.SUCCESS).nonzero()[0]
        if column.codes is None or not len(rejected):
            continue
        refused = rows.only(rejected)
        for reason, where in call_reasons(cast(FilterPlugin, asked.plugin), asked.state, refused, column.codes[rejected]):
            if where.any():
                found.append(RowReason(asked.plugin.name, reason, refused.index[where], column.codes[rejected][where], nominated))
    return found
