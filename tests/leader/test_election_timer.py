"""The timer that an election asks for: it does everything in time without any other tick, and asks for none that is of no use."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from leader import effects as fx
from leader import events as ev
from leader.record import Epoch
from tests.leader.model import Desk, a_config, a_record

STEP_SECONDS = 0.25
"""All periods of the desk's configuration are multiples of it, its jitter included."""
BEHAVIOURS = ("answer", "lost", "failed", "hangs", "hangs committed")


class NotedDesk(Desk):
    """Keeps when each effect came. `restless`: a tick at each step of time, besides those that were asked for."""

    restless = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.noted: list[tuple[float, fx.Effect]] = []

    def _perform(self, effect: fx.Effect) -> list[ev.Event]:
        # That a renewal had no answer is told when something else happens.
        if not isinstance(effect, fx.ArmTimer | fx.NotRenewed):
            self.noted.append((round(self.now, 6), effect))
        return super()._perform(effect)

    def pass_time(self, seconds: float) -> Desk:
        if not self.restless:
            return super().pass_time(seconds)
        for _ in range(round(seconds / STEP_SECONDS)):
            super().pass_time(STEP_SECONDS)
            self.do(ev.Tick())
        return self

    def late_answers(self) -> None:
        """Whatever hung is answered as if it had arrived only now, unless it is too late to be heard."""
        waiting, self.open_requests = self.open_requests, []
        sent = {request.number: moment for request, moment in zip(self.requests, self.times, strict=True)}
        for request in waiting:
            if self.now < sent[request.number] + request.timeout_ns / 1e9:
                self.do(ev.Answered(request.number, self.store.perform(request)))


class RestlessDesk(NotedDesk):
    restless = True


def happens(desk: NotedDesk, what: str) -> None:
    match what:
        case "taken":
            desk.store.put(a_record("bing", 3.0), Epoch(1, "bing", "of-bing"))
            desk.watch()
        case "seen":
            desk.watch()
        case "wiped":
            desk.store.delete_record()
            desk.watch()
        case "resign":
            desk.do(ev.ResignRequested("asked to"))
        case "new term":
            desk.do(ev.NewTermRequested())
        case "drained":
            desk.do(ev.Drained())
        case "alive":
            desk.do(ev.ProgressReported(round(desk.now * 1e9)))
        case "answers":
            desk.late_answers()
        case "stop":
            desk.do(ev.StopRequested())


WHATS = ("taken", "seen", "wiped", "resign", "new term", "drained", "alive", "answers", "nothing", "nothing")
moments = st.tuples(st.sampled_from(WHATS), st.integers(0, 24), st.lists(st.sampled_from(BEHAVIOURS), max_size=5))
stories = st.lists(moments, max_size=8)


def told(kind: type[NotedDesk], story: list[tuple[str, int, list[str]]], drains: bool, suspend: bool) -> NotedDesk:
    config = a_config(renew_deadline=7.5, progress_limit=4.0, suspend=suspend)
    desk = kind(config=config, drains=drains, uniform=0.625)
    desk.start()
    for what, steps, script in story:
        happens(desk, what)
        desk.script = deque(script)
        desk.pass_time(steps * STEP_SECONDS)
    happens(desk, "stop")
    desk.pass_time(10)
    return desk


@settings(max_examples=100)
@given(stories, st.booleans(), st.booleans())
def test_whoever_is_ticked_all_the_time_does_nothing_that_the_timer_alone_does_not_bring(
    story: list[tuple[str, int, list[str]]], drains: bool, suspend: bool
) -> None:
    asked, restless = (told(kind, story, drains, suspend) for kind in (NotedDesk, RestlessDesk))
    assert asked.noted == restless.noted


@settings(max_examples=100)
@given(stories, st.booleans(), st.booleans())
def test_each_renewal_is_told_of_at_most_once_and_a_tick_asked_for_is_ahead(
    story: list[tuple[str, int, list[str]]], drains: bool, suspend: bool
) -> None:
    desk = told(NotedDesk, story, drains, suspend)
    outcomes = desk.of(fx.Renewed) + desk.of(fx.NotRenewed)
    assert len(outcomes) <= desk.calls.count("renew") + desk.calls.count("begin term")
    assert desk.due is None or desk.due > desk.now
    assert len(desk.of(fx.Ended)) == (1 if desk.state == "stopped" else 0)
