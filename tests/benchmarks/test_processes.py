"""Memory as the kernel tells it: what a process alone has is told apart from what it shares."""

from __future__ import annotations

import os
import subprocess

import numpy as np

from benchmarks.processes import all_cpu_seconds, memory_of, resident_bytes

SIZE = 64 << 20


def test_memory_that_is_touched_is_resident_and_unique() -> None:
    before = memory_of(os.getpid())
    held = np.ones(SIZE, np.uint8)
    after = memory_of(os.getpid())
    assert held[-1] == 1
    assert after.unique - before.unique > SIZE // 2
    assert after.unique < after.resident
    assert resident_bytes(os.getpid()) - SIZE // 2 < after.resident < resident_bytes(os.getpid()) + SIZE // 2


def test_a_process_that_is_gone_has_no_memory_and_has_computed_nothing() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert (resident_bytes(gone.pid), all_cpu_seconds(gone.pid)) == (0, 0.0)
