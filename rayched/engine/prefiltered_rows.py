"""A template that PreFilter narrowed to a few nodes: which of their rows pass what bindings do not change, kept from pod to pod.

Such templates get no columns: each would need its own. So only the rows that are looked at are filtered, and those filters that
read nothing but node objects are asked again only when a node object changed.

Owner: one plan. Cost: the filters that read usage, ports or counters, over the rows that pass the others; 2 µs a row where these
come down to room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from rayched.engine.cached_columns import LogCursor
from rayched.engine.domain_state import DomainState
from rayched.engine.free_resources import FreeResources
from rayched.engine.plugin_calls import call_filter
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.row_evaluation import filter_rows
from rayched.framework.plugin import FilterPlugin
from rayched.framework.status import Code
from rayched.snapshot.change_log import FEW
from rayched.snapshot.columns import Log, RowIndex
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable


class PrefilteredRows:
    """The rows of one plan's nodes."""

    __slots__ = ("_changing", "_counted", "_follower", "_lasting", "_looked_at", "_passing", "_room", "_table")

    def __init__(
        self,
        table: NodeTable,
        filters: Sequence[PreparedPlugin],
        looked_at: Callable[[], RowIndex],
        changing: Log,
        room: FreeResources | None = None,
    ) -> None:
        """`looked_at` gives the rows of the nodes that PreFilter leaves, `changing` are the aspects that bindings change.

        `room`: what the only filter asks for that reads one of these, counting ones apart.
        """
        self._table = table
        self._room = room
        self._counted = [one for one in filters if isinstance(one, DomainState)]
        self._looked_at = looked_at
        self._changing = [one for one in filters if isinstance(one, DomainState) or one.plugin.reads & changing]
        self._lasting = [one for one in filters if one not in self._changing]
        reads = Log.LABELS
        for one in self._lasting:
            reads |= one.plugin.reads
        self._follower = LogCursor(table, reads)
        self._passing: RowIndex = np.zeros(0, np.intp)

    def feasible(self) -> RowIndex:
        """The rows that no filter rejects, ascending. Raises PluginError."""
        if self._follower.is_behind():
            rows = Rows(self._table, self._looked_at())
            self._passing = rows.index[filter_rows(self._lasting, rows).codes == Code.SUCCESS]
            self._follower.catch_up()
        if not len(self._passing):
            return self._passing
        room = self._room
        if room is not None and len(self._passing) <= FEW and self._are_counted_silent():
            fits = [room.fits(row) for row in self._passing.tolist()]
            return self._passing if all(fits) else self._passing[np.array(fits)]
        codes = filter_rows(self._changing, Rows(self._table, self._passing)).codes
        feasible: RowIndex = self._passing[codes == Code.SUCCESS]
        return feasible

    def _are_counted_silent(self) -> bool:
        """Whether no counting filter rejects anything now."""
        rows = Rows(self._table, self._passing)
        return all(call_filter(cast(FilterPlugin, one.plugin), one.state, rows) is None for one in self._counted)
