"""A kept total: when single rows are written and when all of them, what is followed, and that it never shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from rayched.engine import totals
from rayched.engine.engine import Engine
from rayched.engine.score_sum import ScoreSum
from rayched.engine.totals import KeptTotal
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.columns import CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate
from tests.engine.spies import Spy, a_snapshot, a_template
from tests.engine.toy_counting import RowsOfZones, Zones
from tests.engine.toy_plugins import Cordon, Crowd, Rank, Room, a_profile
from tests.snapshot.objects import a_node


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was written: "all" rows, or the rows."""
    seen: list[str] = []
    write_all, write_rows = KeptTotal._write_all, KeptTotal._write_rows

    def noted_all(self: KeptTotal) -> None:
        seen.append("all")
        write_all(self)

    def noted_rows(self: KeptTotal, rows: list[int]) -> None:
        seen.append(" ".join(str(row) for row in sorted(set(rows))))
        write_rows(self, rows)

    monkeypatch.setattr(KeptTotal, "_write_all", noted_all)
    monkeypatch.setattr(KeptTotal, "_write_rows", noted_rows)
    return seen


class Bench:
    def __init__(self, *zones: Zones, n_nodes: int = 10, **labels: str) -> None:
        self.snapshot: Snapshot = a_snapshot(n_nodes)
        plain = Cordon(), Room()
        self.profile = a_profile(filters=(*plain, *zones), scores=(Room(), Rank(), Crowd(), *zones))
        self.engine = Engine(self.snapshot, self.profile)
        self.template: PodTemplate = a_template(**labels)
        self.placed = 0

    def decide(self, steps: list[str], rows: Iterable[int | None] = (None,)) -> list[str]:
        """Decide, compare with an engine that knows nothing, and bind to these rows, None: the first of the best nodes.

        Returns what was written for it.
        """
        written: list[str] = []
        for row in rows:
            steps.clear()
            found = self.engine.evaluate(self.template)
            written += steps
            expected = Engine(self.snapshot, self.profile).evaluate(self.template)
            assert (found.n_feasible, list(found.ties)) == (expected.n_feasible, expected.best_rows.tolist())
            if expected.n_feasible > 1:
                assert found.best == expected.best
                feasible = expected.feasible
                assert found.total[feasible].tolist() == expected.total[feasible].tolist()
            self.bind(int(found.ties[0]) if row is None else row)
        return written

    def bind(self, row: int, template: PodTemplate | None = None) -> None:
        self.placed += 1
        self.snapshot.bind(f"placed-{self.placed}", template or self.template, f"n{row}")

    @property
    def total(self) -> KeptTotal:
        """The one that was asked for last."""
        return next(reversed(self.engine._totals._recent.values()))


def test_after_the_first_pod_only_rows_that_changed_are_written(steps: list[str]) -> None:
    bench = Bench()
    assert bench.decide(steps, (3, 4, 4, 9)) == ["all", "3", "4", "4"]
    other = a_template("250m")
    assert bench.engine.evaluate(other).is_feasible
    assert bench.decide(steps, (2,)) == ["9"], "the total stays while another template is asked about"
    steps.clear()
    bench.bind(5)
    bench.engine.evaluate(other)
    assert steps == ["2 5"], "each template has a total of its own"


def test_templates_that_share_a_usage_sum_each_find_the_rows_that_changed(steps: list[str]) -> None:
    bench = Bench()
    # The rank counts for one of them alone; requests are the same.
    other = a_template(factor="1")
    engine, snapshot, profile = bench.engine, bench.snapshot, bench.profile
    engine.evaluate(bench.template), engine.evaluate(other)
    for row in (1, 2, 3):
        bench.bind(row)
        for template in (bench.template, other):
            steps.clear()
            total = engine.evaluate(template).total.tolist()
            assert steps == [str(row)]
            assert total == Engine(snapshot, profile).evaluate(template).total.tolist()


@pytest.mark.parametrize(("n_rows", "written"), [(3, "2 3 4"), (4, "all")])
def test_so_many_rows_are_written_one_by_one(
    n_rows: int, written: str, monkeypatch: pytest.MonkeyPatch, steps: list[str]
) -> None:
    monkeypatch.setattr(totals, "FEW", 3)
    bench = Bench()
    bench.engine.evaluate(bench.template)
    for row in range(n_rows):
        bench.bind(row + 2)
    assert bench.decide(steps) == [written]


