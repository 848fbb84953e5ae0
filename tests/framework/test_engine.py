"""The engine: who is asked, about which rows, what happens when a plugin is broken, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rayched.framework import shards, usage_sum
from rayched.framework.engine import Engine, PluginError
from rayched.framework.questions import Answer
from rayched.framework.shards import ColumnRequest
from rayched.framework.status import Code, unresolvable
from rayched.framework.usage_sum import scale_for
from rayched.snapshot import change_log
from rayched.snapshot.columns import CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows, WhatIfRows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Pod
from tests.framework.toy_plugins import Cordon, Images, Named, OddNames, Rank, Room, Taints, a_profile, toy_profile
from tests.snapshot.objects import a_node, a_pod

TEMPLATES = TemplateTable()


def a_snapshot(n_nodes: int = 10, cpu: str = "4") -> Snapshot:
    snapshot = Snapshot()
    for number in range(n_nodes):
        snapshot.add_node(
            a_node(
                f"n{number}",
                {"cpu": cpu, "memory": "8Gi", "pods": "10"},
                labels={"rank": str(number % 4), "zone": "xy"[number % 2]},
            )
        )
    return snapshot


def a_template(cpu: str = "100m", **labels: str) -> PodTemplate:
    return TEMPLATES.intern(a_pod({"cpu": cpu}, labels=labels))


class Spy:
    """A plugin whose answers are set by the test, and who notes what it is asked."""

    def __init__(self, name: str = "Spy", reads: Log = Log.LABELS) -> None:
        self.name = name
        self.reads = reads
        self.code = 0
        self.value = 50
        self.asked: list[tuple[str, list[int]]] = []
        self.failing_rows: set[int] = set()

    def key(self, pod: Pod) -> Any:
        return pod.metadata.labels.get("key", "")

    def prepare(self, pod: Pod) -> Any:
        return None

    def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
        self.asked.append(("filter", rows.index.tolist()))
        return np.full(rows.n, self.code, np.uint8)

    def reasons(self, state: Any, rows: Rows, codes: CodeColumn) -> Any:
        return [("no", codes != 0)]

    def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
        self.asked.append(("score", rows.index.tolist()))
        if self.failing_rows & set(rows.index.tolist()):
            raise RuntimeError("broken\nfor this row")
        return np.full(rows.n, self.value, np.int64)

    def asked_again(self) -> list[tuple[str, list[int]]]:
        asked, self.asked = self.asked, []
        return asked


class NormalizingSpy(Spy):
    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        self.asked.append((f"normalize {low}..{high}", []))
        return raw


# ---------------------------------------------------------------------------------------------------------- who is asked


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


def test_a_sum_that_never_sees_a_state_again_stops_looking_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_sum, "PROBES", 4)
    monkeypatch.setattr(usage_sum, "PAUSE_ROWS", 3)
    monkeypatch.setattr(usage_sum, "STATES_MAX", 3)
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


# ------------------------------------------------------------------------------------------------------- broken plugins


@pytest.mark.row("K6.4")
@pytest.mark.parametrize("spy", [Spy(), Spy(reads=Log.USAGE), NormalizingSpy(), NormalizingSpy(reads=Log.USAGE)])
@pytest.mark.parametrize("value", [101, -1, 300, 2**40])
def test_a_score_out_of_range_on_a_feasible_node_is_an_error_that_names_the_plugin(spy: Spy, value: int) -> None:
    point = "NormalizeScore" if isinstance(spy, NormalizingSpy) else "Score"
    spy.asked.clear()
    spy.value = value
    snapshot = a_snapshot()
    engine = Engine(snapshot, a_profile(scores=(spy,)))
    for _ in range(2):
        with pytest.raises(PluginError, match=rf'^plugin "Spy", {point}: score {value} lies outside 0\.\.100$'):
            engine.evaluate(a_template())
    spy.value = 50
    for number in range(10):
        snapshot.update_node(a_node(f"n{number}", {"cpu": "5", "pods": "10"}, labels={"rank": "0"}))
    assert engine.evaluate(a_template()).total.tolist() == [50] * 10


@pytest.mark.parametrize("reads", [Log.LABELS, Log.USAGE])
@pytest.mark.parametrize("kind", [Spy, NormalizingSpy])
def test_a_score_out_of_range_on_a_node_that_is_not_feasible_is_nobodys_business(kind: type[Spy], reads: Log) -> None:
    class Odd(kind):  # type: ignore[misc, valid-type]
        def score(self, state: Any, rows: Rows) -> ScoreColumn:
            return np.where(rows.index == 3, np.int64(-70), rows.index.astype(np.int64))

    snapshot = a_snapshot()
    snapshot.update_node(a_node("n3", {"cpu": "4", "pods": "10"}, unschedulable=True))
    engine = Engine(snapshot, a_profile(filters=(Cordon(),), scores=(Odd("Odd", reads),)))
    for _ in range(2):
        evaluation = engine.evaluate(a_template())
        assert evaluation.total[evaluation.feasible].tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    snapshot.update_node(a_node("n3", {"cpu": "4", "pods": "10"}))
    with pytest.raises(PluginError, match="score -70 lies outside"):
        engine.evaluate(a_template())


def test_a_score_that_leaves_the_range_when_its_node_changes_is_an_error() -> None:
    class Number(Spy):
        def score(self, state: Any, rows: Rows) -> ScoreColumn:
            return rows.label_int("rank")[0]

    snapshot = a_snapshot()
    engine = Engine(snapshot, a_profile(scores=(Number(),)))
    assert engine.evaluate(a_template()).best == 3
    snapshot.update_node(a_node("n5", labels={"rank": "101"}))
    with pytest.raises(PluginError, match="score 101 lies outside"):
        engine.evaluate(a_template())
    snapshot.update_node(a_node("n5", labels={"rank": "100"}))
    assert engine.evaluate(a_template()).best == 100


def test_normalisation_never_sees_a_raw_score_beyond_its_bounds() -> None:
    beyond: list[tuple[int, int]] = []

    class Strict(Rank):
        def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
            beyond.extend((low, high) for score in raw.tolist() if not low <= score <= high)
            return super().normalize(raw, low, high)

    snapshot = a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(Room(),), scores=(Strict(),)))
    template = a_template(factor="1")
    engine.evaluate(template)
    for number in (3, 7, 0, 4, 8):
        snapshot.bind(f"u{number}", a_template("3950m"), f"n{number}")
        engine.evaluate(template)
    assert engine.evaluate(template).total[[1, 2, 5, 6, 9]].tolist() == [0, 100, 0, 100, 0]
    assert beyond == []


@pytest.mark.row("K6.3")
@pytest.mark.parametrize("reads", [Log.LABELS, Log.USAGE])
def test_a_plugin_that_raises_ends_the_attempt_and_spoils_nothing(reads: Log) -> None:
    spy, snapshot = Spy(reads=reads), a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(Room(),), scores=(spy, Room(), Rank())))
    template = a_template(factor="1")
    before = engine.evaluate(template).total.tolist()
    spy.failing_rows = {4}
    for _ in range(2):
        snapshot.update_node(a_node("n4", {"cpu": "8", "pods": "10"}, labels={"rank": "9"}))
        snapshot.bind("u", template, "n4")
        with pytest.raises(PluginError, match=r'^plugin "Spy", Score: RuntimeError: broken for this row$') as caught:
            engine.evaluate(template)
        assert caught.value.plugin == "Spy" and caught.value.point == "Score"
        snapshot.unbind("u")
        snapshot.update_node(a_node("n4", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels={"rank": "0", "zone": "x"}))
    spy.failing_rows = set()
    assert engine.evaluate(template).total.tolist() == before
    # A node that is not feasible is not asked for its score, so it cannot end an attempt.
    spy.failing_rows = {4}
    snapshot.bind("v", a_template("3950m"), "n4")
    for _ in range(2):
        evaluation = engine.evaluate(template)
        assert evaluation.n_feasible == 9 and not evaluation.feasible[4]
        assert [total for total in evaluation.total.tolist() if total >= 0] == before[:4] + before[5:]


class Broken(Spy):
    def __init__(self, **answers: Any) -> None:
        super().__init__("Broken")
        self.answers = answers

    def __getattribute__(self, name: str) -> Any:
        answers = object.__getattribute__(self, "__dict__").get("answers", {})
        return (lambda *_: answers[name]) if name in answers else object.__getattribute__(self, name)


class Raising(Spy):
    def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
        raise KeyError("missing")


@pytest.mark.row("K6.3")
@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Broken(key=[]), "PreFilter: TypeError: unhashable type: 'list'"),
        (
            Broken(filter=np.zeros(3, np.uint8)),
            r"Filter: answered an array of shape \(3,\) and type uint8, expected an array of 10",
        ),
        (Broken(filter=np.zeros(10)), "Filter: answered an array of shape .* and type float64, expected an array of 10 integers"),
        (Broken(filter=[0] * 10), "Filter: answered a list, expected an array of 10 integers"),
        (Broken(filter=np.full(10, 1)), r"Filter: answered code 1, allowed are \[0, 2, 3\]"),
        (Broken(filter=np.full(10, 258)), r"Filter: answered code 258, allowed are \[0, 2, 3\]"),
        (Broken(score=np.full(10, 0.5)), "Score: answered an array of shape .* and type float64"),
        (Broken(score=5), "Score: answered a int, expected an array of 10 integers"),
        (Raising("Broken"), "Filter: KeyError: 'missing'"),
        (Broken(narrow=["n1"]), "PreFilter: answered a list, allowed are a frozenset of names, a Status, None"),
    ],
)
def test_an_answer_that_the_contract_forbids_is_an_error_that_names_the_plugin(plugin: Any, message: str) -> None:
    pre_filter = (plugin,) if "narrow" in getattr(plugin, "answers", {}) else ()
    engine = Engine(a_snapshot(), a_profile(pre_filter=pre_filter, filters=(plugin,), scores=(plugin,)))
    for ask in (engine.evaluate, engine.explain):
        with pytest.raises(PluginError, match=f'^plugin "Broken", {message}'):
            ask(a_template())


def test_a_rejection_without_a_reason_is_an_error_when_somebody_asks_why() -> None:
    class Mute(Spy):
        def reasons(self, state: Any, rows: Rows, codes: CodeColumn) -> Any:
            return [("no", np.zeros(rows.n, np.bool_))]

    mute = Mute("Mute")
    mute.code = Code.UNSCHEDULABLE
    engine = Engine(a_snapshot(), a_profile(filters=(mute,)))
    assert not engine.evaluate(a_template()).is_feasible
    with pytest.raises(PluginError, match=r'^plugin "Mute", Filter: rejected a row without a reason$'):
        engine.diagnose(a_template())


# ---------------------------------------------------------------------------------------------------------- PreFilter


@pytest.mark.row("F7")
def test_a_pod_that_prefilter_rejects_is_not_looked_at() -> None:
    spy = Spy()
    engine = Engine(a_snapshot(5), a_profile(pre_filter=(Named(),), filters=(spy,), scores=(spy,)))
    for word, code, reason in (
        ("reject", Code.UNSCHEDULABLE, "rejected for a reason"),
        ("never", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "rejected for good"),
    ):
        evaluation = engine.evaluate(a_template(only=word))
        assert evaluation.status.code is code and evaluation.status.plugin == "Named"
        assert not evaluation.is_feasible and evaluation.n_feasible == 0 and evaluation.total.tolist() == [-1] * 5
        diagnosis = engine.diagnose(a_template(only=word))
        assert diagnosis.message() == f"0/5 nodes are available: {reason}."
        assert diagnosis.unschedulable_plugins == {"Named"}
        assert diagnosis.codes.tolist() == [code] * 5
        assert engine.explain(a_template(only=word)).status.code is code
    assert spy.asked == []


def test_only_the_nodes_that_prefilter_names_are_looked_at() -> None:
    spy = Spy()
    engine = Engine(a_snapshot(5), a_profile(pre_filter=(Named(), OddNames()), filters=(spy,), scores=(spy,)))
    evaluation = engine.evaluate(a_template(only="n3.n1.n4.nowhere"))
    assert spy.asked_again() == [("filter", [1, 3, 4]), ("score", [1, 3, 4])]
    assert evaluation.total.tolist() == [-1, 50, -1, 50, 50] and evaluation.best_rows.tolist() == [1, 3, 4]
    assert evaluation.narrowed == frozenset({"n3", "n1", "n4", "nowhere"}) and evaluation.n_feasible == 3
    assert engine.evaluate(a_template(only="n3.n1.n4", odd="")).best_rows.tolist() == [1, 3]
    assert engine.evaluate(a_template(only="n3"), without=np.array([3], np.intp)).n_feasible == 0
    assert engine.explain(a_template(only="n3.n1")).rows.index.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("labels", "message", "plugins"),
    [
        (
            {"only": "n2"},
            "0/5 nodes are available: 1 no, 4 node(s) didn't satisfy plugin(s) [Named].",
            {"Named", "Spy"},
        ),
        (
            {"only": "n1.n2.nowhere", "odd": ""},
            "0/5 nodes are available: 1 no, 4 node(s) didn't satisfy plugin(s) [Named OddNames].",
            {"Named", "OddNames", "Spy"},
        ),
        (
            {"only": "nowhere"},
            "0/5 nodes are available: 5 node(s) didn't satisfy plugin(s) [Named].",
            {"Named"},
        ),
        (
            {"only": "n2", "odd": ""},
            "0/5 nodes are available: node(s) didn't satisfy plugin(s) [Named OddNames] simultaneously.",
            {"Named", "OddNames"},
        ),
        ({}, "0/5 nodes are available: 5 no.", {"Spy"}),
    ],
)
def test_nodes_that_prefilter_left_out_are_counted_together(labels: dict[str, str], message: str, plugins: set[str]) -> None:
    spy = Spy()
    spy.code = Code.UNSCHEDULABLE
    engine = Engine(a_snapshot(5), a_profile(pre_filter=(Named(), OddNames()), filters=(spy,)))
    template = a_template(**labels)
    assert not engine.evaluate(template).is_feasible
    diagnosis = engine.diagnose(template)
    assert diagnosis.message() == message and diagnosis.unschedulable_plugins == plugins


def test_an_unresolvable_rejection_outweighs_the_one_before_it() -> None:
    class Never(Spy):
        def narrow(self, state: Any) -> Any:
            return unresolvable("not ever")

    engine = Engine(a_snapshot(5), a_profile(pre_filter=(Named(), Never("Never"))))
    assert engine.diagnose(a_template(only="reject")).message() == "0/5 nodes are available: not ever."
    engine = Engine(a_snapshot(5), a_profile(pre_filter=(Named(), OddNames())))
    assert engine.diagnose(a_template(only="reject", odd="")).message() == "0/5 nodes are available: rejected for a reason."


# ----------------------------------------------------------------------------------------------------------- diagnosis


def test_the_message_counts_the_first_failing_filter_of_each_node_and_sorts_as_text() -> None:
    snapshot = Snapshot()
    for number in range(12):
        snapshot.add_node(
            a_node(f"n{number}", {"cpu": "1" if number < 10 else "4", "pods": "10"}, unschedulable=number in (0, 11))
        )
    snapshot.update_node(a_node("n10", {"cpu": "4", "pods": "10"}, taints=[("hard", "", "NoSchedule")]))
    engine = Engine(snapshot, a_profile(filters=(Cordon(), Taints(), Room())))
    template = a_template("2000m")
    assert not engine.evaluate(template).is_feasible
    diagnosis = engine.diagnose(template)
    assert diagnosis.message() == "0/12 nodes are available: 1 tainted, 2 cordoned, 9 no room."
    assert diagnosis.filters == ("Cordon", "Taints", "Room")
    assert diagnosis.failing.tolist() == [0, *[2] * 9, 1, 0]
    assert diagnosis.codes.tolist() == [3, *[2] * 9, 3, 3]
    snapshot.remove_node("n3")
    assert engine.diagnose(template).message() == "0/11 nodes are available: 1 tainted, 2 cordoned, 8 no room."


def test_explain_shows_each_plugin_on_each_node() -> None:
    snapshot = a_snapshot(4)
    snapshot.update_node(a_node("n0", {"cpu": "4", "pods": "10"}, labels={"rank": "7"}, unschedulable=True))
    profile = a_profile(filters=(Cordon(), Room()), scores=(Rank(), Room()), weights={"Rank": 2, "Room": 1})
    rows = Engine(snapshot, profile).explain(a_template("1000m", factor="1")).rows
    assert [columns.plugin for columns in rows.filters] == ["Cordon", "Room"]
    assert rows.codes.tolist() == [3, 0, 0, 0] and rows.failing.tolist() == [0, -1, -1, -1]
    rank, room = rows.scores
    assert rank.raw is not None and rank.normalized is not None and rank.weighted is not None and room.weighted is not None
    assert (rank.raw.tolist(), rank.normalized.tolist(), rank.weighted.tolist()) == (
        [0, 1, 2, 3],
        [0, 0, 50, 100],
        [0, 0, 100, 200],
    )
    assert room.weighted.tolist() == [0, 75, 75, 75] and rows.total.tolist() == [-1, 75, 175, 275]


def test_rows_as_they_would_be_are_evaluated_like_rows_as_they_are() -> None:
    snapshot = a_snapshot(3)
    engine = Engine(snapshot, a_profile(filters=(Room(),), scores=(Room(),)))
    big = a_template("3000m")
    snapshot.bind("u", big, "n1")
    assert engine.filter_rows(big, np.array([0, 1, 2], np.intp)).codes.tolist() == [0, 2, 0]
    asked = WhatIfRows(snapshot, np.array([0, 1, 2], np.intp), (big, np.array([1, -1, 0])))
    assert engine.filter_rows(big, asked).codes.tolist() == [2, 0, 0]
    assert engine.evaluate_rows(big, asked).total.tolist() == [-1, 25, 25]
    dead = snapshot.remove_node("n2")
    assert engine.filter_rows(big, np.array([dead], np.intp)).codes.tolist() == [3]


# --------------------------------------------------------------------------------------------------- workers, and memory


class CountingShards:
    def __init__(self, answer: Sequence[Answer] | None) -> None:
        self.requests: list[list[ColumnRequest]] = []
        self.answer = answer

    def evaluate(self, requests: Sequence[ColumnRequest], n_rows: int) -> Sequence[Answer] | None:
        self.requests.append(list(requests))
        return self.answer


def test_workers_are_asked_only_for_work_that_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = CountingShards(None)
    snapshot = a_snapshot()
    engine = Engine(snapshot, toy_profile(), workers)
    engine.evaluate(a_template())
    assert workers.requests == []
    monkeypatch.setattr(shards, "LOCAL_WORK_MAX_SECONDS", 0.0)
    engine.warm([a_template(app="a"), a_template("200m"), a_template("200m", app="a")])
    (requests,) = workers.requests
    asked = [(request.plugin, request.part.value) for request in requests]
    assert asked == [("Room", "filter"), ("Room", "score")], "the rest is known already"
    assert Pod.FromString(requests[0].pod).spec.containers[0].resources.requests["cpu"].string == "200m"


def test_an_incomplete_answer_of_workers_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "LOCAL_WORK_MAX_SECONDS", 0.0)
    snapshot = a_snapshot()
    expected = Engine(snapshot, toy_profile()).evaluate(a_template()).total.tolist()
    for answer in ([], [np.zeros(3, np.uint8)], [np.zeros(10, np.uint8)] * 99):
        workers = CountingShards(answer)
        assert Engine(snapshot, toy_profile(), workers).evaluate(a_template()).total.tolist() == expected
        assert workers.requests


def test_columns_stay_within_their_bytes_and_the_least_recently_used_go_first() -> None:
    spy, snapshot = Spy(), a_snapshot(2000)
    engine = Engine(snapshot, a_profile(filters=(spy,), scores=(spy, Images())), bytes_max=100_000)
    templates = [a_template(key=str(number)) for number in range(30)]
    for template in templates:
        engine.evaluate(template)
        engine.evaluate(templates[0])
        assert engine._store.n_bytes <= 100_000
    spy.asked_again()
    engine.evaluate(templates[0])
    engine.evaluate(templates[-1])
    assert spy.asked_again() == []
    engine.evaluate(templates[1])
    assert spy.asked_again() != []
    assert len(engine._store) < 60
    for plan in engine._plans.values():
        engine._planner.drop(plan)
    assert len(engine._store) == 0 and engine._store.n_bytes == 0, "what nobody uses is gone"


@pytest.mark.parametrize(
    ("weights", "dtype"),
    [([], np.int16), ([1, 3], np.int16), ([81], np.int16), ([82], np.int32), ([10**6], np.int32), ([10**9], np.int64)],
)
def test_totals_are_as_narrow_as_the_weights_allow(weights: list[int], dtype: type) -> None:
    scale = scale_for(weights)
    assert scale.dtype == dtype
    # The sum of two parts that are not feasible, and of one that is with the highest score, fit and stay negative.
    assert np.iinfo(dtype).min <= 2 * scale.infeasible and scale.infeasible + 100 * sum(weights) < 0


def test_weights_beyond_int64_are_refused() -> None:
    with pytest.raises(ValueError, match="weights of score plugins add up to"):
        scale_for([2**60])


@pytest.mark.parametrize("weight", [1, 100, 10**7, 10**12])
def test_large_weights_give_exact_totals(weight: int) -> None:
    snapshot = a_snapshot(4)
    profile = a_profile(filters=(Room(),), scores=(Rank(), Room()), weights={"Rank": weight, "Room": 1})
    snapshot.bind("u", a_template("3950m"), "n3")
    assert Engine(snapshot, profile).evaluate(a_template(factor="1")).total[:3].tolist() == [
        97,
        97 + 50 * weight,
        97 + 100 * weight,
    ]
