"""Which pods the leader removes itself, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.controllers.node_settings import NodeSettings
from rayched.controllers.pod_garbage import Circumstances, Fate, fate_of
from tests.planted_bugs import planted

NOW = 1_000.0
SETTINGS = NodeSettings(orphan_quarantine=40, termination_margin=20)


@pytest.mark.row("K9.9")
@pytest.mark.parametrize(
    ("bound", "ended", "ends_at", "gone", "out_of_service", "fate"),
    [
        # On a node that exists.
        (True, False, None, None, False, Fate.STAY),
        (True, True, None, None, False, Fate.STAY),
        (True, False, None, None, True, Fate.STAY),
        (True, False, NOW + 30, None, False, Fate.STAY),
        (True, False, NOW, None, False, Fate.STAY),
        (True, False, NOW - 19, None, False, Fate.STAY),
        (True, False, NOW - 20, None, False, Fate.REMOVE),
        (True, True, NOW - 20, None, False, Fate.REMOVE),
        (True, False, NOW + 30, None, True, Fate.REMOVE),
        # On a node that is gone.
        (True, False, None, 39.0, False, Fate.STAY),
        (True, False, None, 40.0, False, Fate.FAIL),
        (True, True, None, 40.0, False, Fate.REMOVE),
        (True, False, NOW + 30, 40.0, False, Fate.FAIL),
        (True, True, NOW + 30, 40.0, False, Fate.REMOVE),
        (True, False, NOW + 30, 1.0, False, Fate.STAY),
        # Without a node.
        (False, False, NOW + 30, None, False, Fate.REMOVE),
        (False, False, None, None, False, Fate.STAY),
    ],
)
def test_what_nobody_else_will_remove_is_removed_and_nothing_before_its_time(
    bound: bool, ended: bool, ends_at: float | None, gone: float | None, out_of_service: bool, fate: Fate
) -> None:
    assert fate_of(Circumstances(bound, ended, ends_at, gone, out_of_service), SETTINGS, NOW) is fate


@pytest.mark.parametrize(
    ("ended", "too_many", "fate"), [(True, True, Fate.REMOVE), (True, False, Fate.STAY), (False, True, Fate.STAY)]
)
@pytest.mark.parametrize("bound", [True, False])
def test_of_too_many_those_are_removed_that_have_ended(bound: bool, ended: bool, too_many: bool, fate: Fate) -> None:
    assert fate_of(Circumstances(bound, ended, None, too_many=too_many), SETTINGS, NOW) is fate


@pytest.mark.parametrize("seconds_over", [20, 86_400])
def test_what_may_still_run_on_a_node_stays_until_its_agent_or_the_end_of_the_node_says_otherwise(seconds_over: int) -> None:
    def fate(gone: float | None = None, *, out_of_service: bool = False) -> Fate:
        pod = Circumstances(True, False, NOW - seconds_over, gone, out_of_service, node_runs_processes=True)
        return fate_of(pod, SETTINGS, NOW)

    assert fate() is Fate.STAY
    assert fate(out_of_service=True) is Fate.REMOVE and fate(40.0) is Fate.FAIL
    with planted("pods of lost nodes are removed by time"):
        assert fate() is Fate.REMOVE, "it is the rule that keeps it"


@pytest.mark.parametrize("circumstances", [{"too_many": True}, {"node_out_of_service": True}, {"node_gone_seconds": 40.0}])
def test_what_its_job_has_not_counted_stays_once_it_has_ended(circumstances: dict[str, Any]) -> None:
    def fate(*, ended: bool, tracked: bool) -> Fate:
        return fate_of(Circumstances(True, ended, NOW - 20, tracked=tracked, **circumstances), SETTINGS, NOW)

    assert fate(ended=True, tracked=True) is Fate.STAY
    assert fate(ended=True, tracked=False) is Fate.REMOVE
    assert fate(ended=False, tracked=True) is not Fate.STAY
