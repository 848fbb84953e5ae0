"""The engine: who is asked, about which rows, and whose answer counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayched.engine.engine import Engine
from rayched.framework.plugin_error import PluginError
from rayched.framework.status import Code
from rayched.snapshot import change_log, usage_states
from rayched.snapshot.columns import CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import TEMPLATES, Spy, a_snapshot, a_template
from tests.engine.toy_plugins import Rank, Room, a_profile, toy_profile
from tests.snapshot.objects import a_node, a_pod


@pytest.mark.row("K6.4")
def test_only_rows_that_changed_are_looked_at_again() -> None:
    labels, usage = Spy("Labels", Log.LABELS), Spy("Usage", Log.USAGE)
    snapshot = a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(labels, usage), scores=(labels, usage)))
    engine.evaluate(a_template())
    labels.asked_again(), usage.asked_again()
    engine.evaluate(a_template())
    assert labels.asked_again() == usage.asked_again() == []
    snapshot.bind("u", a_template(), "n3")
    engine.evaluate(a_template())
    assert labels.asked_again() == []
    assert usage.asked_again() == [("filter", [3]), ("score", [3])]
    snapshot.update_node(a_node("n5", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels={"rank": "9"}))
    engine.evaluate(a_template())
    assert labels.asked_again() == [("filter", [5]), ("score", [5])]
    engine.evaluate(a_template())
    assert labels.asked_again() == usage.asked_again() == []
    snapshot.update_node(a_node("n6", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels={"rank": "9"}))
    engine.evaluate(a_template())
    assert labels.asked_again() == [("filter", [6]), ("score", [6])]


def test_nodes_that_come_and_go_are_seen_even_if_no_plugin_reads_node_objects() -> None:
    snapshot = a_snapshot(2)
    engine = Engine(snapshot, a_profile(filters=(Room(),), scores=(Room(),)))
    assert engine.evaluate(a_template()).n_feasible == 2
    for number in range(2, 200):
        snapshot.add_node(a_node(f"n{number}"))
        if number % 40 == 0:
            assert engine.evaluate(a_template()).n_feasible == number + 1
    snapshot.remove_node("n150")
    assert engine.evaluate(a_template()).feasible.tolist() == [row != 150 for row in range(200)]


def test_a_plugin_may_begin_and_cease_to_answer() -> None:
    class Moody(Spy):
        silent = True

        def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
            return None if self.silent else np.where(rows.index == 4, int(Code.UNSCHEDULABLE), 0)

    for reads in (Log.USAGE, Log.LABELS):
        moody, snapshot = Moody(reads=reads), a_snapshot()
        engine = Engine(snapshot, a_profile(filters=(moody,)))
        for silent in (True, False, True):
            moody.silent = silent
            snapshot.update_node(a_node("n4", {"cpu": "4" if silent else "5", "pods": "9"}, labels={"rank": str(silent)}))
            assert engine.evaluate(a_template()).n_feasible == (10 if silent else 9)


def test_a_log_that_was_trimmed_or_that_is_too_long_has_all_rows_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "ENTRIES_MAX", 2)
    spy, snapshot = Spy("Usage", Log.USAGE | Log.PORTS), a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(spy,)))
    engine.evaluate(a_template())
    spy.asked_again()
    for rows in ([1, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5]):
        for number in rows:
            snapshot.bind("u", a_template(), f"n{number}")
            snapshot.unbind("u")
        engine.evaluate(a_template())
        assert spy.asked_again() == [("filter", list(range(10)))]


def test_a_state_that_was_seen_before_is_not_asked_about_again() -> None:
    usage, snapshot = Spy("Usage", Log.USAGE), a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(usage,), scores=(usage, Room())))
    totals = []
    for number in range(4):
        snapshot.bind(f"u{number}", a_template(), f"n{number}")
        evaluation = engine.evaluate(a_template())
        totals.append(evaluation.total.tolist())
    assert [rows for kind, rows in usage.asked if kind == "score"][1:] == [[1]], (
        "the first state is seen in full, the second once"
    )
    assert totals[-1] == [50 + 95] * 4 + [50 + 97] * 6


def test_states_are_equal_only_if_everything_that_usage_means_is() -> None:
    snapshot = a_snapshot(6)
    engine = Engine(snapshot, a_profile(filters=(Room(),), scores=(Room(),)))
    engine.evaluate(a_template())
    for name, requests in (("n0", {"cpu": "0"}), ("n1", {}), ("n2", {"cpu": "100m"}), ("n3", {"cpu": "0"})):
        # Nothing asked for counts as 100 milli-CPU in scores, an explicit 0 does not.
        snapshot.bind(name, TEMPLATES.intern(a_pod(requests)), name)
        engine.evaluate(a_template())
    snapshot.update_node(a_node("n4", {"cpu": "2", "memory": "8Gi", "pods": "10"}))
    assert engine.evaluate(a_template()).total.tolist() == [97, 95, 95, 97, 95, 97]


def test_a_score_out_of_range_is_never_remembered_as_a_good_one() -> None:
    class Odd(Spy):
        def score(self, state: Any, rows: Rows) -> ScoreColumn:
            super().score(state, rows)
            return np.where(rows.requested[0] > 0, 101, 50)

    spy, snapshot = Odd(reads=Log.USAGE), a_snapshot()
    engine = Engine(snapshot, a_profile(scores=(spy,)))
    engine.evaluate(a_template())
    for name in ("n1", "n2", "n3"):
        snapshot.bind("u", a_template(), name)
        with pytest.raises(PluginError, match="score 101 lies outside"):
            engine.evaluate(a_template())
    snapshot.unbind("u")
    engine.evaluate(a_template())
    spy.asked_again()
    assert engine.evaluate(a_template()).best_rows.tolist() == list(range(10))
    assert spy.asked_again() == []


def test_a_sum_that_never_sees_a_state_again_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_states, "STATES_MIN", 3)
    snapshot = a_snapshot(cpu="100")
    engine = Engine(snapshot, a_profile(filters=(Room(),), scores=(Room(),)))
    fresh = a_profile(filters=(Room(),), scores=(Room(),))
    for number in range(40):
        snapshot.bind(f"u{number}", a_template(f"{100 + number * 7 % 11}m"), f"n{number * 3 % 10}")
        assert engine.evaluate(a_template()).total.tolist() == Engine(snapshot, fresh).evaluate(a_template()).total.tolist()


def test_pods_with_equal_keys_share_columns() -> None:
    spy, snapshot = Spy(), a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(spy,), scores=(spy,)))
    engine.evaluate(a_template(app="a"))
    spy.asked_again()
    engine.evaluate(a_template(app="b"))
    assert spy.asked_again() == []
    engine.evaluate(a_template(key="other"))
    assert len(spy.asked_again()) == 2


@pytest.mark.row("K6.2")
def test_nobody_is_asked_for_a_score_while_at_most_one_node_is_feasible() -> None:
    spy, snapshot = Spy(), a_snapshot(3)
    engine = Engine(snapshot, a_profile(filters=(Room(),), scores=(spy,)))
    for number in range(3):
        snapshot.bind(f"u{number}", a_template("3950m"), f"n{number}")
    evaluation = engine.evaluate(a_template())
    assert (evaluation.n_feasible, evaluation.is_feasible, evaluation.best_rows.tolist()) == (0, False, [])
    snapshot.unbind("u1")
    evaluation = engine.evaluate(a_template())
    assert (evaluation.n_feasible, evaluation.is_feasible, evaluation.best_rows.tolist()) == (1, True, [1])
    assert evaluation.feasible.tolist() == [False, True, False]
    assert spy.asked == []
    snapshot.unbind("u2")
    assert engine.evaluate(a_template()).best_rows.tolist() == [1, 2]
    assert spy.asked != []


def test_a_key_of_none_and_an_answer_of_none_leave_a_plugin_out() -> None:
    class Silent(Spy):
        def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
            return None

        def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
            return None

    class Skipping(Spy):
        def key(self, pod: Pod) -> Any:
            return None

    silent, skipping, snapshot = Silent("Silent"), Skipping("Skipping"), a_snapshot(3)
    spy = Spy("Spy", Log.USAGE)
    profile = a_profile(filters=(silent, skipping, spy), scores=(silent, skipping, spy))
    engine = Engine(snapshot, profile)
    assert engine.evaluate(a_template()).total.tolist() == [50] * 3
    assert [columns.plugin for columns in engine.explain(a_template()).rows.scores] == ["Spy"]
    assert skipping.asked == []


def test_rows_that_nobody_may_use_are_neither_feasible_nor_part_of_the_bounds() -> None:
    snapshot = a_snapshot(4)
    engine = Engine(snapshot, a_profile(scores=(Rank(),)))
    template = a_template(factor="1")
    assert engine.evaluate(template).total.tolist() == [0, 33, 66, 100]
    evaluation = engine.evaluate(template, without=np.array([3], np.intp))
    assert evaluation.total[:3].tolist() == [0, 50, 100] and evaluation.feasible.tolist() == [True, True, True, False]
    assert engine.evaluate(template).total.tolist() == [0, 33, 66, 100]


def test_no_nodes_at_all_is_no_error() -> None:
    engine = Engine(Snapshot(), toy_profile())
    evaluation = engine.evaluate(a_template())
    assert not evaluation.is_feasible and evaluation.n_feasible == 0 and evaluation.total.shape == (0,)
    assert engine.diagnose(a_template()).message() == "no nodes available to schedule pods"
