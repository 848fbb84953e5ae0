"""What counting plugins say, kept for as long as nothing that it depends on has changed.

    CountedAsked       a counting plugin and what its `count` gave for one key; one for all templates with that key
    CountedRejection   the rows that such a plugin rejects, over the whole table
    score_counted      the plugin's scores of the feasible rows, worked out at each decision

A state is stale as soon as any counter, term, namespace or workload has changed, or one of the aspects of nodes that the plugin
reads; the plugin brings it up to date from what it was. All of it is evaluated in this process: workers have no counters.

Cost: a comparison of two numbers while nothing has changed; else what the plugin takes for all rows.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import numpy as np

from rayched.framework.column_store import SharedEntry
from rayched.framework.kept_columns import Follower
from rayched.framework.plugin import MAX_NODE_SCORE, CountingPlugin, CountingScorePlugin, FilterPlugin
from rayched.framework.plugin_calls import call_count, call_filter, call_normalize_rows, call_score, out_of_range
from rayched.framework.questions import Asked
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NodeTable


class CountedAsked(Asked):
    """A counting plugin whose state is what it counted last, brought up to date when it is asked for."""

    __slots__ = (
        "_counted",
        "_counted_revision",
        "_follower",
        "_revision",
        "_silent",
        "_table",
        "_verdict",
        "verdicts",
        "version",
    )

    def __init__(self, key: Hashable, plugin: CountingPlugin, state: Any, content: bytes, table: NodeTable) -> None:
        super().__init__(key, plugin, state, content)
        if not isinstance(table, Snapshot):
            raise TypeError(f'plugin "{plugin.name}" reads counters, which only a whole Snapshot has')
        self._table = table
        # Labels tell of nodes that come and go.
        self._follower = Follower(table, plugin.reads | Log.LABELS)
        self._revision = -1
        self._counted: Any = None
        self._counted_revision: Any = None
        self._verdict: Any = None
        self.verdicts = 0
        """Grows whenever the filter may say something else."""

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
            self._counted, self._revision = counted, revision
            self._follower.catch_up()
            if behind or counted.revision != self._counted_revision:
                self._counted_revision = counted.revision
                verdict = counted.verdict
                if behind or verdict != self._verdict:
                    self.verdicts += 1
                    self._verdict = verdict
        return self._counted

    def is_silent(self) -> bool:
        """Whether its score is known to add nothing now, whatever the rows."""
        return self._is_current() and bool(self._counted.adds_nothing)

    def _is_current(self) -> bool:
        return self._revision == self._table.pod_counts.revision and not self._follower.is_behind()


class CountedRejection(SharedEntry):
    """Codes of a counting filter for all rows."""

    __slots__ = ("_asked", "_codes", "_rejected", "_table", "_version")

    def __init__(self, key: Hashable, table: NodeTable, asked: CountedAsked) -> None:
        super().__init__(key)
        self._table = table
        self._asked = asked
        self._version = -1
        self._codes: CodeColumn | None = None
        self._rejected: BoolColumn | None = None

    @property
    def n_bytes(self) -> int:
        return 0 if self._codes is None else 2 * self._codes.nbytes

    @property
    def codes(self) -> CodeColumn | None:
        """Shape (n_rows,); None: nothing is rejected. Raises PluginError."""
        self._refresh()
        return self._codes

    @property
    def rejected(self) -> BoolColumn | None:
        """Where the codes are not SUCCESS. Shape (n_rows,); None: nowhere. Raises PluginError."""
        self._refresh()
        return self._rejected

    def _refresh(self) -> None:
        asked = self._asked
        state = asked.state
        if asked.verdicts != self._version:
            self._version = -1
            self._codes = call_filter(cast(FilterPlugin, asked.plugin), state, Rows(self._table, slice(0, self._table.n_rows)))
            rejected = None if self._codes is None else self._codes != 0
            self._rejected = rejected if rejected is not None and rejected.any() else None
            self._version = asked.verdicts


def score_counted(asked: Asked, rows: Rows) -> tuple[ScoreColumn, ScoreColumn] | None:
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
