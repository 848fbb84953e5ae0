"""Plugins that take longer than their budget, on a clock that they move themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rayched.configuration.configuration_file import ConfigurationErrors, load
from rayched.configuration.profile_building import default_profile
from rayched.framework.cycle_state import CycleState
from rayched.framework.profile import TimeBudget, WhenExceeded
from rayched.framework.status import SUCCESS, Code, Status
from rayched.framework.time_budget import CycleMeter, PluginOverBudget
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import Attempt, AttemptFailure, AttemptPhase
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.testing import a_node, a_pod
from rayched.testing.plugins import registry_with
from rayched.v1.core_pb2 import Pod


class FakeClock:
    """Seconds; moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """Rejects node "a", prefers "b", and takes its time where it is told to."""

    name = "Slow"
    reads = Log.LABELS | Log.USAGE

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.seconds = dict.fromkeys(("filter", "score", "reserve"), 0.0)
        self.calls: list[str] = []

    def _take(self, what: str) -> None:
        self.calls.append(what)
        self.clock.now += self.seconds[what]

    def key(self, pod: Pod) -> tuple[()]:
        return ()

    def prepare(self, pod: Pod) -> None:
        return None

    def filter(self, state: None, rows: Rows) -> CodeColumn:
        self._take("filter")
        return np.where(self._is(rows, "a"), Code.UNSCHEDULABLE, Code.SUCCESS).astype(np.uint8)

    def reasons(self, state: None, rows: Rows, codes: CodeColumn) -> list[tuple[str, BoolColumn]]:
        return [("slowly no", codes != Code.SUCCESS)]

    def score(self, state: None, rows: Rows) -> ScoreColumn:
        self._take("score")
        return np.where(self._is(rows, "b"), 100, 0)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self._take("reserve")
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.calls.append("unreserve")

    @staticmethod
    def _is(rows: Rows, name: str) -> BoolColumn:
        return np.array([rows.snapshot.name_of(int(row)) == name for row in rows.index], np.bool_)


def config_of(budgets: str) -> str:
    return f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {{multiPoint: {{enabled: [{{name: Slow, weight: 100}}]}}}}
  pluginTimeBudgets: {budgets}
