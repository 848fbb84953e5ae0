"""Rows with the pods that are nominated to them: pods without a node yet, for which preemption has made room somewhere.

A pod may only go where it fits both with the nominated pods of equal or higher priority, lest it take their room, and without
them, as they may never come. What the first of the two rejects has that reason.

Source: RunFilterPluginsWithNominatedPods of kube-scheduler 1.34. Cost: each filter once over the few rows concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from rayched.engine.prepared import PreparedPlugin
from rayched.engine.row_evaluation import Filtered, filter_rows
from rayched.engine.trial_rows import TrialRows, numbers_of
from rayched.framework.status import Code
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate

Nomination: TypeAlias = tuple[PodTemplate, int]
"""A pod's template, and the row of the node that it is nominated to."""


def with_nominated(table: NodeTable, nominated: Sequence[Nomination], among: RowIndex | None = None) -> Rows:
    """The rows that pods are nominated to, with these pods, ascending; only those `among` some rows where that is given."""
    wanted: RowIndex = np.array([row for _, row in nominated], np.intp)
    numbers: dict[PodTemplate, int] = {}
    ids = numbers_of([numbers.setdefault(template, len(numbers)) for template, _ in nominated])
    open_rows = table.alive
    if among is not None:
        open_rows = np.zeros(table.n_rows, np.bool_)
        open_rows[among] = True
    there = open_rows[wanted]
    rows, places = np.unique(wanted[there], return_inverse=True)
    trial = TrialRows.begin(table, rows, tuple(numbers))
    trial.put(places, ids[there], 1)
    return trial


def filter_nominated(
    table: NodeTable, filters: Sequence[PreparedPlugin], nominated: Sequence[Nomination], among: RowIndex | None = None
) -> tuple[Rows, Filtered]:
    """What filters say about rows with the pods that are nominated to them. Raises PluginError."""
    rows = with_nominated(table, nominated, among)
    return rows, filter_rows(filters, rows)


def rejected_with_nominated(table: NodeTable, filters: Sequence[PreparedPlugin], nominated: Sequence[Nomination]) -> RowIndex:
    """Rows that are not feasible because of pods that are nominated to them. Raises PluginError."""
    rows, filtered = filter_nominated(table, filters, nominated)
    rejected: RowIndex = rows.index[filtered.codes != Code.SUCCESS]
    return rejected
