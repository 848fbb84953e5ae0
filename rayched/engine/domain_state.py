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
from typing import Any, Final, cast

import numpy as np

from rayched.engine.cached_columns import LogCursor
from rayched.engine.column_store import CacheEntry
from rayched.engine.plugin_calls import call_count, call_filter, call_normalize_rows, call_refusals, call_score, out_of_range
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.usage_values import Scale, TotalColumn
from rayched.framework.accelerated import DomainFilterPlugin
from rayched.framework.plugin import MAX_NODE_SCORE, CountingPlugin, CountingScorePlugin, FilterPlugin
from rayched.snapshot.change_log import ChangeLog
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.pod_counts import PodCounts
from rayched.snapshot.rows import Rows, Selection
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NodeTable

FOLLOWED_MAX: Final = 16
"""More changed domains than this are not looked at one by one."""


class DomainState(PreparedPlugin):
    """A counting plugin whose state is what it counted last, brought up to date when it is asked for."""

    __slots__ = (
        "_adds_nothing",
        "_counted",
        "_counted_revision",
        "_follower",
        "_nodes_changed",
        "_revision",
        "_table",
        "_verdict",
        "_verdicts",
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
        self._verdicts = 0
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
        return self._counted

    @property
    def verdicts(self) -> int:
        """Grows whenever the filter may say something else. Raises PluginError."""
        counted = self.state
        if self._nodes_changed or counted.revision != self._counted_revision:
            self._counted_revision = counted.revision
            verdict = counted.verdict
            if self._nodes_changed or verdict != self._verdict:
                self._verdicts += 1
                self._verdict = verdict
            self._nodes_changed = False
        return self._verdicts

    def is_silent(self) -> bool:
        """Whether its score is known to add nothing now, whatever the rows."""
        if not self._is_current():
            return False
        if self._adds_nothing is None:
            self._adds_nothing = bool(self._counted.adds_nothing)
        return self._adds_nothing

    def _is_current(self) -> bool:
        return self._revision == self._table.pod_counts.revision and not self._follower.is_behind()


class DomainRejection(CacheEntry):
    """What a counting filter says about all rows."""

    __slots__ = (
        "_asked",
        "_ceilings",
        "_codes",
        "_codes_version",
        "_plugin",
        "_positions",
        "_refusals",
        "_scale",
        "_seen",
        "_table",
        "version",
    )

    def __init__(self, key: Hashable, table: NodeTable, scale: Scale, asked: DomainState, *, by_domain: bool) -> None:
        """`by_domain`: the plugin tells which domains it refuses."""
        super().__init__(key)
        self._table = table
        self._scale = scale
        self._asked = asked
        self._plugin = cast(DomainFilterPlugin, asked.plugin) if by_domain else None
        self._codes: CodeColumn | None = None
        self._codes_version = -1
        self._seen = -1
        self.version = 0
        """Grows whenever `ceilings` may say something else than the last time."""
        self._ceilings: TotalColumn | None = None
        self._refusals: tuple[BlockedDomains, ...] = ()
        self._positions: list[tuple[int, int]] = []
        """For each of the refusals the version of its topology and the position in its log."""

    @property
    def n_bytes(self) -> int:
        return sum(column.nbytes for column in (self._codes, self._ceilings) if column is not None)

    @property
    def asked(self) -> DomainState:
        return self._asked

    @property
    def codes(self) -> CodeColumn | None:
        """Shape (n_rows,); None: nothing is rejected. Raises PluginError."""
        asked = self._asked
        state = asked.state
        if asked.verdicts != self._codes_version:
            self._codes_version = -1
            self._codes = call_filter(cast(FilterPlugin, asked.plugin), state, Rows(self._table, slice(0, self._table.n_rows)))
            self._codes_version = asked.verdicts
        return self._codes

    def ceilings(self) -> TotalColumn | None:
        """The highest total that each row may have: `infeasible` where the filter rejects it, else more than any total.

        Shape (capacity,); None: nothing is rejected. Raises PluginError.
        """
        if self._plugin is None:
            codes = self.codes
            if self._seen != self._codes_version:
                rejected = None if codes is None else codes != 0
                self._ceilings = None if rejected is None or not rejected.any() else self._open()
                if self._ceilings is not None:
                    self._ceilings[: self._table.n_rows][rejected] = self._scale.infeasible
                self._seen = self._codes_version
                self.version += 1
            return self._ceilings
        refusals = call_refusals(self._plugin, self._asked.state)
        for one in refusals:
            if one.n_refused:
                break
        else:
            # Nothing is rejected, so nothing is kept up to date either.
            self.version += bool(self._refusals)
            self._refusals = ()
            return None
        if refusals != self._refusals or not self._follow():
            self._ceilings = self._open() if self._ceilings is None else self._ceilings
            # Also rows that are no nodes yet: one that comes without the label does not show in the topology's version.
            self._write(slice(0, self._table.capacity), refusals)
            self.version += 1
            self._refusals = refusals
        self._positions = [(one.topology.version, one.log.end) for one in refusals]
        return self._ceilings

    def _follow(self) -> bool:
        """Look at the rows of domains that changed. False: all rows are to be looked at."""
        changed: list[tuple[BlockedDomains, set[int]]] = []
        for one, (version, position) in zip(self._refusals, self._positions, strict=True):
            domains = one.log.since(position)
            if one.topology.version != version or domains is None or len(domains) > FOLLOWED_MAX:
                return False
            if domains:
                changed.append((one, set(domains)))
        for one, places in changed:
            for domain in places:
                rows = one.topology.rows_of(domain)
                if rows is not None:
                    self._write(rows, self._refusals)
        self.version += bool(changed)
        return True

    def _write(self, selection: Selection, refusals: Sequence[BlockedDomains]) -> None:
        assert self._ceilings is not None
        rejected: BoolColumn | None = None
        for one in refusals:
            if one.n_refused:
                here = one.refused[one.topology.column[selection]]
                rejected = here if rejected is None else rejected | here
        values = 0 if rejected is None else rejected * self._scale.below_open
        self._ceilings[selection] = values + self._scale.open

    def _open(self) -> TotalColumn:
        return np.full(self._table.capacity, self._scale.open, self._scale.dtype)


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
