"""Usage sums that take turns: one call for a state that is new, and the same sums as without."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.engine import cached_columns, usage_values
from rayched.engine.engine import Engine
from rayched.engine.usage_values import UsageValues
from rayched.framework.plugin_error import PluginError
from rayched.snapshot import usage_states
from rayched.snapshot.columns import CodeColumn, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from tests.engine.spies import TEMPLATES, a_snapshot, a_template
from tests.engine.toy_plugins import Cordon, Room, a_profile
from tests.snapshot.objects import a_node, a_pod

SHAPES = [f"{100 + 10 * number}m" for number in range(12)]
MANY_SHAPES = [f"{100 + 10 * number}m" for number in range(44)]


@pytest.fixture(autouse=True)
def small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are twelve shapes here, which are to count as many."""
    monkeypatch.setattr(usage_values, "FEW", 7)
    monkeypatch.setattr(cached_columns, "FEW", 1)


class Watched(Room):
    """Notes how many rows, or pods' requests, each call of `score` was about."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.offset = 0
        self.broken = False

    def score(self, state: Any, rows: Rows) -> ScoreColumn:
        n_states = len(state[0]) if isinstance(state[0], np.ndarray) else 1
        if self.broken and n_states > 1:
            raise ValueError("cannot do so many")
        self.calls.append((rows.n, n_states))
        return super().score(state, rows) + self.offset


def an_engine(plugin: Room, snapshot: Snapshot) -> Engine:
    return Engine(snapshot, a_profile(filters=(plugin,), scores=(plugin,)))


def many_sums(engine: Engine) -> UsageValues:
    """Values of so many sums that plugins are asked on behalf of all."""
    (found,) = [one for one in engine._planner._usage_values.values() if one._stacks and len(one) > usage_values.FEW]
    return found


def place(engine: Engine, snapshot: Snapshot, cpu: str, uid: str) -> None:
    """Decide, compare with an engine that keeps nothing, and bind."""
    template = a_template(cpu)
    found = engine.evaluate(template)
    fresh = Engine(snapshot, a_profile(filters=(Room(),), scores=(Room(),))).evaluate(template)
    assert found.feasible.tolist() == fresh.feasible.tolist(), uid
    # Of a single feasible row nobody asks the scores.
    assert fresh.n_feasible < 2 or found.total.tolist() == fresh.total.tolist(), uid
    if found.is_feasible:
        snapshot.bind(uid, template, snapshot.name_of(int(found.best_rows[0])))


def in_turns(engine: Engine, snapshot: Snapshot, rounds: int, shapes: list[str], prefix: str = "u") -> None:
    for number in range(rounds):
        for cpu in shapes:
            place(engine, snapshot, cpu, f"{prefix}-{number}-{cpu}")


def test_a_new_state_is_asked_about_for_all_sums_in_one_call() -> None:
    plugin, snapshot = Watched(), a_snapshot(300)
    engine = an_engine(plugin, snapshot)
    in_turns(engine, snapshot, 3, SHAPES)
    plugin.calls.clear()
    for number, cpu in enumerate(2 * SHAPES):
        snapshot.bind(f"odd-{number}", a_template(f"{1 + number}m"), f"n{200 + number}")
        assert engine.evaluate(a_template(cpu)).is_feasible
    assert len(many_sums(engine)) == len(SHAPES)
    assert plugin.calls == [(1, len(SHAPES))] * (2 * len(SHAPES))


def test_a_row_in_a_state_that_was_there_before_is_not_asked_about() -> None:
    plugin, snapshot = Watched(), a_snapshot(300)
    engine = an_engine(plugin, snapshot)
    in_turns(engine, snapshot, 4, SHAPES)
    plugin.calls = []
    in_turns(engine, snapshot, 2, SHAPES, "again")
    assert plugin.calls == [], "all of them went to nodes that were empty"


def test_a_new_sum_asks_about_each_state_once() -> None:
    plugin, snapshot = Watched(), a_snapshot(300)
    engine = an_engine(plugin, snapshot)
    in_turns(engine, snapshot, 4, SHAPES)
    plugin.calls = []
    engine.evaluate(a_template("95m"))
    assert plugin.calls == [(1 + len(SHAPES), 1)], "an empty node, and one with a pod of each shape"
    in_turns(engine, snapshot, 1, MANY_SHAPES, "more")
    assert len(many_sums(engine)) == 1 + len(MANY_SHAPES)


def test_of_many_new_states_each_sum_asks_for_itself_when_its_turn_comes() -> None:
    plugin, snapshot = Watched(), a_snapshot(300)
    engine = an_engine(plugin, snapshot)
    in_turns(engine, snapshot, 3, SHAPES)
    plugin.calls.clear()
    for number in range(40):
        snapshot.bind(f"odd-{number}", a_template(f"{1 + number}m"), f"n{number}")
    in_turns(engine, snapshot, 1, SHAPES, "after")
    assert plugin.calls == [(40, 1)] * len(SHAPES)


def test_where_each_binding_leads_to_a_new_state_values_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_states, "STATES_MIN", 16)
    snapshot = a_snapshot(50)
    engine = an_engine(Room(), snapshot)
    for number in range(30):
        for place_, cpu in enumerate(SHAPES):
            uid = f"odd-{number}-{place_}"
            snapshot.bind(uid, a_template(f"{1 + 12 * number + place_}m"), f"n{(7 * number + place_) % 50}")
            place(engine, snapshot, cpu, f"u-{number}-{cpu}")
            if number > 3:
                snapshot.unbind(f"odd-{number - 4}-{place_}")
                snapshot.unbind(f"u-{number - 4}-{cpu}")
    sums = many_sums(engine)
    assert engine._planner._states.generation > 5
    assert sums._values.shape[0] <= 2 * len(SHAPES) and sums._values.shape[1] <= 9 * 50 / 4 + 16


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_those_of_a_full_evaluation_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods in any order, in runs, many changes at once, nodes that come and go, resources that are new, little room."""
    monkeypatch.setattr(cached_columns, "FEW", 1 if seed % 2 else 16)
    monkeypatch.setattr(usage_values, "FEW", 2)
    monkeypatch.setattr(usage_values, "TURNS_MIN", 20)
    monkeypatch.setattr(usage_states, "STATES_MIN", 4)
    monkeypatch.setattr(usage_states, "CHANGED_MAX", 16 if seed < 3 else 8_192)
    random, snapshot = Random(seed), a_snapshot(60)
    engine = an_engine(Room(), snapshot)
    for number in range(400):
        for _ in range(random.choice((1, 1, 1, 5))):
            place(engine, snapshot, random.choice(MANY_SHAPES[: 4 + number // 10]), f"u{number}")
        if random.random() < 0.1:
            for change in range(random.choice((1, 3, 40))):
                snapshot.bind(f"other-{number}-{change}", a_template("700m"), f"n{random.randrange(60)}")
        if random.random() < 0.1 and snapshot.bound(f"u{number - 7}") is not None:
            snapshot.unbind(f"u{number - 7}")
        if random.random() < 0.02:
            snapshot.remove_node(f"n{random.randrange(60)}")
        if number == 200:
            snapshot.bind("device", TEMPLATES.intern(a_pod({"cpu": "10m", "x/new": "1"})), "n5")
    assert engine._planner._states.generation > 5, "states were let go of"


def test_a_sum_that_is_not_asked_for_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_values, "TURNS_MIN", 40)
    plugin, snapshot = Watched(), a_snapshot(300)
    engine = an_engine(plugin, snapshot)
    in_turns(engine, snapshot, 3, SHAPES)
    sums = many_sums(engine)
    in_turns(engine, snapshot, 20, SHAPES[:10], "fewer")
    assert len(sums) == 10
    in_turns(engine, snapshot, 60, SHAPES[:2], "few")
    assert len(sums) == 2
    place(engine, snapshot, SHAPES[-1], "late")


def test_sums_that_no_plan_holds_any_more_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_values, "TURNS_MIN", 15)
    snapshot = a_snapshot(300)
    engine = Engine(snapshot, a_profile(filters=(Room(),), scores=(Room(),)), bytes_max=1)
    in_turns(engine, snapshot, 6, SHAPES)
    assert sum(map(len, engine._planner._usage_values.values())) <= 2 * 17, "those of a last look, and of fifteen turns"
    engine._forget()
    assert not engine._planner._usage_values and engine._planner._states.n_states == 0


def test_plugins_that_cannot_answer_for_many_are_asked_for_each_sum() -> None:
    plugin, snapshot = Watched(), a_snapshot(300)
    engine = an_engine(plugin, snapshot)
    in_turns(engine, snapshot, 3, SHAPES)
    plugin.broken = True
    in_turns(engine, snapshot, 2, SHAPES, "failing")
    plugin.broken = False
    in_turns(engine, snapshot, 2, SHAPES, "mended")


def test_a_score_outside_its_range_is_told_as_by_a_single_sum() -> None:
    plugin, snapshot = Watched(), a_snapshot(300)
    engine = an_engine(plugin, snapshot)
    in_turns(engine, snapshot, 3, SHAPES)
    plugin.offset = 101
    snapshot.bind("one-more", a_template("100m"), "n7")
    with pytest.raises(PluginError, match=r'plugin "Room", Score: score \d+ lies outside 0\.\.100'):
        engine.evaluate(a_template(SHAPES[0]))


def test_pods_that_ask_for_what_cannot_be_stacked_follow_the_log_by_themselves() -> None:
    snapshot = a_snapshot(300)
    engine = an_engine(Room(), snapshot)
    for number in range(40):
        cpu = SHAPES[number % len(SHAPES)]
        with_device = TEMPLATES.intern(a_pod({"cpu": cpu, "x/gpu": "1"}))
        assert not engine.evaluate(with_device).is_feasible
        place(engine, snapshot, cpu, f"u{number}")
    assert len(many_sums(engine)) == len(SHAPES)


def test_a_filter_that_raises_ends_the_attempt_of_a_pod_whose_values_are_known_already() -> None:
    """Though it would answer when it is asked again."""

    class Flaky(Cordon):
        fails = False

        def filter(self, state: Any, rows: Rows) -> CodeColumn:
            if self.fails:
                self.fails = False
                raise RuntimeError("just this once")
            return super().filter(state, rows)

    flaky, snapshot = Flaky(), a_snapshot(300)
    engine = Engine(snapshot, a_profile(filters=(flaky, Room()), scores=(Room(),)))
    in_turns(engine, snapshot, 3, SHAPES)
    assert len(many_sums(engine)) == len(SHAPES)
    flaky.fails = True
    snapshot.update_node(a_node("n5", {"cpu": "4", "memory": "8Gi", "pods": "10"}, unschedulable=True))
    with pytest.raises(PluginError, match="just this once"):
        engine.evaluate(a_template("125m"))
    assert not engine.evaluate(a_template("125m")).feasible[5]
