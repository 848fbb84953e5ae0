"""The right to write, read from the cell."""

from __future__ import annotations

from pathlib import Path

from leader.belief import BeliefCell
from rayched.store.fencing import Fence
from rayched.store.transactions import Guard


def test_the_right_to_write_ends_by_the_clock_and_by_withdrawal(tmp_path: Path) -> None:
    cell = BeliefCell.create(tmp_path / "belief")
    fence = Fence(cell)
    assert fence.epoch(0) is None
    cell.publish(17, 1_000)
    assert fence.epoch(999) == 17
    assert fence.guard(b"/epoch", 999) == Guard(b"/epoch", 17)
    assert fence.epoch(1_000) is None
    assert fence.guard(b"/epoch", 1_000) is None
    cell.publish(17, 2_000)
    cell.withdraw()
    assert fence.epoch(1_500) is None
    cell.close()
