"""Backoff: durations, the whole-second windows, and who may leave early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.queue.backoff import BackoffPolicy, BackoffQueue, BackoffSettingsError
from rayched.queue.queued_pod import QueuedPodInfo
from tests.queue.builders import by_priority, pending


def failed(name: str, at: float, *, rejections: int = 0, errors: int = 0, priority: int = 0) -> QueuedPodInfo:
    pod = QueuedPodInfo(pending(name, priority=priority), at)
    pod.unschedulable_count, pod.consecutive_errors = rejections, errors
    pod.unschedulable_plugins = frozenset() if errors else frozenset({"Fit"})
    return pod


def a_backoff(*pods: QueuedPodInfo, policy: BackoffPolicy | None = None) -> BackoffQueue:
    queue = BackoffQueue(policy or BackoffPolicy(), by_priority)
    for pod in pods:
        queue.add(pod)
    return queue


def names(pods: list[QueuedPodInfo]) -> list[str]:
    return [pod.pod.metadata.name for pod in pods]


@pytest.mark.row("Q30")
@pytest.mark.parametrize(
    ("initial", "maximum", "durations"),
    [
        (1, 10, [0, 1, 2, 4, 8, 10, 10, 10]),
        (1, 8, [0, 1, 2, 4, 8, 8, 8]),
        (2, 5, [0, 2, 4, 5, 5]),
        (3, 3, [0, 3, 3]),
        (0.5, 60, [0, 0.5, 1, 2, 4, 8, 16, 32, 60, 60]),
    ],
)
def test_the_wait_doubles_with_each_failure_up_to_the_maximum(initial: float, maximum: float, durations: list[float]) -> None:
    policy = BackoffPolicy(initial, maximum)
    assert [policy.duration(failures) for failures in range(len(durations))] == durations
    assert policy.duration(10**6) == maximum


@given(st.integers(1, 10**4), st.integers(1, 10**6), st.integers(0, 200))
def test_the_wait_is_the_one_found_by_doubling_step_by_step(initial: int, factor: int, failures: int) -> None:
    maximum = initial * factor
    wait = 0 if failures == 0 else initial
    for _ in range(failures - 1):
        wait = min(2 * wait, maximum)
    assert BackoffPolicy(initial, maximum).duration(failures) == wait


@pytest.mark.row("D9", "Q18")
@pytest.mark.parametrize(
    ("initial", "maximum", "text"),
    [
        (0, 10, "podInitialBackoffSeconds: 0 must be greater than 0"),
        (5, 1, "podMaxBackoffSeconds: 1 must be greater than or equal"),
    ],
)
def test_settings_that_make_no_sense_are_refused(initial: float, maximum: float, text: str) -> None:
    with pytest.raises(BackoffSettingsError, match=text):
        BackoffPolicy(initial, maximum)


@pytest.mark.parametrize(
    ("failed_at", "rejections", "backing_off_until"),
    [(0.0, 1, 2.0), (0.999, 1, 2.0), (1.0, 1, 3.0), (0.25, 2, 3.0), (0.25, 5, 11.0), (7.5, 9, 18.0)],
)
@pytest.mark.row("Q29")
def test_a_wait_ends_with_the_second_that_its_end_falls_into(failed_at: float, rejections: int, backing_off_until: float) -> None:
    pod = failed("a", failed_at, rejections=rejections)
    queue = a_backoff(pod)
    assert queue.is_backing_off(pod, backing_off_until - 0.001)
    assert not queue.is_backing_off(pod, backing_off_until)
    assert queue.next_due() == backing_off_until
    assert queue.seconds_left(pod, failed_at) == backing_off_until - failed_at
    assert queue.seconds_left(pod, backing_off_until) == 0


def test_a_pod_that_never_failed_does_not_wait() -> None:
    pod = failed("a", 100.0)
    assert not a_backoff().is_backing_off(pod, 0.0)


def test_errors_alone_count_while_there_are_any() -> None:
    pod = failed("a", 0.0, rejections=5, errors=1)
    assert a_backoff().ends(pod) == 1.0


@pytest.mark.row("Q29")
def test_pods_leave_by_the_second_of_their_end_and_then_in_the_order_of_active_q() -> None:
    queue = a_backoff(
        failed("late", 0.0, rejections=4, priority=100),
        failed("low", 0.1, rejections=1, priority=1),
        failed("high", 0.9, rejections=1, priority=9),
        failed("middle", 0.5, rejections=1, priority=5),
    )
    assert names(queue.completed(1.999)) == []
    assert names(queue.completed(2.0)) == ["high", "middle", "low"]
    assert names(queue.completed(9.0)) == ["late"]


def test_a_pod_that_met_an_error_is_never_popped_early() -> None:
    queue = a_backoff(failed("error", 0.0, errors=1), failed("rejected", 0.0, rejections=3))
    assert (queue.n_rejected, queue.n_errors) == (1, 1)
    assert names([queue.pop()]) == ["rejected"]
    assert queue.n_rejected == 0
    assert names(queue.completed(2.0)) == ["error"]


class Counting(BackoffQueue):
    """Writes down which pods it is asked about."""

    asked: list[str]

    def is_backing_off(self, pod: QueuedPodInfo, now: float) -> bool:
        self.asked.append(pod.pod.metadata.name)
        return super().is_backing_off(pod, now)


@pytest.mark.row("Q61")
def test_flushing_looks_no_further_than_the_first_pod_that_still_waits() -> None:
    queue = Counting(BackoffPolicy(), by_priority)
    queue.asked = []
    for i in range(50):
        queue.add(failed(f"p{i}", float(i), rejections=1))
    assert names(queue.completed(4.0)) == ["p0", "p1", "p2"]
    assert queue.asked == ["p0", "p1", "p2", "p3"]


@pytest.mark.row("G17")
@pytest.mark.parametrize(
    ("failures", "members", "seconds"), [(3, 100, 4.0), (5, 1, 10.0), (5, 4, 16.0), (9, 4, 20.0), (9, 100, 100.0)]
)
def test_the_longest_wait_of_a_group_grows_by_the_root_of_its_members(failures: int, members: int, seconds: float) -> None:
    assert BackoffPolicy().duration(failures, members) == seconds
    one = pending("g")._replace(members=members)
    pod = QueuedPodInfo(one, 0.0)
    pod.unschedulable_count = failures
    assert a_backoff().ends(pod) == seconds
    pod.absorb(one._replace(members=1))
    pod.backoff_until = None
    assert a_backoff().ends(pod) == min(seconds, 10.0)
