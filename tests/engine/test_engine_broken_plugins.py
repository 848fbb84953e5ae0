"""The engine and plugins that raise, or answer what their contract forbids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rayched.engine.engine import Engine
from rayched.framework.plugin_error import PluginError
from rayched.framework.status import Code
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows
from tests.engine.spies import NormalizingSpy, Spy, a_snapshot, a_template
from tests.engine.toy_counting import RowsOfZones, Zones, ZonesNow
from tests.engine.toy_plugins import Cordon, Rank, Room, a_profile
from tests.snapshot.objects import a_node


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


@pytest.mark.parametrize("reads", [Log.LABELS, Log.USAGE])
def test_a_filter_that_raises_ends_the_attempt_though_it_would_answer_when_asked_again(reads: Log) -> None:
    class Flaky(Spy):
        fails = False

        def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
            if self.fails:
                self.fails = False
                raise RuntimeError("just this once")
            return super().filter(state, rows)

    flaky, snapshot = Flaky(reads=reads), a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(flaky, Room()), scores=(Room(),)))
    for number, what in enumerate(("nothing is known", "a row changed", "all rows changed")):
        flaky.fails = True
        for row in range((0, 1, 10)[number]):
            node = a_node(f"n{row}", {"cpu": f"{8 + number}", "memory": "8Gi", "pods": "10"}, labels={"rank": f"{number}"})
            snapshot.update_node(node)
        with pytest.raises(PluginError, match="just this once"):
            engine.evaluate(a_template())
        assert not flaky.fails, what
        for _ in range(2):
            assert engine.evaluate(a_template()).n_feasible == 10, what


class BrokenZones(Zones):
    """Its rows are scored well."""

    def __init__(self) -> None:
        self.breaks: Callable[[list[int]], Any] | None = None
        self.breaks_groups = False

    def groups(self, state: ZonesNow) -> RowGroups | None:
        if self.breaks_groups:
            raise RuntimeError("no groups")
        return super().groups(state)

    def score_groups(
        self, state: ZonesNow, groups: RowGroups, present: Sequence[int], feasible: BoolColumn
    ) -> Sequence[int] | None:
        scores = super().score_groups(state, groups, present, feasible)
        return scores if scores is None or self.breaks is None else self.breaks([*scores])


@pytest.mark.parametrize("n_decisions", [0, 8])
@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (None, "Score: RuntimeError: no groups"),
        (lambda scores: scores[len(scores)], "Score: IndexError: list index out of range"),
        (lambda scores: scores[1:], r"Score: answered \d scores for \d groups"),
        (lambda scores: [101, *scores[1:]], r"NormalizeScore: score 101 lies outside 0\.\.100"),
        (lambda scores: [-1, *scores[1:]], r"NormalizeScore: score -1 lies outside 0\.\.100"),
    ],
)
def test_what_is_wrong_with_scores_of_groups_ends_the_attempt_though_rows_would_have_scores(
    breaks: Callable[[list[int]], Any] | None, message: str, n_decisions: int
) -> None:
    """Before groups are followed, and after."""
    plugin, snapshot = BrokenZones(), a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(Cordon(),), scores=(plugin,)))
    template = a_template(alone="")
    for number in range(n_decisions + 1):
        snapshot.bind(f"u{number}", template, f"n{number % 3}")
        assert engine.evaluate(template).is_feasible
    plugin.breaks, plugin.breaks_groups = breaks, breaks is None
    snapshot.bind("another", template, "n4")
    for _ in range(2):
        with pytest.raises(PluginError, match=f'^plugin "Zones", {message}$'):
            engine.evaluate(template)
    for number in range(1, 10):
        snapshot.update_node(a_node(f"n{number}", {"cpu": "4", "pods": "10"}, unschedulable=True))
    assert engine.evaluate(template).feasible.nonzero()[0].tolist() == [0], "nobody is asked for the scores of a single node"
    for number in range(10):
        snapshot.update_node(a_node(f"n{number}", {"cpu": "4", "pods": "10"}, labels={"zone": "xy"[number % 2]}))
    plugin.breaks, plugin.breaks_groups = None, False
    by_rows = Engine(snapshot, a_profile(filters=(Cordon(),), scores=(RowsOfZones(),)))
    assert engine.evaluate(template).total.tolist() == by_rows.evaluate(template).total.tolist()
