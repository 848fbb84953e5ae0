"""Drops interned values and label columns that no node has any more.

Names of nodes, sets of images and labels come and go for as long as the cluster lives, and a number that was given once is not
taken back. So now and then values are numbered anew, without those that nobody has. The table's `generation` tells everybody who
has derived something from numbers.

Owner: one Snapshot. Cost: a few comparisons for a node that comes or changes; where values are dropped, a pass over all rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.columns import IdColumn, Log
from rayched.snapshot.interning import Interner
from rayched.snapshot.table import NO_VALUE, NodeTable

INTERNED_MIN: Final = 4_096
"""Interning tables of up to this many values are left alone."""
INTERNED_PER_PLACE_MAX: Final = 8
"""Values for each place they could stand in, above which values that no node has any more are dropped."""
LABEL_KEYS_MIN: Final = 256
"""So many label columns are kept even if no node has the label any more."""


class UnusedValues:
    """Of one table."""

    __slots__ = ("_label_keys_looked_at",)

    def __init__(self) -> None:
        self._label_keys_looked_at = LABEL_KEYS_MIN
        """Label columns that were left when some were dropped last."""

    def drop(self, table: NodeTable) -> None:
        """Drop them where they are many."""
        rows = table.n_rows
        if len(table.labels) > 2 * self._label_keys_looked_at:
            table.labels = {key: column for key, column in table.labels.items() if (column != NO_VALUE).any()}
            self._label_keys_looked_at = max(LABEL_KEYS_MIN, len(table.labels))
        if _is_crowded(len(table.label_interner), rows * len(table.labels)):
            _renumber(table, table.label_interner, list(table.labels.values()), Log.LABELS)
            table.forget_label_integers()
        if _is_crowded(len(table.taint_interner), rows):
            _renumber(table, table.taint_interner, [table.taint_set], Log.TAINTS)
        if _is_crowded(len(table.image_interner), rows):
            _renumber(table, table.image_interner, [table.image_set], Log.IMAGES)


def _renumber(table: NodeTable, interner: Interner[Any, Any], columns: list[IdColumn], aspect: Log) -> None:
    used = {int(number) for column in columns for number in np.unique(column)} - {NO_VALUE}
    old_length = len(interner)
    new_numbers: NDArray[np.int32] = np.full(old_length + 1, NO_VALUE, np.int32)
    for old, new in interner.keep(used).items():
        new_numbers[old] = new
    for column in columns:
        # NO_VALUE is -1 and so reads the last place, which says NO_VALUE again.
        column[:] = new_numbers[column]
    table.logs[aspect].cut()
    table.generation += 1


def _is_crowded(values: int, places: int) -> bool:
    return values > max(INTERNED_MIN, INTERNED_PER_PLACE_MAX * places)
