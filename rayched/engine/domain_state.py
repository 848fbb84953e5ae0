"""What counting plugins say, kept for as long as nothing that it depends on has changed.

    DomainState        a counting plugin and what its `count` gave for one key; one for all templates with that key
    DomainRejection    the rows that such a plugin rejects, over the whole table; by their domains where it tells these
    score_counted      the plugin's scores of the feasible rows, worked out at each decision

A state is stale as soon as any counter, term, namespace or workload has changed, or one of the aspects of nodes that the plugin
reads; the plugin brings it up to date from what it was. All of it is evaluated in this process: workers have no counters.

Cost: a comparison of two numbers while nothing has changed; else what the plugin takes for all rows, or for those of the domains
that changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np

from rayched.engine.cached_columns import BuildColumns, LogCursor
from rayched.engine.plugin_calls import call_count, call_filter, call_normalize_rows, call_refusals, call_score, out_of_range
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.scale import Scale, TotalColumn
from rayched.engine.score_caps import CapColumn
from rayched.framework.accelerated import DomainFilterPlugin
from rayched.framework.plugin import MAX_NODE_SCORE, CountingPlugin, CountingScorePlugin, FilterPlugin
from rayched.snapshot.change_log import FEW, ChangeLog
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.pod_counts import PodCounts
from rayched.snapshot.rows import Rows, Selection
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NodeTable


class DomainState(PreparedPlugin):
    """A counting plugin whose state is what it counted last, brought up to date when it is asked for."""

    __slots__ = (
        "_adds_nothing",
        "_counted",
        "_counted_revision",
        "_filter_version",
        "_follower",
        "_nodes_changed",
        "_revision",
        "_table",
        "_verdict",
        "updates",
    )

    def __init__(self, key: Hashable, plugin: CountingPlugin, state: Any, content: bytes, table: NodeTable) -> None:
        super().__init__(key, plugin, state, content)
        if not isinstance(table, Snapshot):
            raise TypeError(f'plugin "{plugin.name}" reads counters, which only a whole Snapshot has')
        self._table = table
        # Labels tell of nodes that come and go.
        self._follower = LogCursor(table, plugin.reads | Log.LABELS)
        self._revision = -1
        self._counted: Any = None
        self._counted_revision: Any = None
        self._adds_nothing: bool | None = None
        """What was counted last; None: nobody asked."""
        self._verdict: Any = None
        self._filter_version = 0
        self.updates = 0
        """How often it was counted."""
        self._nodes_changed = False
        """Since the verdict was asked for."""

    @property
    def counts(self) -> PodCounts:
        """What it is counted from."""
        return self._table.pod_counts

    @property
    def logs(self) -> tuple[ChangeLog, ...]:
        """What it goes by besides."""
        return self._follower.logs

    @property
    def n_bytes(self) -> int:
        return int(self._counted.n_bytes) if self._counted is not None else 0

    @property
    def state(self) -> Any:
        """Raises PluginError."""
        revision = self._table.pod_counts.revision
        behind = self._follower.is_behind()
        if behind or revision != self._revision:
            last, self._counted, self._revision = self._counted, None, -1
            counted = call_count(cast(CountingPlugin, self.plugin), self.prepared, self._table, last)
            if counted is not last:
                # Revisions and verdicts of two answers have nothing to do with each other.
                self._counted_revision = self._verdict = None
            self._counted, self._revision, self._adds_nothing = counted, revision, None
            self._follower.catch_up()
            self._nodes_changed |= behind
            self.updates += 1
        return self._counted

    @property
    def filter_version(self) -> int:
        """Grows whenever the filter may say something else. Raises PluginError."""
        counted = self.state
        if self._nodes_changed or counted.revision != self._counted_revision:
            self._counted_revision = counted.revision
            verdict = counted.verdict
            if self._nodes_changed or verdict != self._verdict:
                self._filter_version += 1
                self._verdict = verdict
            self._nodes_changed = False
        return self._filter_version

    def is_silent(self) -> bool:
        """Whether its score is known to add nothing now, whatever the rows."""
        if self._revision != self._table.pod_counts.revision or self._follower.is_behind():
            return False
        if self._adds_nothing is None:
            self._adds_nothing = bool(self._counted.adds_nothing)
        return self._adds_nothing


class DomainRejection(CapColumn):
    """What a counting filter says about all rows."""

    __slots__ = (
        "_asked",
        "_blocked",
        "_capped_version",
        "_codes",
        "_codes_version",
        "_plugin",
        "_positions",
        "_updates",
    )

    def __init__(self, key: Hashable, table: NodeTable, scale: Scale, asked: DomainState, *, by_domain: bool) -> None:
        """`by_domain`: the plugin tells which domains it refuses."""
        super().__init__(key, table, scale)
        self._asked = asked
        self._plugin = cast(DomainFilterPlugin, asked.plugin) if by_domain else None
        self._codes: CodeColumn | None = None
        self._codes_version = self._capped_version = -1
        """Of the filter, that `_codes` and the caps are of."""
        self._updates = -1
        """Those of the state for which the caps hold."""
        self._blocked: tuple[BlockedDomains, ...] = ()
        self._positions: list[tuple[int, int]] = []
        """For each of these the version of its topology and the position in its log."""

    @property
    def n_bytes(self) -> int:
        return super().n_bytes + (0 if self._codes is None else self._codes.nbytes)

    @property
    def asked(self) -> DomainState:
        return self._asked

    @property
    def logs(self) -> tuple[ChangeLog, ...]:
        """What it goes by besides counters."""
        return self._asked.logs

    @property
    def codes(self) -> CodeColumn | None:
        """Shape (n_rows,); None: nothing is rejected. Raises PluginError."""
        asked = self._asked
        state = asked.state
        if asked.filter_version != self._codes_version:
            self._codes_version = -1
            self._codes = call_filter(cast(FilterPlugin, asked.plugin), state, Rows(self.table, slice(0, self.table.n_rows)))
            self._codes_version = asked.filter_version
        return self._codes

    def refresh(self, build: BuildColumns) -> None:  # noqa: ARG002
        """Bring the caps up to date; only this process has counters, so nothing is built elsewhere. Raises PluginError."""
        asked = self._asked
        state = asked.state
        if asked.updates == self._updates:
            return
        self._updates = -1
        if self._plugin is None:
            self._refresh_by_codes()
        else:
            self._refresh_by_domain(call_refusals(self._plugin, state))
        self._updates = asked.updates

    def _refresh_by_codes(self) -> None:
        codes = self.codes
        if self._capped_version == self._codes_version:
            return
        column = None
        if codes is not None and codes.any():
            column = self._open()
            column[: self.table.n_rows][codes != 0] = self.scale.infeasible
        self._become(column)
        self._capped_version = self._codes_version

    def _refresh_by_domain(self, blocked: tuple[BlockedDomains, ...]) -> None:
        for one in blocked:
            if one.n_refused:
                break
        else:
            # Nothing is rejected, so nothing is kept up to date either.
            if self.column is not None:
                self._become(None)
            self._blocked = ()
            return
        if blocked != self._blocked or not self._follow():
            column = self._open()
            # Also rows that are no nodes yet: one that comes without the label does not show in the topology's version.
            self._write(column, slice(0, self.table.capacity), blocked)
            self._become(column)
            self._blocked = blocked
        self._positions = [(one.topology.version, one.log.end) for one in blocked]

    def _follow(self) -> bool:
        """Look at the rows of domains that changed. False: all rows are to be looked at."""
        changed: list[tuple[BlockedDomains, set[int]]] = []
        for one, (version, position) in zip(self._blocked, self._positions, strict=True):
            domains = one.log.since(position)
            if one.topology.version != version or domains is None or len(domains) > FEW:
                return False
            if domains:
                changed.append((one, set(domains)))
        assert self.column is not None
        for one, places in changed:
            for domain in places:
                rows = one.topology.rows_of(domain)
                if isinstance(rows, slice) and rows.stop - rows.start == 1:
                    self._write_row(self.column, rows.start)
                elif rows is not None:
                    self._write(self.column, rows, self._blocked)
                    self._note_all(rows)
        return True

    def _write_row(self, column: TotalColumn, row: int) -> None:
        """As `_write`, of a domain of one node: in plain integers a tenth of the time that arrays take."""
        is_refused = any(one.n_refused and one.refused.item(one.topology.column.item(row)) for one in self._blocked)
        cap = self.scale.infeasible if is_refused else self._highest
        if cap != column.item(row):
            column[row] = cap
            if row < self.table.n_rows:
                self._log.append(row)

    def _note_all(self, selection: Selection) -> None:
        """Rows of a domain, which may have another cap now."""
        if (selection.stop - selection.start if isinstance(selection, slice) else len(selection)) > FEW:
            self._log.cut()
            return
        rows = np.arange(selection.start, selection.stop) if isinstance(selection, slice) else selection
        self._note(rows[rows < self.table.n_rows])

    def _write(self, column: TotalColumn, selection: Selection, blocked: Sequence[BlockedDomains]) -> None:
        rejected: BoolColumn | None = None
        for one in blocked:
            if one.n_refused:
                here = one.refused[one.topology.column[selection]]
                rejected = here if rejected is None else rejected | here
        values = 0 if rejected is None else rejected * self.scale.below_open
        column[selection] = values + self.scale.open


def score_counted(asked: PreparedPlugin, rows: Rows) -> tuple[ScoreColumn, ScoreColumn] | None:
    """Raw and normalised scores of rows that are all the feasible ones; None: the plugin adds nothing. Shapes (rows,).

    Raises PluginError, also where a score lies outside 0..100.
    """
    plugin = cast(CountingScorePlugin, asked.plugin)
    state = asked.state
    raw = call_score(plugin, state, rows)
    if raw is None:
        return None
    scores = call_normalize_rows(plugin, state, rows, raw)
    if rows.n and (int(scores.min()) < 0 or int(scores.max()) > MAX_NODE_SCORE):
        outside = (scores < 0) | (scores > MAX_NODE_SCORE)
        raise out_of_range(plugin, int(scores[np.argmax(outside)]))
    return raw, scores
