"""The election in a health check: lease 60 s, tolerance 20 s, as in client-go's own cases."""

from __future__ import annotations

import pytest

from leader.health import check_leading


@pytest.mark.parametrize(
    ("holds", "age_seconds", "healthy"),
    [
        pytest.param(False, 0, True, id="LE-21 no elector yet", marks=pytest.mark.row("LE-21")),
        pytest.param(True, 3600, False, id="LE-22 own lease, an hour old", marks=pytest.mark.row("LE-22", "L28")),
        pytest.param(False, 3600, True, id="LE-23 held by another, an hour old", marks=pytest.mark.row("LE-23")),
        pytest.param(True, 0, True, id="LE-24 own, fresh", marks=pytest.mark.row("LE-24")),
        pytest.param(True, 61, True, id="LE-25 own, expired, within the tolerance", marks=pytest.mark.row("LE-25")),
        pytest.param(True, 80, True, id="at the limit"),
        pytest.param(True, 80.001, False, id="just past the limit"),
    ],
)
def test_only_a_leader_that_neither_renews_nor_steps_down_is_unhealthy(holds: bool, age_seconds: float, healthy: bool) -> None:
    found = check_leading("rayched", holds=holds, since_renewal_seconds=age_seconds, lease_duration=60, tolerance_seconds=20)
    assert found == (None if healthy else "failed election to renew leadership on lease rayched")
