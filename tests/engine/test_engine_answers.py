"""The engine's answers: PreFilter's word, why no node is feasible, what each plugin says, and rows as they would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayched.engine.engine import Engine
from rayched.framework.status import Code, unresolvable
from rayched.snapshot.rows import WhatIfRows
from rayched.snapshot.snapshot import Snapshot
from tests.engine.spies import Spy, a_snapshot, a_template
from tests.engine.toy_plugins import Cordon, Named, OddNames, Rank, Room, Taints, a_profile
from tests.snapshot.objects import a_node


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


def test_where_two_plugins_leave_no_node_the_next_one_is_not_asked() -> None:
    class Third(Spy):
        def narrow(self, state: Any) -> Any:
            self.asked.append(("narrow", []))
            return frozenset({"n1"})

    third = Third("Third")
    engine = Engine(a_snapshot(5), a_profile(pre_filter=(Named(), OddNames(), third)))
    assert engine.diagnose(a_template(only="n2", odd="")).message() == (
        "0/5 nodes are available: node(s) didn't satisfy plugin(s) [Named OddNames] simultaneously."
    )
    assert third.asked_again() == []
    engine.evaluate(a_template(only="n1", odd=""))
    assert third.asked_again() == [("narrow", [])]


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
