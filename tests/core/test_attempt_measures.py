"""What is counted in bulk equals what is counted one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api.stages import Stage
from rayched.core import attempt_metrics as attempt_measures
from rayched.core.attempt_metrics import AttemptMeasures, attempts_label
from rayched.core.cache.records import CacheChange, NodeChanged, ObjectChanged, PodChanged
from rayched.framework.durations import Durations
from rayched.framework.status import error, unschedulable
from rayched.scheduler.attempt import AttemptFailure, Preemption
from rayched.store.errors import StoreBusy, StoreUnavailable
from rayched.store.transactions import Committed, Conflict
from rayched.v1.core_pb2 import Node
from tests.core.replica import Clock

PROFILES = ("one", "two")


def an_attempt(uid: str, profile: str, started: float) -> Any:
    return SimpleNamespace(uid=uid, started=started, template=SimpleNamespace(scheduler_name=profile))


def counted(durations: Durations) -> dict[tuple[str, ...], tuple[list[float], float]]:
    """Counts a bucket, and the sum, by labels."""
    found = {}
    for labels, buckets, total in durations.histograms():
        values = [value for _, value in buckets]
        found[labels] = [now - before for before, now in zip([0.0, *values], values, strict=False)], pytest.approx(total)
    return found


class OneByOne:
    """The same histograms, slow and plain."""

    def __init__(self, first: float, factor: float, n: int) -> None:
        self.bounds = [first * factor**i for i in range(n)]
        self.values: dict[tuple[str, ...], list[float]] = {}

    def see(self, labels: tuple[str, ...], value: float) -> None:
        self.values.setdefault(labels, []).append(value)

    def counted(self) -> dict[tuple[str, ...], tuple[list[float], float]]:
        found = {}
        for labels, values in self.values.items():
            buckets = [0.0] * (len(self.bounds) + 1)
            for value in values:
                buckets[bisect_left(self.bounds, value)] += 1
            found[labels] = buckets, sum(values)
        return found


def together(histograms: list[list[float]], n: int) -> list[float]:
    return [sum(buckets[bucket] for buckets in histograms) for bucket in range(n)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["bound", "failed", "broken"]),
        st.integers(0, 5),
        st.sampled_from(PROFILES),
        st.integers(1, 200),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS)
def test_attempts_are_counted_as_if_one_by_one(steps: list[tuple[str, int, str, int, bool, bool]]) -> None:
    clock = Clock(0.0)
    measures = AttemptMeasures(clock)
    attempts: Counter[tuple[str, str]] = Counter()
    durations, cycles = OneByOne(0.001, 2, 15), OneByOne(0.001, 2, 15)
    sli, tries = OneByOne(0.01, 2, 20), OneByOne(1, 2, 5)
    before: dict[str, list[float]] = {}
    open_cycle: float | None = None
    for what, pod, profile, milliseconds, batch_ends, scraped in steps:
        uid, started = f"pod-{pod}", clock.now
        if open_cycle is not None:
            cycles.see((), started - open_cycle)
        measures.cycle_began.append(started)
        open_cycle = started
        clock.now += milliseconds / 1024
        if what == "bound":
            measures.bound(an_attempt(uid, profile, started), clock.now)
            starts = [*before.pop(uid, []), started]
            sli.see((str(len(starts)) if len(starts) < 15 else "15+",), clock.now - starts[0])
            tries.see((), len(starts))
            result = "scheduled"
        else:
            failure = AttemptFailure(unschedulable("full") if what == "failed" else error("lost"), "")
            measures.failed(uid, profile, failure, started)
            before.setdefault(uid, []).append(started)
            result = "unschedulable" if what == "failed" else "error"
        attempts[result, profile] += 1
        durations.see((result, profile), clock.now - started)
        if batch_ends or scraped:
            cycles.see((), clock.now - open_cycle)
            open_cycle = None
            measures.batch_ended(clock.now)
            clock.now += 7.0
        if scraped:
            measures.fold()
    if open_cycle is not None:
        cycles.see((), clock.now - open_cycle)
    measures.batch_ended(clock.now)
    measures.fold()
    assert measures.attempts == attempts
    assert counted(measures.durations) == durations.counted()
    assert counted(measures.algorithm) == cycles.counted()
    assert counted(measures.sli) == sli.counted()
    assert counted(measures.tries) == tries.counted()
    of_attempts = [buckets for (result, _), (buckets, _) in durations.counted().items() if result == "scheduled"]
    of_pods = [buckets for buckets, _ in sli.counted().values()]
    assert measures.bound_durations() == (together(of_attempts, 16), together(of_pods, 21))


def test_what_was_noted_down_is_folded_before_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_measures, "FOLD_AT", 8)
    measures = AttemptMeasures(Clock(0.0))
    for number in range(100):
        measures.cycle_began.append(float(number))
        measures.bound(an_attempt(f"pod-{number}", "one", number), number + 0.5)
        measures.batch_ended(number + 0.5)
        assert len(measures.cycle_began) <= 8
    measures.fold()
    assert measures.attempts == {("scheduled", "one"): 100}
    assert counted(measures.algorithm)[()][1] == pytest.approx(50.0)


def test_a_pod_that_is_gone_and_one_of_a_former_term_begin_anew() -> None:
    measures = AttemptMeasures(Clock(10.0))
    for uid in ("gone", "of-former-term", "again"):
        measures.failed(uid, "one", AttemptFailure(unschedulable("full"), ""), 9.0)
    measures.forget("gone")
    measures.bound(an_attempt("again", "one", 10.0), 11.0)
    measures.bound(an_attempt("gone", "one", 10.0), 11.0)
    measures.end_term()
    measures.bound(an_attempt("of-former-term", "one", 10.0), 11.0)
    measures.fold()
    assert {labels: sum(buckets) for labels, (buckets, _) in counted(measures.sli).items()} == {("2",): 1, ("1",): 2}
    assert [attempts_label(n) for n in (1, 14, 15, 99)] == ["1", "14", "15+", "15+"]


def test_preemptions_are_counted_with_their_victims_and_timed_until_they_are_carried_out() -> None:
    clock = Clock(10.0)
    measures = AttemptMeasures(clock)
    for uid in ("p", "q"):
        failure = AttemptFailure(unschedulable("full"), "", preemption=Preemption("n1", ("a", "b", "c"), ()))
        measures.failed(uid, "one", failure, 9.0)
    measures.made_room("p", "success", 12.0)
    measures.forget("q")
    measures.made_room("q", "success", 13.0)
    assert counted(measures.victims) == {(): ([0, 0, 2, 0, 0, 0, 0, 0], 6)}
    ((labels, (_, seconds)),) = counted(measures.rooms).items()
    assert (labels, seconds) == (("success",), 2.0)


class Answer:
    def __init__(self, succeeded: bool) -> None:
        self.succeeded = succeeded


CONFLICT = Conflict(None, (), 5)
ANSWERS = [
    (Answer(True), [Committed(5), Committed(5)], "ok"),
    (Answer(True), [Committed(5), CONFLICT], "conflict"),
    (Answer(False), [], "fenced"),
    (StoreUnavailable("no answer"), [], "unknown"),
    (StoreBusy("too many"), [], "error"),
]


@pytest.mark.parametrize(("answer", "outcomes", "label"), ANSWERS)
def test_transactions_are_told_by_outcome_and_writes_by_success(answer: Any, outcomes: list[Any], label: str) -> None:
    measures = AttemptMeasures(Clock(0.0))
    measures.sent(1, "bind", 2, 1.0)
    measures.sent(2, "status", 3, 1.0)
    assert measures.under_way() == {"bind": 2, "status": 3}
    writes: Any = [(None, outcome) for outcome in outcomes]
    measures.answered(1, answer, writes, 1.5)
    measures.answered(7, answer, writes, 1.5)
    assert measures.under_way() == {"status": 3}
    assert {key: sum(buckets) for key, (buckets, _) in counted(measures.transactions).items()} == {("bind", label): 1}
    result = "success" if label == "ok" else "error"
    assert {key: sum(buckets) for key, (buckets, _) in counted(measures.writes).items()} == {("bind", result): 2}


def test_one_delivery_in_so_many_is_timed_change_by_change() -> None:
    clock = Clock(0.0)
    measures = AttemptMeasures(clock)
    pending: Any = SimpleNamespace(stage=Stage.PENDING)
    bound: Any = SimpleNamespace(stage=Stage.BOUND)
    node: Any = Node()
    changes: list[CacheChange] = [
        PodChanged(None, pending),
        PodChanged(pending, pending),
        PodChanged(pending, None),
        PodChanged(pending, bound),
        PodChanged(bound, bound),
        PodChanged(bound, None),
        NodeChanged(None, node),
        NodeChanged(node, None),
        ObjectChanged("Service", node, node),
    ]
    for _ in range(2 * attempt_measures.SAMPLED_EVERY):
        taken = []
        for change in measures.timed(changes):
            taken.append(change)
            clock.now += 0.25
        assert taken == changes
    labels = {key[0]: (sum(buckets), seconds) for key, (buckets, seconds) in counted(measures.events).items()}
    names = ["UnschedulablePodAdd", "UnschedulablePodUpdate", "UnschedulablePodDelete"]
    names += ["AssignedPodAdd", "AssignedPodUpdate", "AssignedPodDelete", "NodeAdd", "NodeDelete", "ServiceUpdate"]
    assert labels == dict.fromkeys(names, (2, 0.5))
