"""Order, number and outcome of the calls to per-pod plugins, seen by plugins that write down each call."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from rayched.framework.cycle_state import CycleState
from rayched.framework.lifecycle import Lifecycle
from rayched.framework.plugin import PostFilterResult
from rayched.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable, unschedulable
from rayched.plugins.default_binder import DefaultBinder
from rayched.v1.core_pb2 import Pod

POD = Pod()
POD.metadata.name = "web"


@dataclass
class Spy:
    """A plugin at all per-pod extension points; answers as it was told and writes each call into a shared list."""

    name: str
    calls: list[str] = field(default_factory=list)
    answers: dict[str, Status | Exception] = field(default_factory=dict)
    timeout: float = 0.0
    nominated: str | None = None

    def _answer(self, point: str) -> Status:
        self.calls.append(f"{point} {self.name}")
        answer = self.answers.get(point, SUCCESS)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def post_filter(self, state: CycleState, pod: Pod) -> tuple[PostFilterResult | None, Status]:
        status = self._answer("post_filter")
        return (None if self.nominated is None else PostFilterResult(self.nominated)), status

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._answer("reserve")

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._answer("unreserve")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return self._answer("permit"), self.timeout

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._answer("pre_bind")

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._answer("bind")

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._answer("post_bind")


def three(**answers: dict[str, Status | Exception]) -> tuple[Lifecycle, list[str]]:
    """Plugins A, B, C at every point; `answers` by plugin, then by point."""
    calls: list[str] = []
    spies = [Spy(name, calls, answers.get(name, {})) for name in "ABC"]
    lifecycle = Lifecycle(post_filter=spies, reserve=spies, permit=spies, pre_bind=spies, bind=spies, post_bind=spies)
    return lifecycle, calls


def run(lifecycle: Lifecycle, point: str) -> Status:
    arguments = (CycleState(), POD) if point == "post_filter" else (CycleState(), POD, "n1")
    outcome = getattr(lifecycle, point)(*arguments)
    if isinstance(outcome, Status):
        return outcome
    return outcome[1] if isinstance(outcome, tuple) else outcome.status


@pytest.mark.row("K6.5", "K6.2")
def test_reserve_asks_all_in_order_and_unreserve_reaches_all_in_reverse() -> None:
    lifecycle, calls = three()
    assert run(lifecycle, "reserve").ok
    assert lifecycle.unreserve(CycleState(), POD, "n1") == ()
    assert calls == ["reserve A", "reserve B", "reserve C", "unreserve C", "unreserve B", "unreserve A"]


@pytest.mark.row("K6.5")
def test_a_refused_reserve_stops_there_and_is_undone_for_all() -> None:
    lifecycle, calls = three(B={"reserve": unschedulable("no licence left")})
    assert run(lifecycle, "reserve") == Status(Code.UNSCHEDULABLE, ("no licence left",), "B")
    lifecycle.unreserve(CycleState(), POD, "n1")
    assert calls == ["reserve A", "reserve B", "unreserve C", "unreserve B", "unreserve A"]


@pytest.mark.row("K6.5", "K6.8")
def test_a_plugin_that_raises_while_it_is_informed_keeps_nobody_from_being_told() -> None:
    lifecycle, calls = three(B={"unreserve": ValueError("lost"), "post_bind": ValueError("lost")})
    (undone,) = lifecycle.unreserve(CycleState(), POD, "n1")
    (told,) = lifecycle.post_bind(CycleState(), POD, "n1")
    assert undone.code is told.code is Code.ERROR and undone.plugin == told.plugin == "B"
    assert calls == ["unreserve C", "unreserve B", "unreserve A", "post_bind A", "post_bind B", "post_bind C"]


@pytest.mark.row("K6.7")
@pytest.mark.parametrize(
    ("answers", "expected", "asked"),
    [
        ({}, SUCCESS, "A"),
        ({"A": {"bind": SKIP}}, SUCCESS, "AB"),
        ({"A": {"bind": SKIP}, "B": {"bind": SKIP}, "C": {"bind": SKIP}}, Status(Code.SKIP), "ABC"),
        ({"A": {"bind": SKIP}, "B": {"bind": unschedulable("gone")}}, Status(Code.UNSCHEDULABLE, ("gone",), "B"), "AB"),
    ],
    ids=["first takes it", "first leaves it", "nobody takes it", "second refuses"],
)
def test_bind_ends_at_the_first_plugin_that_does_not_skip(
    answers: dict[str, dict[str, Status | Exception]], expected: Status, asked: str
) -> None:
    lifecycle, calls = three(**answers)
    assert run(lifecycle, "bind") == expected
    assert calls == [f"bind {name}" for name in asked]


@pytest.mark.row("K6.7", "K6.8")
def test_pre_bind_stops_at_a_refusal_and_post_bind_tells_everyone() -> None:
    lifecycle, calls = three(B={"pre_bind": unschedulable("no disk")})
    assert run(lifecycle, "pre_bind") == Status(Code.UNSCHEDULABLE, ("no disk",), "B")
    assert lifecycle.post_bind(CycleState(), POD, "n1") == ()
    assert calls == ["pre_bind A", "pre_bind B", "post_bind A", "post_bind B", "post_bind C"]


@pytest.mark.row("K6.6")
def test_permit_waits_for_each_plugin_that_asks_and_no_longer_than_a_quarter_of_an_hour() -> None:
    calls: list[str] = []
    waits = {"permit": Status(Code.WAIT)}
    plugins = [Spy("A", calls), Spy("B", calls, waits, timeout=5.0), Spy("C", calls, waits, timeout=3600.0)]
    outcome = Lifecycle(permit=plugins).permit(CycleState(), POD, "n1")
    assert outcome.status.code is Code.WAIT
    assert outcome.timeouts == {"B": 5.0, "C": 900.0}
    assert calls == ["permit A", "permit B", "permit C"]


@pytest.mark.row("K6.6")
def test_a_rejection_ends_permit_even_after_somebody_asked_to_wait() -> None:
    lifecycle, calls = three(A={"permit": Status(Code.WAIT)}, B={"permit": unschedulable("no")})
    assert run(lifecycle, "permit") == Status(Code.UNSCHEDULABLE, ("no",), "B")
    assert calls == ["permit A", "permit B"]


POST_FILTER_CASES = [
    # answers by plugin; the code, the reasons and the plugin of the outcome; the plugins asked
    ({}, (Code.SUCCESS, (), "A"), "A"),
    ({"A": unschedulable("one")}, (Code.SUCCESS, (), "B"), "AB"),
    (
        {"A": unschedulable("one"), "B": unschedulable("two"), "C": unschedulable("three")},
        (Code.UNSCHEDULABLE, ("one", "two", "three"), "A"),
        "ABC",
    ),
    ({"A": unresolvable("never")}, (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("never",), "A"), "A"),
    ({"A": error("broken")}, (Code.ERROR, ('running PostFilter plugin "A": broken',), "A"), "A"),
]


@pytest.mark.row("F8", "K6.2")
@pytest.mark.parametrize(("answers", "expected", "asked"), POST_FILTER_CASES)
def test_post_filter_asks_in_order_until_one_knows(
    answers: dict[str, Status], expected: tuple[Code, tuple[str, ...], str], asked: str
) -> None:
    lifecycle, calls = three(**{name: {"post_filter": status} for name, status in answers.items()})
    assert run(lifecycle, "post_filter") == Status(*expected)
    assert calls == [f"post_filter {name}" for name in asked]


def test_post_filter_keeps_the_last_nomination_that_anyone_made() -> None:
    rejects = {"post_filter": unschedulable("no")}
    plugins = [Spy("A", answers=rejects, nominated="n7"), Spy("B", answers=rejects)]
    assert Lifecycle(post_filter=plugins).post_filter(CycleState(), POD)[0] == PostFilterResult("n7")


@pytest.mark.row("K6.3")
@pytest.mark.parametrize("point", ["post_filter", "reserve", "permit", "pre_bind", "bind"])
@pytest.mark.parametrize(
    ("answer", "text"),
    [(RuntimeError("boom"), "RuntimeError: boom"), (error("disk on fire"), "disk on fire")],
    ids=["raises", "answers ERROR"],
)
def test_a_broken_plugin_ends_the_attempt_with_an_error_that_names_it(point: str, answer: Status | Exception, text: str) -> None:
    lifecycle, calls = three(A={point: answer})
    status = run(lifecycle, point)
    assert status.code is Code.ERROR and status.plugin == "A"
    assert text in status.message() and '"A"' in status.message()
    assert calls == [f"{point} A"]


@pytest.mark.parametrize("point", ["reserve", "pre_bind"])
def test_a_code_that_an_extension_point_does_not_know_is_an_error(point: str) -> None:
    lifecycle, _ = three(A={point: Status(Code.WAIT)})
    assert run(lifecycle, point).code is Code.ERROR


class BinderOfMine(DefaultBinder):
    """Derived from one that need not be asked, but has something to say."""

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return unschedulable("not on a Friday")


@pytest.mark.parametrize(
    ("lifecycle", "takes_at_once", "binds_at_once", "tells_nobody"),
    [
        (Lifecycle(bind=[DefaultBinder()]), True, True, True),
        (Lifecycle(bind=[DefaultBinder(), Spy("A")]), True, True, True),
        (Lifecycle(bind=[Spy("A"), DefaultBinder()]), True, False, True),
        (Lifecycle(bind=[BinderOfMine()]), True, False, True),
        (Lifecycle(), True, False, True),
        (Lifecycle(bind=[DefaultBinder()], pre_bind=[Spy("A")]), True, False, True),
        (Lifecycle(bind=[DefaultBinder()], reserve=[Spy("A")]), False, True, True),
        (Lifecycle(bind=[DefaultBinder()], permit=[Spy("A")]), False, True, True),
        (Lifecycle(bind=[DefaultBinder()], post_bind=[Spy("A")]), True, True, False),
    ],
)
def test_only_plugins_whose_answer_is_known_need_not_be_asked(
    lifecycle: Lifecycle, takes_at_once: bool, binds_at_once: bool, tells_nobody: bool
) -> None:
    flags = lifecycle.takes_at_once, lifecycle.binds_at_once, lifecycle.tells_nobody
    assert flags == (takes_at_once, binds_at_once, tells_nobody)
    if binds_at_once:
        assert lifecycle.bind(CycleState(), POD, "n") is SUCCESS