"""


class Bench:
    def __init__(self, budgets: str) -> None:
        self.clock = FakeClock()
        self.slow = Slow(self.clock)
        loaded = load(config_of(budgets), "config", registry_with({"Slow": lambda args: self.slow}))
        self.snapshot = Snapshot()
        for name, cpu in (("a", "64"), ("b", "2"), ("c", "1")):
            self.snapshot.add_node(a_node(name, cpu=cpu))
        self.scheduler = Scheduler(self.snapshot, loaded.profiles, seed=1, stopwatch=self.clock)
        self.templates = TemplateTable()
        self.count = 0

    def schedule(self) -> Attempt | AttemptFailure:
        self.count += 1
        pod = a_pod(f"pod-{self.count}", scheduler_name="default-scheduler", cpu="100m")
        return self.scheduler.schedule(PodToSchedule(str(self.count), pod.metadata.name, self.templates.intern(pod), pod), 0, 0.0)

    def node(self) -> str:
        found = self.schedule()
        assert isinstance(found, Attempt) and found.phase is AttemptPhase.READY
        return found.node_name

    def reason(self) -> str:
        found = self.schedule()
        assert isinstance(found, AttemptFailure) and found.status.code is Code.ERROR and found.status.plugin == "Slow"
        return found.message


@pytest.mark.parametrize("point", ["filter", "score"])
def test_an_attempt_whose_plugin_takes_too_long_fails_and_names_it(point: str) -> None:
    bench = Bench("[{name: Slow, perCycle: 50ms}]")
    assert bench.node() == "b"
    bench.slow.seconds[point] = 0.2
    bench.snapshot.update_node(a_node("c", cpu="1", labels={"new": ""}))
    expected = f'plugin "Slow": took 200 ms of a cycle, its budget is 50 ms; the last call was {point}'
    assert bench.reason() == expected
    # Nothing of the late answer was kept, so the next attempt pays again; and once it is quick, all is well.
    assert bench.reason() == expected
    bench.slow.seconds[point] = 0.0
    assert bench.node() == "b"


@pytest.mark.parametrize("point", ["filter", "score"])
def test_a_plugin_that_may_be_skipped_is_not_asked_again_in_that_cycle_and_the_pod_is_placed(point: str) -> None:
    bench = Bench("[{name: Slow, perCycle: 50ms, whenExceeded: Skip}]")
    bench.slow.seconds[point] = 0.2
    assert bench.node() == "a", "what the profile without the plugin says"
    assert bench.slow.calls.count(point) == 1
    assert [status.message() for status in bench.scheduler.plugin_problems] == [
        f'plugin "Slow": took 200 ms of a cycle, its budget is 50 ms; the last call was {point}'
    ]
    bench.slow.seconds[point] = 0.0
    assert bench.node() == "b", "the next cycle asks it again"


def test_the_calls_of_one_cycle_add_up_and_those_of_two_do_not() -> None:
    bench = Bench("[{name: Slow, perCycle: 100ms}]")
    bench.slow.seconds.update(filter=0.02, score=0.02)
    for _ in range(3):
        bench.snapshot.update_node(a_node("c", cpu="1", labels={"new": str(bench.count)}))
        assert bench.node() == "b"
    bench.slow.seconds.update(filter=0.06, score=0.06)
    bench.snapshot.update_node(a_node("c", cpu="1"))
    assert "took 120 ms" in bench.reason()


def test_a_late_reserve_is_undone_where_late_attempts_fail_and_counts_nothing_where_plugins_are_skipped() -> None:
    bench = Bench("[{name: Slow, perCycle: 50ms}]")
    bench.slow.seconds["reserve"] = 0.2
    assert "took 200 ms" in bench.reason()
    assert bench.slow.calls[-1] == "unreserve"
    assert not bench.scheduler.occupancy.assumed()
    bench = Bench("[{name: Slow, perCycle: 50ms, whenExceeded: Skip}]")
    bench.slow.seconds["reserve"] = 0.2
    assert bench.node() == "b"


def test_questions_outside_of_a_cycle_are_not_limited() -> None:
    bench = Bench("[{name: Slow, perCycle: 50ms}]")
    bench.slow.seconds["filter"] = 0.2
    assert "took 200 ms" in bench.reason()
    template = bench.templates.intern(a_pod("pod-1", scheduler_name="default-scheduler", cpu="100m"))
    explanation = bench.scheduler.engine("default-scheduler").explain(template)
    assert "Slow" in [column.plugin for column in explanation.rows.filters]


def test_a_budget_for_all_plugins_holds_for_those_that_have_none_of_their_own() -> None:
    bench = Bench('[{name: "*", perCycle: 1s}, {name: Slow, perCycle: 50ms, whenExceeded: Skip}]')
    bench.slow.seconds["score"] = 0.2
    assert bench.node() == "a"
    late = Bench('[{name: "*", perCycle: 100ms}]')
    late.slow.seconds["score"] = 0.2
    assert "its budget is 100 ms" in late.reason()


def test_budgets_change_no_decision_while_nobody_exceeds_them() -> None:
    one, other = Bench('[{name: "*", perCycle: 1s}]'), Bench("[]")
    assert [one.node() for _ in range(20)] == [other.node() for _ in range(20)]


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ("[{perCycle: 1s}]", "name: is required"),
        ("[{name: Slow}]", 'perCycle: is required, a duration such as "50ms"'),
        ("[{name: Slow, perCycle: 0s}]", "perCycle: must be greater than zero, found 0s"),
        ("[{name: Slow, perCycle: soon}]", 'perCycle: must be a duration such as "15s", found "soon"'),
        ("[{name: Slow, perCycle: 1s, whenExceeded: Sleep}]", 'whenExceeded: must be "Fail" or "Skip", found "Sleep"'),
        ("[{name: Slow, perCycle: 1s}, {name: Slow, perCycle: 2s}]", 'name: "Slow" has a budget already'),
        ("[{name: Nobody, perCycle: 1s}]", 'name: "Nobody" is no plugin of this profile; there are '),
    ],
)
def test_a_budget_that_makes_no_sense_is_told_with_its_place(budgets: str, message: str) -> None:
    slow: Callable[[Any], Any] = lambda args: Slow(FakeClock())  # noqa: E731
    with pytest.raises(ConfigurationErrors) as caught:
        load(config_of(budgets), "config", registry_with({"Slow": slow}))
    assert "config:6: profiles[0].pluginTimeBudgets[" in str(caught.value)
    assert message in str(caught.value)


CALLED_IN_A_CYCLE = (
    "key",
    "prepare",
    "filter",
    "score",
    "stack",
    "needs",
    "refusals",
    "score_groups",
)


@pytest.mark.parametrize("name", CALLED_IN_A_CYCLE)
def test_every_way_to_ask_a_plugin_counts(name: str) -> None:
    clock = FakeClock()

    class Sleeper:
        def __init__(self) -> None:
            self.name = "Sleeper"

        def sleep(self, *_: object) -> None:
            clock.now += 10.0

    setattr(Sleeper, name, Sleeper.sleep)
    profile = replace(default_profile(IN_TREE), filter=(Sleeper(),))
    meter = CycleMeter(clock, {"Sleeper": TimeBudget(0.2, WhenExceeded.FAIL)})
    (metered,) = meter.metered(profile).filter
    with (
        meter.cycle(),
        pytest.raises(PluginOverBudget, match=f"took 10000 ms of a cycle, its budget is 200 ms; the last call was {name}"),
    ):
        getattr(metered, name)(None, None)
