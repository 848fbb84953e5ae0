"""Memory as the kernel tells it: what a process alone has is told apart from what it shares."""

from __future__ import annotations

import os

import numpy as np

from benchmarks.processes import memory_of

SIZE = 64 << 20


def test_memory_that_is_touched_is_resident_and_unique() -> None:
    before = memory_of(os.getpid())
    held = np.ones(SIZE, np.uint8)
    after = memory_of(os.getpid())
    assert held[-1] == 1
    assert after.unique - before.unique > SIZE // 2
    assert after.unique < after.resident
