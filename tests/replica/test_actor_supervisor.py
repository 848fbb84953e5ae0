"""What the supervisor tells the scheduler of the election."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from rayched.replica.ray.actor_supervisor import ActorSupervisor


class _Method:
    def __init__(self, name: str, calls: list[str]) -> None:
        self._name, self._calls = name, calls

    def remote(self) -> None:
        self._calls.append(self._name)


def _supervisor(calls: list[str], *, can_be_asked: bool = True) -> ActorSupervisor:
    supervisor = ActorSupervisor.__new__(ActorSupervisor)
    scheduler = SimpleNamespace(**{name: _Method(name, calls) for name in ("wake", "expect_to_lead")})
    supervisor._leads = threading.Event()
    supervisor._actors = SimpleNamespace(can_be_asked=can_be_asked, scheduler=scheduler)  # type: ignore[assignment]
    return supervisor


def test_a_scheduler_is_told_that_it_leads() -> None:
    calls: list[str] = []
    supervisor = _supervisor(calls)
    supervisor.expect_to_lead()
    supervisor.begin(7)
    assert calls == ["expect_to_lead", "wake"]


@pytest.mark.parametrize("told", [ActorSupervisor.expect_to_lead, lambda supervisor: supervisor.begin(7)])
def test_a_process_that_has_not_begun_is_told_nothing(told: object) -> None:
    calls: list[str] = []
    told(_supervisor(calls, can_be_asked=False))  # type: ignore[operator]
    assert calls == []
