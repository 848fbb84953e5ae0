"""A plan asks the plugins that a pod concerns, and PreFilter's answers are part of it."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.engine.column_store import ColumnStore
from rayched.engine.domain_state import DomainRejection
from rayched.engine.planner import Plan, Planner
from rayched.engine.scale import scale_for
from rayched.engine.score_caps import FilterCap
from rayched.engine.shards import ColumnBuilder
from rayched.engine.signature import SeenPod
from rayched.engine.totals import KeptTotals
from rayched.framework.plugin_error import PluginError
from rayched.framework.profile import Profile
from rayched.framework.status import Code
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import TEMPLATES, a_snapshot, a_template
from tests.engine.toy_counting import Zones
from tests.engine.toy_plugins import Cordon, Crowd, Images, Named, OddNames, Ports, Rank, Room, a_profile
from tests.snapshot.objects import a_pod


class Bench:
    def __init__(self, profile: Profile) -> None:
        self.snapshot = a_snapshot(4)
        self.store = ColumnStore()
        totals = KeptTotals(self.snapshot, ColumnBuilder(self.snapshot, None).build)
        self.planner = Planner(self.snapshot, profile, self.store, totals, scale_for((1, 1, 1)))

    def plan(self, **labels: str) -> Plan:
        template = a_template(**labels)
        return self.planner.plan(self.planner.ask(template, SeenPod(template, self.snapshot)))


def test_sets_of_names_are_intersected_and_an_empty_one_is_a_rejection() -> None:
    bench = Bench(a_profile(pre_filter=(Named(), OddNames()), filters=(Room(),), scores=(Room(),)))
    assert bench.plan().narrowed is None and bench.plan().narrowing == []
    assert bench.plan(only="n1.n2").narrowed == {"n1", "n2"}
    both = bench.plan(only="n1.n2", odd="")
    assert both.narrowed == {"n1"} and both.narrowing == ["Named", "OddNames"] and both.status.ok
    none = bench.plan(only="n2", odd="")
    assert none.status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_parts_of_a_sum_are_by_what_changes_them() -> None:
    zones = Zones()
    bench = Bench(a_profile(filters=(Cordon(), Ports(), Room(), zones), scores=(Room(), Rank(), Crowd(), Images(), zones)))
    pod = a_pod(
        {"cpu": "100m"}, labels={"limit": "3", "alone": "", "shy": "", "factor": "1", "image": "a"}, ports=[("TCP", 80, "")]
    )
    template = TEMPLATES.intern(pod)
    plan = bench.planner.plan(bench.planner.ask(template, SeenPod(template, bench.snapshot)))
    found = bench.planner.stage(plan, with_scores=True)
    assert {type(cap) for cap in found.caps} == {FilterCap, DomainRejection}
    assert {one.asked.plugin.name for one in found.usage.questions} == {"Room"}
    assert [one.kept.plugin.name for one in found.rescaled] == ["Crowd"]
    assert [one.asked.plugin.name for one in found.counted] == ["Zones"]
    assert "Cordon" in {kept.questions[0].asked.plugin.name for kept in found.static.filters}
    filtering = bench.planner.stage(plan, with_scores=False)
    assert not (filtering.scores or filtering.rescaled or filtering.counted or filtering.static.scores)
    assert set(filtering.caps) == set(found.caps), "caps are shared"


def test_what_a_plan_holds_is_given_back() -> None:
    bench = Bench(a_profile(filters=(Cordon(), Room()), scores=(Room(), Rank())))
    plan = bench.plan(factor="1")
    plan.scoring = bench.planner.stage(plan, with_scores=True)
    assert len(bench.store) > 3 and [len(codes.questions) for codes in bench.planner.codes(plan)] == [1, 1]
    bench.planner.drop(plan)
    assert len(bench.store) == 0


def test_a_plugin_that_raises_leaves_nothing_behind() -> None:
    class Broken(Cordon):
        name = "Broken"

        def key(self, pod: Pod) -> Any:
            return ()

        def prepare(self, pod: Pod) -> Any:
            raise RuntimeError("broken")

        def filter(self, state: Any, rows: Rows) -> Any:
            return None

    bench = Bench(a_profile(filters=(Cordon(), Broken()), scores=(Room(),)))
    with pytest.raises(PluginError, match="broken"):
        bench.plan()
    assert len(bench.store) == 0
