"""How attempts of a call are spaced, and which failures are worth another one. No clock: tenacity's states are made by hand."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import tenacity

from rayched.client import ApiError
from rayched.client.endpoints import EndpointFailures, Patience, retry_rules, worth_repeating
from rayched.client.errors import ClientClosed

Code = grpc.StatusCode


def an_error(code: Any, *, retry_after: float | None = None, budget: str = "", never_sent: bool = False) -> ApiError:
    error = ApiError(code, "no")
    error.retry_after_seconds, error.budget, error.never_sent = retry_after, budget, never_sent
    return error


def after(error: ApiError, attempt: int, elapsed: float, upcoming: float = 0.0) -> tenacity.RetryCallState:
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number, state.upcoming_sleep = attempt, upcoming
    state.start_time, state.outcome_timestamp = 100.0, 100.0 + elapsed
    state.outcome = tenacity.Future.construct(attempt, error, True)
    return state


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        (an_error(Code.RESOURCE_EXHAUSTED, retry_after=0.5), True),
        (an_error(Code.RESOURCE_EXHAUSTED), False),
        (an_error(Code.RESOURCE_EXHAUSTED, retry_after=1.0, budget="web"), False),
        (an_error(Code.UNAVAILABLE), True),
        (an_error(Code.DEADLINE_EXCEEDED), True),
        (an_error(Code.NOT_FOUND), False),
        (an_error(Code.INVALID_ARGUMENT, retry_after=1.0), False),
        (ClientClosed(), False),
    ],
)
def test_overload_is_worth_another_attempt_and_a_limit_or_a_budget_is_not(error: ApiError, repeated: bool) -> None:
    assert worth_repeating(error) is repeated


def test_a_refused_call_waits_as_long_as_it_was_told_spread_and_longer_each_time() -> None:
    wait = retry_rules(Patience(), 60.0)["wait"]
    error = an_error(Code.RESOURCE_EXHAUSTED, retry_after=0.5)
    for attempt, longest in ((1, 0.75), (2, 1.5), (3, 3.0), (4, 3.0), (500, 3.0)):
        waits = [wait(after(error, attempt, 0.0)) for _ in range(400)]
        assert longest / 3 <= min(waits) < longest / 2 < max(waits) <= longest


def test_who_would_wait_beyond_its_time_is_told_at_once() -> None:
    stop = retry_rules(Patience(), 2.0)["stop"]
    overload, down = an_error(Code.RESOURCE_EXHAUSTED, retry_after=0.5), an_error(Code.UNAVAILABLE)
    assert not stop(after(overload, 1, 1.0, upcoming=0.9))
    assert stop(after(overload, 1, 1.0, upcoming=1.1))
    assert not stop(after(down, 1, 1.0, upcoming=1.1)), "its last attempt has what is left"
    assert stop(after(down, 1, 2.0))


def test_an_attempt_may_have_done_it_when_it_was_sent_and_nobody_answered() -> None:
    cases = [
        (an_error(Code.UNAVAILABLE), True),
        (an_error(Code.DEADLINE_EXCEEDED), True),
        (an_error(Code.UNAVAILABLE, never_sent=True), False),
        (an_error(Code.RESOURCE_EXHAUSTED, retry_after=0.5), False),
    ]
    for first, may in cases:
        failures = EndpointFailures()
        assert failures.told_of(first).may_have_been_done is False
        assert failures.told_of(an_error(Code.NOT_FOUND)).may_have_been_done is may


def test_what_the_end_of_the_time_cut_off_is_told_as_the_failure_before_it() -> None:
    for first in (an_error(Code.UNAVAILABLE), an_error(Code.RESOURCE_EXHAUSTED, retry_after=0.5)):
        failures = EndpointFailures()
        failures.told_of(first)
        assert failures.told_of(an_error(Code.DEADLINE_EXCEEDED)) is first
