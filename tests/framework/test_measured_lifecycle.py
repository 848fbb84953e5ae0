"""The lifecycle with a stopwatch does what the plain one does, and its counts are those of the calls."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rayched.framework.cycle_state import CycleState
from rayched.framework.lifecycle import Lifecycle
from rayched.framework.measured_lifecycle import MeasuredLifecycle, PointDurations
from rayched.framework.profile import Profile
from rayched.framework.status import SKIP, Code, Status, error, unschedulable
from tests.engine.toy_plugins import NoQueueSort
from tests.framework.test_lifecycle import POD, Spy

TICK = 0.0003

CASES: dict[str, tuple[str, dict[str, dict[str, Status | Exception]], dict[str, str]]] = {
    # what is called, what plugins answer, and the status of each call that is made
    "all agree": ("reserve", {}, {"A": "Success", "B": "Success"}),
    "the first refuses": ("reserve", {"A": {"reserve": unschedulable("no")}}, {"A": "Unschedulable"}),
    "the second breaks": ("pre_bind", {"B": {"pre_bind": ValueError("lost")}}, {"A": "Success", "B": "Error"}),
    "one waits": ("permit", {"B": {"permit": Status(Code.WAIT)}}, {"A": "Success", "B": "Wait"}),
    "the second binds": ("bind", {"A": {"bind": SKIP}}, {"A": "Skip", "B": "Success"}),
    "no room": (
        "post_filter",
        {name: {"post_filter": unschedulable("full")} for name in "AB"},
        {"A": "Unschedulable", "B": "Unschedulable"},
    ),
    "an error": ("bind", {"A": {"bind": error("gone")}}, {"A": "Error"}),
    "undone": ("unreserve", {}, {"A": "Success", "B": "Success"}),
    "told, and one breaks": ("post_bind", {"A": {"post_bind": ValueError("lost")}}, {"A": "Error", "B": "Success"}),
}


@pytest.mark.parametrize("case", CASES)
def test_it_answers_and_calls_as_the_plain_one_and_notes_down_each_call(case: str) -> None:
    point, answers, calls = CASES[case]
    plain_calls: list[str] = []
    measured_calls: list[str] = []
    durations = PointDurations((n * TICK for n in itertools.count()).__next__)
    plain: Any = _profile(plain_calls, answers).lifecycle()
    measured: Any = MeasuredLifecycle(_profile(measured_calls, answers), durations)
    arguments = (CycleState(), POD) if point == "post_filter" else (CycleState(), POD, "n1")
    outcome = getattr(plain, point)(*arguments)
    assert getattr(measured, point)(*arguments) == outcome
    assert measured_calls == plain_calls
    title = "".join(word.capitalize() for word in point.split("_"))
    ((labels, buckets, seconds),) = durations.points.histograms()
    assert labels == (title, _status_of(outcome), "toy") and buckets[-1][1] == 1
    assert seconds == pytest.approx(TICK * (1 + 2 * len(calls))), "two readings around the point, two around each plugin"
    found = {labels: buckets[-1][1] for labels, buckets, _ in durations.plugins.histograms()}
    assert found == {(name, title, status): 1 for name, status in calls.items()}


def test_extension_points_without_plugins_are_not_told() -> None:
    durations = PointDurations(lambda: 0.0)
    measured = MeasuredLifecycle(Profile("toy", NoQueueSort(), bind=()), durations)
    assert not measured.has_post_filter
    assert measured.reserve(CycleState(), POD, "n1").ok and measured.permit(CycleState(), POD, "n1").status.ok
    assert list(durations.points.histograms()) == []


def _profile(calls: list[str], answers: dict[str, dict[str, Status | Exception]]) -> Profile:
    spies: Any = tuple(Spy(name, calls, answers.get(name, {})) for name in "AB")
    points = dict.fromkeys(("post_filter", "reserve", "permit", "pre_bind", "bind", "post_bind"), spies)
    profile = Profile("toy", NoQueueSort(), **points)
    assert isinstance(profile.lifecycle(), Lifecycle)
    return profile


def _status_of(outcome: Any) -> str:
    if isinstance(outcome, tuple) and all(isinstance(one, Status) for one in outcome):
        return "Error" if outcome else "Success"  # what was raised while plugins were told
    status = outcome if isinstance(outcome, Status) else outcome[1] if isinstance(outcome, tuple) else outcome.status
    return "".join(word.capitalize() for word in status.code.name.split("_"))