def test_node_objects_that_changed_are_rows_too(steps: list[str]) -> None:
    bench = Bench()
    bench.decide(steps, (0, 0))
    bench.snapshot.update_node(a_node("n4", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels={"rank": "1", "zone": "x"}))
    assert bench.decide(steps, (0,)) == ["0 4"]
    bench.snapshot.update_node(a_node("n5", {"cpu": "4"}, unschedulable=True))
    assert bench.decide(steps, (0,)) == ["0 5"]
    bench.snapshot.remove_node("n6")
    assert bench.decide(steps, (0,)) == ["0 6"]
    bench.snapshot.add_node(a_node("takes the free row", {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    assert bench.decide(steps, (0,)) == ["0 6"]
    bench.snapshot.add_node(a_node("makes the table longer", {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    assert bench.decide(steps, (0, 0)) == ["all", "0"]


def test_bounds_that_move_write_all_rows(steps: list[str]) -> None:
    bench = Bench(factor="1")
    bench.decide(steps, (0, 0))
    labels = {"rank": "7"}
    for number in range(9):
        bench.snapshot.update_node(a_node(f"n{number}", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels=labels))
    assert bench.decide(steps, (0,))[-1] == "all"
    bench.snapshot.update_node(a_node("n9", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels=labels))
    assert bench.decide(steps, (0, 0)) == ["0 9", "all", "0"], "first the rows that changed, then all by other bounds"


def test_rescaled_scores_are_added_to_a_copy(steps: list[str]) -> None:
    bench = Bench(shy="")
    assert bench.decide(steps, [None] * 8)[-1] != "all"
    assert bench.total._top is not None and bench.total._column.max() < bench.engine.evaluate(bench.template).total.max()


@pytest.mark.parametrize("zones", [(), (Zones(),)])
def test_best_rows_are_followed_after_a_few_decisions(
    zones: tuple[Zones, ...], monkeypatch: pytest.MonkeyPatch, steps: list[str]
) -> None:
    monkeypatch.setattr(totals, "FOLLOWED_MIN", 3)
    bench = Bench(*zones, alone="", limit="50") if zones else Bench()

    def followed() -> bool:
        return (bench.total._groups if zones else bench.total._top) is not None

    for expected in (False, False, False, True, True):
        bench.decide(steps)
        assert followed() is expected
    monkeypatch.setattr(totals, "FEW", 0)
    bench.decide(steps)
    assert not followed(), "all rows were written"


def test_a_counting_score_without_groups_is_added_to_a_copy(steps: list[str]) -> None:
    bench = Bench(RowsOfZones(), alone="")
    written = bench.decide(steps, [None] * 8)
    assert written[0] == "all" and "all" not in written[1:]
    assert bench.total._groups is None


def test_caps_of_many_rows_that_change_at_once_write_all_rows(monkeypatch: pytest.MonkeyPatch, steps: list[str]) -> None:
    """As when a zone is full."""
    monkeypatch.setattr(totals, "FEW", 3)
    bench = Bench(Zones(), limit="3")
    assert bench.decide(steps, (0, 0, 2)) == ["all", "0", "0"]
    # The third pod in the zone of n0 and n2 fills it up: five rows are out of the question.
    assert bench.decide(steps, (1, 1)) == ["all", "1"]


def test_one_feasible_row_is_followed_until_another_one_is_feasible(steps: list[str]) -> None:
    bench = Bench(n_nodes=3)
    big = a_template("3950m")
    bench.bind(0, big)
    bench.bind(2, big)
    assert bench.decide(steps, [None] * 6) == ["all", "1", "1", "1", "1", "1"]
    bench.snapshot.unbind("placed-1")
    bench.decide(steps, [None] * 4)


class Failing(Spy):
    """A filter that raises when it is asked about some rows."""

    def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
        if self.failing_rows & set(rows.index.tolist()):
            raise RuntimeError("broken")
        return super().filter(state, rows)


@pytest.mark.parametrize("reads", [Log.LABELS, Log.USAGE, Log.PORTS])
def test_a_plugin_that_raises_leaves_no_half_written_total(reads: Log, steps: list[str]) -> None:
    spy, snapshot = Failing(reads=reads), a_snapshot()
    engine = Engine(snapshot, a_profile(filters=(Room(), spy), scores=(Room(),)))
    template = a_template()
    engine.evaluate(template)
    spy.failing_rows = {4}
    for number in range(3):
        snapshot.bind(f"u{number}", template, f"n{number}")
        snapshot.update_node(a_node("n4", {"cpu": "8", "pods": "10"}, labels={"rank": str(number)}))
        if reads is Log.PORTS:
            snapshot.remove_node("n4")
            snapshot.add_node(a_node("n4", {"cpu": "8", "pods": "10"}))
        with pytest.raises(PluginError):
            engine.evaluate(template)
    spy.failing_rows = set()
    steps.clear()
    found = engine.evaluate(template)
    assert steps == ["all"]
    assert (
        found.total.tolist()
        == Engine(snapshot, a_profile(filters=(Room(), spy), scores=(Room(),))).evaluate(template).total.tolist()
    )


class Moody(Rank):
    """Normalises when it likes to."""

    fails = False

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        if self.fails:
            raise RuntimeError("not now")
        return super().normalize(raw, low, high)


@pytest.mark.parametrize("first", [True, False])
def test_scores_that_could_not_be_normalised_once_leave_no_other_bounds_behind(first: bool) -> None:
    moody, snapshot = Moody(), a_snapshot()
    profile = a_profile(filters=(Cordon(), Room()), scores=(Room(), moody))
    engine, template = Engine(snapshot, profile), a_template(factor="1")
    if not first:
        engine.evaluate(template)
    for number in range(10):
        labels = {"rank": str(3 * number)}
        node = a_node(f"n{number}", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels=labels)
        node.spec.unschedulable = number == 9
        snapshot.update_node(node)
    moody.fails = True
    for _ in range(2):
        with pytest.raises(PluginError, match="not now"):
            engine.evaluate(template)
    moody.fails = False
    for _ in range(2):
        assert engine.evaluate(template).total.tolist() == Engine(snapshot, profile).evaluate(template).total.tolist()


def test_rows_that_are_left_out_are_put_back(steps: list[str]) -> None:
    bench = Bench()
    kept = bench.engine._totals
    plain = bench.engine.evaluate(bench.template).total.tolist()
    scoring: ScoreSum = next(iter(kept._recent))
    free = frozenset((2, 7))
    for left_out in (free, free, frozenset((7,)), frozenset()):
        steps.clear()
        found = kept.evaluate(scoring, left_out).total.tolist()
        assert [row for row in range(10) if found[row] < 0] == sorted(left_out)
        assert [total for row, total in enumerate(found) if row not in left_out] == [
            total for row, total in enumerate(plain) if row not in left_out
        ]
        assert steps != ["all"]
    once = kept.evaluate(scoring, np.array([0, 1, 2]))
    assert (once.total < 0).tolist() == [True] * 3 + [False] * 7
    assert kept.evaluate(scoring).total.tolist() == plain, "what is left out once is not kept"


def test_totals_that_were_not_asked_for_lately_are_made_anew(monkeypatch: pytest.MonkeyPatch, steps: list[str]) -> None:
    bench = Bench()
    monkeypatch.setattr(totals, "TOTALS_BYTES_MAX", 3 * 2 * 10)
    templates = [a_template(f"{100 + number}m") for number in range(4)]
    for template in templates:
        bench.engine.evaluate(template)
    kept = bench.engine._totals
    assert len(kept) == 3 and kept._bytes == 60 == sum(total.n_bytes for total in kept._recent.values())
    for template, written in ((templates[3], []), (templates[1], []), (templates[0], ["all"]), (templates[2], ["all"])):
        steps.clear()
        found = bench.engine.evaluate(template)
        assert steps == written
        assert found.total.tolist() == Engine(bench.snapshot, bench.profile).evaluate(template).total.tolist()


def test_a_list_of_ties_counts_among_the_bytes(monkeypatch: pytest.MonkeyPatch, steps: list[str]) -> None:
    monkeypatch.setattr(totals, "FOLLOWED_MIN", 1)
    bench = Bench()
    bench.decide(steps, (None, None, None))
    kept, listed = bench.engine._totals, bench.total.n_bytes
    assert listed > 2 * 10
    bench.engine.evaluate(a_template("250m"))
    assert kept._bytes == listed + 2 * 10
    assert kept._bytes == sum(total.accounted for total in kept._recent.values())
    bench.engine._plans.drop_all()
    assert (len(kept), kept._bytes) == (0, 0), "totals go with their plans"
