"""The cycle over a snapshot: which extension points are reached, in which order, and what is undone when one of them says no."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from rayched.configuration.profile_building import default_profile
from rayched.engine.engine import Engine
from rayched.framework.cycle_state import CycleState
from rayched.framework.diagnosis import Diagnosis
from rayched.framework.plugin import PostFilterResult
from rayched.framework.profile import Profile
from rayched.framework.status import SUCCESS, Code, Status, error, unschedulable
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import Attempt, AttemptFailure, AttemptPhase
from rayched.scheduler.post_filter import DIAGNOSIS
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.columns import Log
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_node, a_pod


@dataclass
class Spy:
    """A plugin at every extension point of an attempt; writes down each call and answers as it was told."""

    name: str = "Spy"
    calls: list[str] = field(default_factory=list)
    answers: dict[str, Status] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    reads = Log.USAGE

    def _answer(self, point: str) -> Status:
        self.calls.append(point)
        return self.answers.get(point, SUCCESS)

    def key(self, pod: Pod) -> str:
        return "spy"

    def prepare(self, pod: Pod) -> None:
        self.calls.append("prepare")

    def filter(self, state: None, rows: Rows) -> None:
        if "filter" not in self.calls:
            self.calls.append("filter")

    def reasons(self, state: None, rows: Rows, codes: Any) -> list[Any]:
        return []

    def score(self, state: None, rows: Rows) -> Any:
        if "score" not in self.calls:
            self.calls.append("score")
        return np.arange(rows.n, dtype=np.int64)

    def normalize(self, raw: Any, low: int, high: int) -> Any:
        if "normalize" not in self.calls:
            self.calls.append("normalize")
        return np.zeros(len(raw), np.int64)

    def post_filter(self, state: CycleState, pod: Pod) -> tuple[PostFilterResult | None, Status]:
        self.seen["diagnosis"] = state.read(DIAGNOSIS)
        return PostFilterResult("n1"), self._answer("post_filter")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        state.write("by reserve", node_name)
        return self._answer("reserve")

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._answer("unreserve")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return self._answer("permit"), 5.0

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.seen["by reserve"] = state.read("by reserve")
        return self._answer("pre_bind")

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._answer("bind")

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._answer("post_bind")


def with_spy(spy: Spy, **changes: Any) -> Profile:
    profile = default_profile(IN_TREE)
    points = dict.fromkeys(("post_filter", "reserve", "permit", "pre_bind", "post_bind"), (spy,))
    weights = {**profile.weights, "Spy": 1}
    return replace(
        profile,
        filter=(*profile.filter, spy),
        score=(*profile.score, spy),
        weights=weights,
        bind=(spy, *profile.bind),
        **{**points, **changes},  # type: ignore[arg-type]
    )


class Bench:
    """A scheduler over nodes of 4 CPUs."""

    def __init__(self, *nodes: str, spy: Spy | None = None, seed: int = 1) -> None:
        self.snapshot = Snapshot()
        for name in nodes:
            self.snapshot.add_node(a_node(name))
        self.spy = spy or Spy()
        profile = with_spy(self.spy)
        self.scheduler = Scheduler(self.snapshot, {profile.scheduler_name: profile}, seed)
        self.templates = TemplateTable()

    def schedule(self, pod: Pod, now: float = 0.0) -> Attempt | AttemptFailure:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        return self.scheduler.schedule(PodToSchedule(pod.metadata.uid, name, self.templates.intern(pod), pod), 0, now)

    def assumed(self) -> int:
        return self.scheduler.occupancy.n_assumed


def scheduled(outcome: Attempt | AttemptFailure) -> Attempt:
    assert isinstance(outcome, Attempt)
    return outcome


def failed(outcome: Attempt | AttemptFailure | None) -> AttemptFailure:
    assert isinstance(outcome, AttemptFailure)
    return outcome


@pytest.mark.row("K6.2", "K6.8", "F7")
def test_an_attempt_passes_every_extension_point_in_order_and_each_once() -> None:
    bench = Bench("n1", "n2")
    attempt = scheduled(bench.schedule(a_pod("web")))
    assert bench.scheduler.begin_binding(attempt, "attempt-1") is None
    bench.scheduler.bound(attempt)
    assert bench.spy.calls == [
        *("prepare", "filter", "score", "normalize"),
        *("reserve", "permit", "pre_bind", "bind", "post_bind"),
    ]
    assert bench.spy.seen["by reserve"] == attempt.node_name, "what Reserve wrote is there in PreBind"
    assert bench.assumed() == 1, "the room stays taken until the pod is seen bound"


REFUSALS = [
    ("reserve", ["reserve", "unreserve"]),
    ("permit", ["reserve", "permit", "unreserve"]),
    ("pre_bind", ["reserve", "permit", "pre_bind", "unreserve"]),
    ("bind", ["reserve", "permit", "pre_bind", "bind", "unreserve"]),
]


@pytest.mark.row("F11", "K6.5", "K6.7")
@pytest.mark.parametrize(("point", "calls"), REFUSALS)
@pytest.mark.parametrize("broken", [False, True], ids=["rejects", "breaks"])
def test_a_refusal_after_the_node_was_chosen_undoes_everything(point: str, calls: list[str], broken: bool) -> None:
    answer = error("no disk") if broken else unschedulable("no disk")
    bench = Bench("n1", spy=Spy(answers={point: answer}))
    outcome = bench.schedule(a_pod("web"))
    if isinstance(outcome, Attempt):
        failure = failed(bench.scheduler.begin_binding(outcome, "attempt-1"))
    else:
        failure = outcome
    assert [call for call in bench.spy.calls if call in {name for name, _ in REFUSALS} | {"unreserve"}] == calls
    assert bench.assumed() == 0 and bench.scheduler.attempts() == []
    if broken:
        assert not failure.rejected and not failure.unschedulable_plugins and "no disk" in failure.message
    else:
        assert failure.unschedulable_plugins == {"Spy"} and failure.message == "0/1 nodes are available: 1 no disk."


def test_a_plugin_that_answers_pending_is_told_apart() -> None:
    bench = Bench("n1", spy=Spy(answers={"permit": Status(Code.PENDING, ("soon",))}))
    failure = failed(bench.schedule(a_pod("web")))
    assert failure.pending_plugins == {"Spy"} and not failure.unschedulable_plugins


@pytest.mark.row("F8", "K1.3")
def test_post_filter_is_asked_only_where_no_node_is_feasible_and_knows_why() -> None:
    bench = Bench("n1", "n2", spy=Spy(answers={"post_filter": unschedulable("preemption is not helpful")}))
    failure = failed(bench.schedule(a_pod("web", cpu="9")))
    assert failure.message == "0/2 nodes are available: 2 Insufficient cpu. preemption is not helpful"
    assert failure.unschedulable_plugins == {"NodeResourcesFit"} and failure.nominated_node_name == "n1"
    assert isinstance(bench.spy.seen["diagnosis"], Diagnosis)
    assert "reserve" not in bench.spy.calls
    scheduled(bench.schedule(a_pod("small")))
    assert bench.spy.calls.count("post_filter") == 1


def test_without_any_node_nobody_is_asked_and_the_pod_is_not_held_by_a_plugin() -> None:
    bench = Bench()
    failure = failed(bench.schedule(a_pod("web")))
    assert failure.rejected and failure.message == "no nodes available to schedule pods"
    assert not failure.unschedulable_plugins and "post_filter" not in bench.spy.calls


@pytest.mark.row("K6.6")
def test_a_wait_ends_with_a_word_or_with_its_time() -> None:
    bench = Bench("n1", spy=Spy(answers={"permit": Status(Code.WAIT)}))
    attempts = [scheduled(bench.schedule(a_pod(name), now=100.0)) for name in ("a", "b", "c")]
    assert {attempt.phase for attempt in attempts} == {AttemptPhase.WAITING} and bench.assumed() == 3
    bench.scheduler.waiting.allow("uid-a", "Spy")
    bench.scheduler.waiting.reject("uid-b", "Spy", "go away")
    ended = {attempt.uid: failure for attempt, failure in bench.scheduler.decided_waits(104.9)}
    assert ended["uid-a"] is None and failed(ended["uid-b"]).message == "0/1 nodes are available: 1 go away."
    assert attempts[0].phase is AttemptPhase.READY
    ((attempt, failure),) = bench.scheduler.decided_waits(105.0)
    assert attempt.uid == "uid-c" and failed(failure).unschedulable_plugins == {"Spy"}
    assert bench.assumed() == 1 and bench.spy.calls.count("unreserve") == 2


@pytest.mark.row("F10", "K6.1")
def test_pods_are_decided_one_after_the_other_each_seeing_what_the_others_took() -> None:
    bench = Bench("n1", "n2")
    nodes = [scheduled(bench.schedule(a_pod(name, cpu="3"))).node_name for name in ("a", "b")]
    assert sorted(nodes) == ["n1", "n2"]
    failed(bench.schedule(a_pod("c", cpu="3")))


@pytest.mark.row("K1.2")
def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    def run(seed: int) -> list[str]:
        bench = Bench(*(f"n{i}" for i in range(40)), seed=seed)
        return [scheduled(bench.schedule(a_pod(f"p{i}", cpu="100m"))).node_name for i in range(30)]

    assert run(1) == run(1) != run(2)


def test_rolling_back_twice_undoes_once_and_void_undoes_all() -> None:
    bench = Bench("n1")
    first, second = (scheduled(bench.schedule(a_pod(name))) for name in ("a", "b"))
    bench.scheduler.roll_back(first)
    bench.scheduler.roll_back(first)
    assert bench.spy.calls.count("unreserve") == 1 and bench.assumed() == 1
    bench.scheduler.begin_binding(second, "attempt-1")
    bench.scheduler.bound(second)
    bench.scheduler.void()
    assert bench.assumed() == 0 and bench.spy.calls.count("unreserve") == 1


def test_a_plugin_that_raises_while_it_is_informed_is_reported() -> None:
    class Clumsy(Spy):
        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            raise RuntimeError("dropped it")

    bench = Bench("n1", spy=Clumsy())
    bench.scheduler.roll_back(scheduled(bench.schedule(a_pod("web"))))
    (problem,) = bench.scheduler.plugin_problems
    assert problem.plugin == "Spy" and "dropped it" in problem.message() and bench.assumed() == 0
    (told,) = bench.scheduler.raised.take()
    assert told.startswith(problem.message()) and 'raise RuntimeError("dropped it")' in told


def test_an_engine_that_breaks_over_a_pod_ends_its_attempt_and_is_told_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("n1")

    def broken(*_: object, **__: object) -> object:
        raise ValueError("no such row")

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "evaluate", broken)
        failure = bench.schedule(a_pod("web"))
    assert isinstance(failure, AttemptFailure) and "evaluating the nodes: ValueError: no such row" in failure.message
    (told,) = bench.scheduler.raised.take()
    assert told.startswith("evaluating the nodes: ValueError: no such row") and 'raise ValueError("no such row")' in told
    assert scheduled(bench.schedule(a_pod("other"))).node_name == "n1"
