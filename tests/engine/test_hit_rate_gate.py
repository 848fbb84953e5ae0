"""Nobody looks values up for a while where that hardly ever paid off."""

from __future__ import annotations

import pytest

from rayched.engine import hit_rate_gate
from rayched.engine.hit_rate_gate import HitRateGate


@pytest.mark.parametrize(("n_found", "is_poor"), [(0, True), (3, True), (4, False), (60, False)])
def test_few_hits_among_enough_probes_begin_a_pause(n_found: int, is_poor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hit_rate_gate, "PROBES", 64)
    monkeypatch.setattr(hit_rate_gate, "HITS_MIN", 4)
    monkeypatch.setattr(hit_rate_gate, "PAUSE_ROWS", 10)
    memory = HitRateGate()
    for _ in range(3):
        memory.count(63, n_found)
        assert not memory.is_poor() and not memory.is_pausing(1), "too few to tell"
        memory.count(1, 0)
        assert memory.is_poor() is is_poor
        assert not memory.is_poor(), "it is counted from the beginning"
        assert [memory.is_pausing(4) for _ in range(5)] == [is_poor] * 3 + [False] * 2
