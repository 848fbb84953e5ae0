"""What pods take up on each node, for whoever follows it: all rows once, then those that changed since.

How far somebody has got is a position, a text that they give back. It means something for one table, in one generation of its
rows; of any other text all rows come. Rows that change while all of them are given, in several answers, come again at the end.

Pure. Cost: linear in the rows that are given, at most ROWS_MAX, a copy of three columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from rayched.snapshot.columns import ResourceTable, RowIndex
from rayched.snapshot.table import CPU, MEMORY, PODS, NodeTable

ROWS_MAX: Final = 10_000
"""In one answer: with the longest names there are it is 2.6 MB."""
_ALWAYS: Final = (CPU, MEMORY, PODS)
_DIGITS_MAX: Final = 20
_ALL_GIVEN: Final = "-"


@dataclass(frozen=True, slots=True)
class AllocatedRows:
    """Some nodes, and of each milli-CPU, bytes of memory, the number of its pods, and other resources that were asked for."""

    position: str
    """After these."""
    begins_anew: bool
    """These are the first ones of all; what was given before counts no more."""
    more: bool
    """There are more already."""
    names: tuple[str, ...]
    amounts: ResourceTable
    """Shape (3 + others, names)."""


class _Position(NamedTuple):
    """`end` of the log of usage when all rows began; `row`: the next one of all, None when all were given."""

    end: int
    row: int | None


def allocated_rows(
    table: NodeTable, incarnation: str, position: str, others: Sequence[str] = (), rows_max: int = ROWS_MAX
) -> AllocatedRows:
    """What comes after a position. `incarnation` is the table's own, and no other's; it has no dot. `others`: resources."""
    own = f"{incarnation}.{table.generation}"
    after, begins_anew = _read(position, own, table), False
    if after is not None and after.row is None:
        changed = table.usage_log.since(after.end)
        rows = None if changed is None else np.unique(np.array(changed, np.intp))
        if rows is not None and len(rows) <= rows_max:
            return _answer(table, rows, others, f"{own}.{table.usage_log.end}.{_ALL_GIVEN}", begins_anew=False, more=False)
        # So many that all of them are as well given anew.
        after = None
    if after is None:
        after, begins_anew = _Position(table.usage_log.end, 0), True
    begin = after.row or 0
    stop = min(begin + rows_max, table.n_rows)
    more = stop < table.n_rows
    rest = stop if more else _ALL_GIVEN
    rows = np.arange(begin, stop, dtype=np.intp)
    return _answer(table, rows, others, f"{own}.{after.end}.{rest}", begins_anew=begins_anew, more=more)


def _answer(
    table: NodeTable, rows: RowIndex, others: Sequence[str], position: str, *, begins_anew: bool, more: bool
) -> AllocatedRows:
    rows = rows[table.alive[rows]]
    names = tuple([table.names[row] for row in rows.tolist()])
    places = [*_ALWAYS, *(table.resources.get(name) for name in others)]
    # A resource that the table does not know is taken up nowhere.
    nothing = np.zeros(len(rows), np.int64)
    amounts = np.stack([nothing if place is None else table.requested[place][rows] for place in places])
    return AllocatedRows(position, begins_anew, more, names, amounts)


def _read(text: str, own: str, table: NodeTable) -> _Position | None:
    """None: it is no position in this table."""
    of_table, _, rest = text.rpartition(".")
    of_table, _, end = of_table.rpartition(".")
    if of_table != own or not _is_number(end) or not (rest == _ALL_GIVEN or _is_number(rest)):
        return None
    found = _Position(int(end), None if rest == _ALL_GIVEN else int(rest))
    return found if found.end <= table.usage_log.end and (found.row or 0) <= table.n_rows else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
