"""Columns are what asking about all rows anew gives, and whoever follows logs is behind exactly while one of them went on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.engine import cached_columns, shards
from rayched.engine.cached_columns import (
    OUTSIDE,
    CachedColumn,
    FilterColumn,
    FinalScoreColumn,
    LogCursor,
    RawScoreColumn,
    as_scores,
    refresh_each,
)
from rayched.engine.prepared import Answer, ColumnKey, PluginHalf, PreparedPlugin, join
from rayched.engine.shards import ColumnBuilder
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.columns import CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import a_snapshot

N_ROWS = 20


class Told:
    """Answers with what the test wrote down for each row; None where that is nothing at all."""

    name = "Told"

    def __init__(self, reads: Log = Log.LABELS) -> None:
        self.reads = reads
        self.values: list[int] | None = [0] * N_ROWS
        self.asked: list[list[int]] = []

    def key(self, pod: Pod) -> Hashable | None:
        return ()

    def prepare(self, pod: Pod) -> Any:
        return ()

    def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
        answer = self.score(state, rows)
        return None if answer is None else (answer % 2 * 2).astype(np.uint8)

    def reasons(self, state: Any, rows: Rows, codes: CodeColumn) -> Any:
        return [("odd", codes != 0)]

    def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
        self.asked.append(rows.index.tolist())
        return None if self.values is None else np.array([self.values[row] for row in rows.index.tolist()], np.int64)

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        return raw - low

    def question(self, part: PluginHalf) -> ColumnKey:
        return ColumnKey(PreparedPlugin((self.name, part), self, (), b""), part)


def plain_scores(values: Sequence[int]) -> list[int]:
    return [value if 0 <= value <= 100 else OUTSIDE for value in values]


@pytest.mark.parametrize("seed", range(4))
def test_columns_follow_what_is_said_of_each_row(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CHUNK_ROWS", 7)
    monkeypatch.setattr(cached_columns, "BOUNDS_MAX", 2)
    random, plugin, snapshot = Random(seed), Told(), a_snapshot(N_ROWS)
    build, log = ColumnBuilder(snapshot, None).build, snapshot.logs[Log.LABELS]
    codes = FilterColumn("codes", snapshot, plugin.question(PluginHalf.FILTER))
    final = FinalScoreColumn("final", snapshot, plugin.question(PluginHalf.SCORE))
    raw = RawScoreColumn("raw", snapshot, plugin.question(PluginHalf.SCORE))
    kept: list[CachedColumn] = [codes, final, raw]
    assert not any(one.was_built or one.n_bytes for one in kept)
    for step in range(80):
        if plugin.values is None or random.random() < 0.1:
            # What answers None says so of all rows, and the other way round.
            plugin.values = None if random.random() < 0.5 else [random.randrange(101) for _ in range(N_ROWS)]
            log.cut()
        else:
            for row in random.sample(range(N_ROWS), random.choice((0, 1, 1, 2, 5, 15))):
                plugin.values[row] = random.choice((-1, 0, 50, 100, 101, 300, random.randrange(100)))
                log.append(row)
        if random.random() < 0.2:
            refresh_each(kept, build)
        for one in kept:
            one.refresh(build)
        values, what = plugin.values, f"seed {seed}, step {step}"
        if values is None:
            assert [codes.column, final.column, raw.column, raw.scaled((0, 1))] == [None] * 4, what
            assert final.n_outside == 0 and raw.bounds_over(np.arange(3)) == (0, 0), what
            assert [one.n_bytes for one in kept] == [0, 0, 0], what
            continue
        assert codes.column is not None and final.column is not None and raw.column is not None
        assert codes.column[:N_ROWS].tolist() == [value % 2 * 2 for value in values], what
        assert final.column[:N_ROWS].tolist() == plain_scores(values), what
        assert final.n_outside == plain_scores(values).count(OUTSIDE), what
        assert raw.column[:N_ROWS].tolist() == values, what
        some = np.array(random.sample(range(N_ROWS), 3), np.intp)
        assert raw.bounds_over(some) == (min(values[row] for row in some), max(values[row] for row in some)), what
        assert raw.bounds_over(some[:0]) == (0, 0), what
        low, high = random.choice(((0, 100), (-1, 300), (20, 60)))
        scaled = raw.scaled((low, high))
        assert scaled is not None, what
        assert scaled[:N_ROWS].tolist() == plain_scores([min(max(value, low), high) - low for value in values]), what
        assert raw.n_bytes <= snapshot.capacity * (8 + 2), what
        assert not codes.column[N_ROWS:].any() and len(codes.column) == snapshot.capacity, what


def test_a_row_that_changed_is_asked_about_once_and_alone() -> None:
    plugin, snapshot = Told(), a_snapshot(N_ROWS)
    build, log = ColumnBuilder(snapshot, None).build, snapshot.logs[Log.LABELS]
    column = FinalScoreColumn("final", snapshot, plugin.question(PluginHalf.SCORE))
    column.refresh(build)
    assert plugin.asked == [list(range(N_ROWS))] and column.was_built
    for rows, asked in (([], []), ([3], [[3]]), ([5, 2, 5], [[2, 5]]), ([1] * N_ROWS, [[1]])):
        plugin.asked.clear()
        for row in rows:
            log.append(row)
        column.refresh(build)
        column.refresh(build)
        assert plugin.asked == asked, rows


def test_a_plugin_that_raises_leaves_the_column_behind_and_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, snapshot = Told(), a_snapshot(N_ROWS)
    build, log = ColumnBuilder(snapshot, None).build, snapshot.logs[Log.LABELS]
    column = RawScoreColumn("raw", snapshot, plugin.question(PluginHalf.SCORE))
    column.refresh(build)
    column.scaled((0, 9))
    assert column.column is not None and plugin.values is not None
    before = column.column.copy()
    log.append(4)
    plugin.values[4] = 9
    broken = True

    def normalize(scores: ScoreColumn, low: int, high: int) -> ScoreColumn:
        if broken:
            raise ValueError("broken")
        return scores

    monkeypatch.setattr(plugin, "normalize", normalize)
    for _ in range(2):
        with pytest.raises(PluginError, match="NormalizeScore"):
            column.refresh(build)
        assert (column.column == before).all()
    broken = False
    column.refresh(build)
    assert column.column[4] == 9


# ------------------------------------------------------------------------------------------------------ following logs


@pytest.mark.parametrize("reads", [Log.USAGE, Log.USAGE | Log.PORTS, Log.LABELS | Log.TAINTS | Log.IMAGES])
@pytest.mark.parametrize("seed", range(3))
def test_a_follower_is_behind_while_any_of_its_logs_went_on_and_names_the_rows(seed: int, reads: Log) -> None:
    random, snapshot = Random(seed), a_snapshot(N_ROWS)
    follower, logs = LogCursor(snapshot, reads), snapshot.logs
    assert follower.is_behind() and follower.changed(N_ROWS) is None
    assert [follower.has_started, follower.position] == [False, -1]
    changed: set[int] | None = None
    for _ in range(200):
        match random.randrange(5):
            case 0:
                follower.catch_up()
                changed = set()
                assert follower.has_started
                if len(follower.logs) == 1:
                    assert follower.position == follower.logs[0].end
            case 1 | 2 | 3:
                aspect, row = random.choice(list(logs)), random.randrange(N_ROWS)
                logs[aspect].append(row)
                if aspect & reads and changed is not None:
                    changed.add(row)
            case 4 if random.random() < 0.2:
                aspect = random.choice(list(logs))
                logs[aspect].cut()
                if aspect & reads:
                    changed = None
        assert follower.is_behind() == (changed is None or bool(changed))
        found = follower.changed(N_ROWS)
        if found is None:
            # More than half of the rows, or nobody knows.
            assert changed is None or 2 * len(changed) > N_ROWS or len(changed) > 1
        else:
            assert changed is not None and found == sorted(changed)


def test_so_many_changed_rows_are_named_and_no_more() -> None:
    snapshot = a_snapshot(N_ROWS)
    for reads in (Log.USAGE, Log.USAGE | Log.PORTS):
        for n_changed, is_named in ((N_ROWS // 2, True), (N_ROWS // 2 + 1, False)):
            follower = LogCursor(snapshot, reads)
            follower.catch_up()
            for row in range(n_changed):
                snapshot.logs[Log.USAGE].append(row)
            assert follower.changed(N_ROWS) == (list(range(n_changed)) if is_named else None)
        follower.catch_up()
        for _ in range(N_ROWS + 1):
            snapshot.logs[Log.USAGE].append(7)
        assert follower.changed(N_ROWS) is None and follower.changed(N_ROWS + 1) == [7]


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("chunk", [1, 6, 7, 20, 100])
def test_answers_in_chunks_are_those_to_one_question(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CHUNK_ROWS", chunk)
    plugin, silent, snapshot = Told(), Told(), a_snapshot(N_ROWS)
    plugin.values, silent.values = list(range(N_ROWS)), None
    question, other = plugin.question(PluginHalf.SCORE), silent.question(PluginHalf.SCORE)
    answer, nothing = ColumnBuilder(snapshot, None).ahead((question, other))
    assert answer is not None and answer.tolist() == plugin.values and nothing is None
    assert [row for rows in plugin.asked for row in rows] == list(range(N_ROWS))
    assert {len(rows) for rows in plugin.asked[:-1]} <= {min(chunk, N_ROWS)}


def test_a_plugin_may_not_be_silent_about_some_rows_alone() -> None:
    ones = np.ones(2, np.int64)
    answers: list[Answer] = [ones, None]
    for part, point in ((PluginHalf.FILTER, "Filter"), (PluginHalf.SCORE, "Score")):
        with pytest.raises(PluginError, match=f'plugin "Told", {point}: answered None for some rows and a column for others'):
            join("Told", part, answers)
    assert join("Told", PluginHalf.SCORE, [None, None]) is None and join("Told", PluginHalf.SCORE, []) is None
    joined = join("Told", PluginHalf.SCORE, [ones, ones * 2])
    assert joined is not None and joined.tolist() == [1, 1, 2, 2]


def test_what_is_no_score_is_marked_whatever_its_lowest_byte_says() -> None:
    values = [0, 1, 100, 101, -1, 255, 256, 300, 2**40, -(2**40)]
    assert as_scores(np.array(values, np.int64)).tolist() == plain_scores(values)
