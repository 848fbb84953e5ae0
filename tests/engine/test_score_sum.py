"""A plan's sum knows which columns it consists of, and whether all of them were evaluated once."""

from __future__ import annotations

from rayched.engine.engine import Engine
from rayched.engine.score_caps import FilterCap
from tests.engine.spies import TEMPLATES, a_snapshot
from tests.engine.toy_plugins import Cordon, Ports, Rank, Room, a_profile
from tests.snapshot.objects import a_pod


def test_it_is_built_once_all_its_columns_are() -> None:
    snapshot = a_snapshot(4)
    engine = Engine(snapshot, a_profile(filters=(Cordon(), Ports(), Room()), scores=(Room(), Rank())))
    template = TEMPLATES.intern(a_pod({"cpu": "100m"}, labels={"factor": "1"}, ports=[("TCP", 80, "")]))
    plan = engine._plan(template)
    found = engine._planner.stage(plan, with_scores=True)
    (cap,) = found.caps
    assert isinstance(cap, FilterCap) and cap.filter in found.kept() and found.usage in found.kept()
    assert not found.was_built()
    build = engine._builder.build
    for kept in found.kept():
        assert not found.was_built()
        kept.refresh(build)
    assert found.was_built()
    other = engine._planner.stage(plan, with_scores=True)
    assert other is not found and other != found and other.kept() == found.kept(), "columns are shared, sums are not"
    engine.evaluate(template)
    scoring = plan.scoring
    assert scoring is not None and scoring.bounds is not None and scoring.was_built()
