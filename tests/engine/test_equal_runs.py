"""When a run of equal pods is followed, when it ends, and that none is begun where that would be for nothing."""

from __future__ import annotations

import pytest

from rayched.engine import equal_runs
from rayched.engine.cached_columns import BuildColumns
from rayched.engine.engine import Engine
from rayched.engine.equal_runs import NO_ROWS, EquivalentPods
from rayched.engine.evaluation import Evaluation
from rayched.engine.planner import ScoreSum
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate
from tests.engine.spies import a_snapshot, a_template
from tests.engine.toy_counting import RowsOfZones, Zones
from tests.engine.toy_plugins import Cordon, Crowd, Rank, Room, a_profile
from tests.snapshot.objects import a_node


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which runs were asked for and began, which were followed and which had to end."""
    seen: list[str] = []
    begin, following = EquivalentPods.begin, EquivalentPods.next

    def noted_begin(stage: ScoreSum, n_rows: int) -> EquivalentPods | None:
        found = begin(stage, n_rows)
        seen.append("no run" if found is None else "begins")
        return found

    def noted_next(run: EquivalentPods, build: BuildColumns, left_out: frozenset[int] = NO_ROWS) -> Evaluation | None:
        found = following(run, build, left_out)
        seen.append("ends" if found is None else "followed")
        return found

    monkeypatch.setattr(EquivalentPods, "begin", noted_begin)
    monkeypatch.setattr(EquivalentPods, "next", noted_next)
    return seen


class Bench:
    def __init__(self, *zones: Zones, n_nodes: int = 10, **labels: str) -> None:
        self.snapshot: Snapshot = a_snapshot(n_nodes)
        plain = Cordon(), Room()
        self.profile = a_profile(filters=(*plain, *zones), scores=(Room(), Rank(), Crowd(), *zones))
        self.engine = Engine(self.snapshot, self.profile)
        self.template: PodTemplate = a_template(**labels)
        self.placed = 0

    def decide(self, times: int = 1, row: int | None = None) -> None:
        """Decide, compare with an engine that knows nothing, and bind to the first of the best nodes, or to another one."""
        for _ in range(times):
            found = self.engine.evaluate(self.template)
            expected = Engine(self.snapshot, self.profile).evaluate(self.template)
            assert (found.n_feasible, found.best_rows.tolist()) == (expected.n_feasible, expected.best_rows.tolist())
            if expected.n_feasible > 1:
                assert found.best == expected.best
                feasible = expected.feasible
                assert found.total[feasible].tolist() == expected.total[feasible].tolist()
            self.bind(int(found.best_rows[0]) if row is None else row)

    def bind(self, row: int, template: PodTemplate | None = None) -> None:
        self.placed += 1
        self.snapshot.bind(f"placed-{self.placed}", template or self.template, f"n{row}")


def begun(steps: list[str]) -> list[str]:
    """What the engine that is asked again and again did: fresh ones evaluate once, so that they begin no run."""
    found = steps.copy()
    steps.clear()
    return found


@pytest.mark.parametrize("zones", [(), (Zones(),)])
def test_the_second_pod_of_a_kind_begins_a_run_that_the_others_follow(zones: tuple[Zones, ...], steps: list[str]) -> None:
    bench = Bench(*zones, alone="", limit="50") if zones else Bench()
    bench.decide(1)
    assert begun(steps) == []
    bench.decide(1)
    assert begun(steps) == ["begins"]
    bench.decide(6)
    assert begun(steps) == ["followed"] * 6
    other = a_template("250m")
    bench.engine.evaluate(other)
    bench.decide(1)
    assert begun(steps) == [], "another kind came between"
    bench.decide(3)
    assert begun(steps) == ["begins", "followed", "followed"]


def test_rows_that_changed_are_followed_up_to_so_many(monkeypatch: pytest.MonkeyPatch, steps: list[str]) -> None:
    monkeypatch.setattr(equal_runs, "ROWS_MAX", 3)
    bench = Bench()
    bench.decide(3)
    begun(steps)
    for n_rows, said in ((2, ["followed"]), (3, ["ends", "begins"])):
        for row in range(n_rows):
            bench.bind(row + 2)
        bench.decide(1, row=9)
        assert begun(steps) == said, n_rows


def test_node_objects_that_changed_are_rows_too_until_the_bounds_or_the_table_do(steps: list[str]) -> None:
    bench = Bench()
    bench.decide(3)
    begun(steps)
    bench.snapshot.update_node(a_node("n4", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels={"rank": "1", "zone": "x"}))
    bench.decide(1)
    bench.snapshot.update_node(a_node("n5", {"cpu": "4"}, unschedulable=True))
    bench.decide(1)
    bench.snapshot.remove_node("n6")
    bench.decide(1)
    assert begun(steps) == ["followed"] * 3
    for name in ("takes the free row", "makes the table longer"):
        bench.snapshot.add_node(a_node(name, {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    bench.decide(2, row=0)
    assert begun(steps) == ["ends", "begins", "followed"]


def test_bounds_that_move_end_a_run(steps: list[str]) -> None:
    bench = Bench(factor="1")
    bench.decide(3)
    begun(steps)
    for number in range(10):
        bench.snapshot.update_node(a_node(f"n{number}", {"cpu": "4", "memory": "8Gi", "pods": "10"}, labels={"rank": "7"}))
        if number % 4 == 3:
            bench.decide(1)
    bench.decide(4)
    said = begun(steps)
    assert "ends" in said and said[-1] == "followed"


def test_scores_that_change_with_every_binding_let_no_run_begin(steps: list[str]) -> None:
    bench = Bench(shy="")
    bench.decide(4)
    assert begun(steps) == ["no run"] * 3


def test_after_a_counting_score_without_groups_nobody_tries_for_a_while(
    monkeypatch: pytest.MonkeyPatch, steps: list[str]
) -> None:
    monkeypatch.setattr(equal_runs, "PAUSE", 2)
    bench = Bench(RowsOfZones(), alone="")
    bench.decide(1)
    tried: list[int] = []

    def noted(score: object) -> None:
        tried.append(len(begun(steps)))

    monkeypatch.setattr(equal_runs, "groups_to_follow", noted)
    bench.decide(8)
    assert tried == [0, 3, 3], "two decisions go by between two tries"


def test_ceilings_of_many_rows_that_change_at_once_end_a_run(monkeypatch: pytest.MonkeyPatch, steps: list[str]) -> None:
    """As when a zone is full. A short run is not begun again for a while."""
    monkeypatch.setattr(equal_runs, "ROWS_MAX", 3)
    monkeypatch.setattr(equal_runs, "PAUSE", 2)
    for worth_it, said in ((0, ["ends", "begins"]), (100, ["ends", "no run", "no run", "begins"])):
        monkeypatch.setattr(equal_runs, "WORTH_IT", worth_it)
        bench = Bench(Zones(), limit="3")
        bench.decide(2, row=0)
        bench.decide(1, row=2)
        assert begun(steps) == ["begins", "followed"]
        # The third pod in the zone of n0 and n2 fills it up: five rows are out of the question.
        bench.decide(1, row=1)
        assert begun(steps) == said[:2], worth_it
        bench.decide(len(said) - 2, row=5)
        assert begun(steps) == said[2:]


def test_a_single_feasible_row_is_followed_until_another_one_is_feasible(steps: list[str]) -> None:
    bench = Bench(n_nodes=3)
    big = a_template("3950m")
    bench.bind(0, big)
    bench.bind(2, big)
    bench.decide(4)
    assert begun(steps) == ["begins", "followed", "followed"]
    bench.snapshot.unbind("placed-1")
    bench.decide(1)
    assert begun(steps)[0] == "ends"
    bench.decide(3)
