"""Nodes are drained by three commands at a time while the leader dies: no budget is broken at any revision, and it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.drain import Plan, run

pytestmark = pytest.mark.cluster


@pytest.mark.row("K11.5")
def test_a_drain_never_breaks_a_budget_and_ends(tmp_path: Path) -> None:
    plan = Plan(nodes=20, drained=5, apps=4, pods_each=8, kill=True, seconds_max=90.0)
    outcome = run(tmp_path, plan)
    assert outcome.wrong == ()
    assert outcome.left_on_drained_nodes == 0
    # A disruption was used, so the witness could have seen two.
    assert outcome.lowest_share == 7 / 8
