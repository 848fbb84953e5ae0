"""Calls of column plugins whose answers are checked: a plugin that raises, or answers what its contract forbids, is named.

Nothing but this module calls the methods of column plugins (`contract.COLUMN_METHODS`), so that no broken answer ever reaches a
cache. What is checked: type and shape of columns, codes, and that reasons cover what was rejected. Whether scores lie in 0..100
is the business of whoever knows which rows are feasible.

Cost: about 0.5 µs a call on one row; on many rows two passes over the answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rayched.framework.accelerated import DomainFilterPlugin, GroupingScorePlugin, ResourcePlugin, StackingPlugin
from rayched.framework.plugin import (
    MAX_NODE_SCORE,
    ColumnPlugin,
    CountingPlugin,
    CountingScorePlugin,
    FilterPlugin,
    NarrowingPlugin,
    NormalizingPlugin,
    ScorePlugin,
)
from rayched.framework.plugin_error import GroupedScoreError, PluginError
from rayched.framework.resource_needs import ResourceNeeds
from rayched.framework.status import Code, Status
from rayched.snapshot.columns import BoolColumn, CodeColumn, ScoreColumn
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Pod

PRE_FILTER: Final = "PreFilter"
FILTER: Final = "Filter"
PRE_SCORE: Final = "PreScore"
SCORE: Final = "Score"
NORMALIZE_SCORE: Final = "NormalizeScore"

_FILTER_CODES: Final = frozenset((Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE))
_HIGHEST_FILTER_CODE: Final = max(_FILTER_CODES)
_ALLOWED_BYTES: Final = bytes(sorted(_FILTER_CODES))
_BYTES_MAX: Final = 4_096
"""Of so many codes it is found out faster as bytes than with arrays whether all are allowed."""


def call_key(plugin: ColumnPlugin, pod: Pod) -> Hashable | None:
    try:
        key = plugin.key(pod)
        hash(key)
    except Exception as problem:
        raise _raised(plugin, PRE_FILTER, problem) from problem
    return key


def call_prepare(plugin: ColumnPlugin, pod: Pod) -> Any:
    try:
        return plugin.prepare(pod)
    except Exception as problem:
        raise _raised(plugin, PRE_FILTER, problem) from problem


def call_count(plugin: CountingPlugin, state: Any, cluster: Snapshot, last: Any) -> Any:
    try:
        return plugin.count(state, cluster, last)
    except Exception as problem:
        raise _raised(plugin, PRE_FILTER, problem) from problem


def call_narrow(plugin: NarrowingPlugin, state: Any) -> frozenset[str] | Status | None:
    try:
        answer: object = plugin.narrow(state)
    except Exception as problem:
        raise _raised(plugin, PRE_FILTER, problem) from problem
    if answer is None or isinstance(answer, frozenset):
        return answer
    if not isinstance(answer, Status):
        raise PluginError(plugin.name, PRE_FILTER, f"answered {_shown(answer)}, allowed are a frozenset of names, a Status, None")
    if answer.ok:
        return None
    if not answer.rejected:
        raise PluginError(plugin.name, PRE_FILTER, answer.message() or f"answered {answer.code.name}")
    return answer.by(plugin.name)


def call_stack(plugin: StackingPlugin, states: Sequence[Any]) -> Any:
    try:
        return plugin.stack(states)
    except Exception as problem:
        raise _raised(plugin, PRE_FILTER, problem) from problem


def call_filter(plugin: FilterPlugin, state: Any, rows: Rows, n_states: int | None = None) -> CodeColumn | None:
    """Shape (rows,), uint8; SUCCESS, UNSCHEDULABLE or UNSCHEDULABLE_AND_UNRESOLVABLE.

    `n_states`: the state stands for so many, and there is one row. Shape (n_states,).
    """
    n = rows.n if n_states is None else n_states
    try:
        codes = plugin.filter(state, rows)
    except Exception as problem:
        raise _raised(plugin, FILTER, problem) from problem
    if codes is None:
        return None
    _check_column(plugin, FILTER, codes, n)
    if n == 1:
        allowed = codes.item(0) in _FILTER_CODES
    elif n <= _BYTES_MAX and codes.dtype == np.uint8:
        allowed = not codes.tobytes().translate(None, _ALLOWED_BYTES)
    else:
        # The codes that filters may answer are 0, 2 and 3: in range, and not 1.
        allowed = n == 0 or (int(codes.min()) >= 0 and int(codes.max()) <= _HIGHEST_FILTER_CODE)
        allowed = allowed and not (codes == Code.ERROR).any()
    if not allowed:
        raise _not_allowed(plugin, min({int(code) for code in np.unique(codes)} - _FILTER_CODES))
    return codes.astype(np.uint8, copy=False)


def call_reasons(plugin: FilterPlugin, state: Any, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:
    """Each reason with its rows; every rejected row has one."""
    try:
        reasons = list(plugin.reasons(state, rows, codes))
    except Exception as problem:
        raise _raised(plugin, FILTER, problem) from problem
    unexplained = codes != Code.SUCCESS
    for reason, where in reasons:
        if not isinstance(reason, str) or np.shape(where) != (rows.n,):
            raise PluginError(plugin.name, FILTER, f"reason {_shown(reason)} does not come with a column of {rows.n} rows")
        unexplained = unexplained & ~where
    if unexplained.any():
        raise PluginError(plugin.name, FILTER, "rejected a row without a reason")
    return reasons


def call_score(plugin: ScorePlugin, state: Any, rows: Rows, n_states: int | None = None) -> ScoreColumn | None:
    """Raw scores. Shape (rows,), int64; `n_states` as for filters."""
    try:
        raw = plugin.score(state, rows)
    except Exception as problem:
        raise _raised(plugin, SCORE, problem) from problem
    if raw is None:
        return None
    _check_column(plugin, SCORE, raw, rows.n if n_states is None else n_states)
    return raw.astype(np.int64, copy=False)


def call_normalize(plugin: NormalizingPlugin, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
    """Scores meant to be 0..100. Shape of `raw`, int64.

    Raw values are moved into the bounds first: rows outside are not feasible, and a result out of range must not be theirs.
    """
    try:
        scores = plugin.normalize(np.minimum(np.maximum(raw, low), high), low, high)
    except Exception as problem:
        raise _raised(plugin, NORMALIZE_SCORE, problem) from problem
    _check_column(plugin, NORMALIZE_SCORE, scores, len(raw))
    return scores.astype(np.int64, copy=False)


def call_normalize_rows(plugin: CountingScorePlugin, state: Any, rows: Rows, raw: ScoreColumn) -> ScoreColumn:
    """Scores meant to be 0..100. Shape of `raw`, int64."""
    try:
        scores = plugin.normalize_rows(state, rows, raw)
    except Exception as problem:
        raise _raised(plugin, NORMALIZE_SCORE, problem) from problem
    _check_column(plugin, NORMALIZE_SCORE, scores, rows.n)
    return scores.astype(np.int64, copy=False)


def call_needs(plugin: ResourcePlugin, state: Any) -> ResourceNeeds | None:
    try:
        return plugin.needs(state)
    except Exception as problem:
        raise _raised(plugin, FILTER, problem) from problem


def call_refusals(plugin: DomainFilterPlugin, state: Any) -> tuple[BlockedDomains, ...]:
    try:
        return tuple(plugin.refusals(state))
    except Exception as problem:
        raise _raised(plugin, FILTER, problem) from problem


def call_groups(plugin: GroupingScorePlugin, state: Any) -> RowGroups | None:
    """Raises GroupedScoreError."""
    try:
        return plugin.groups(state)
    except Exception as problem:
        raise _raised(plugin, SCORE, problem, GroupedScoreError) from problem


def call_score_groups(
    plugin: GroupingScorePlugin, state: Any, groups: RowGroups, present: Sequence[int], feasible: BoolColumn
) -> Sequence[int] | None:
    """Scores of the groups that are present, in their order, 0..100. Raises GroupedScoreError."""
    try:
        scores = plugin.score_groups(state, groups, present, feasible)
    except Exception as problem:
        raise _raised(plugin, SCORE, problem, GroupedScoreError) from problem
    if scores is not None:
        if len(scores) != len(present):
            raise GroupedScoreError(plugin.name, SCORE, f"answered {len(scores)} scores for {len(present)} groups")
        for score in (min(scores), max(scores)) if scores else ():
            if not 0 <= score <= MAX_NODE_SCORE:
                raise out_of_range(plugin, score, GroupedScoreError)
    return scores


def out_of_range(plugin: ScorePlugin, score: int, kind: type[PluginError] = PluginError) -> PluginError:
    """A feasible row got this score, after normalisation."""
    point = NORMALIZE_SCORE if isinstance(plugin, NormalizingPlugin | CountingScorePlugin) else SCORE
    return kind(plugin.name, point, f"score {score} lies outside 0..{MAX_NODE_SCORE}")


def _not_allowed(plugin: ColumnPlugin, code: int) -> PluginError:
    return PluginError(plugin.name, FILTER, f"answered code {code}, allowed are {sorted(map(int, _FILTER_CODES))}")


def _check_column(plugin: ColumnPlugin, point: str, column: NDArray[Any], n: int) -> None:
    if not isinstance(column, np.ndarray) or column.shape != (n,) or column.dtype.kind not in "iu":
        raise PluginError(plugin.name, point, f"answered {_shown(column)}, expected an array of {n} integers")


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    return f"a {type(value).__name__}"


def _raised(plugin: ColumnPlugin, point: str, problem: Exception, kind: type[PluginError] = PluginError) -> PluginError:
    text = " ".join(str(problem).split())
    # A note says which node it was about, where that is known.
    notes = "".join(f" ({note})" for note in getattr(problem, "__notes__", ()))
    return kind(plugin.name, point, f"{type(problem).__name__}: {text}{notes}" if text else f"{type(problem).__name__}{notes}")
