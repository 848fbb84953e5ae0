"""Pods outlive their agents on purpose; what the tests of a file leave running ends with the file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.nodes.agent.containment import tracking_root
from rayched.nodes.agent.shim import proc_table
from tests.nodes.streaming import Agents


@pytest.fixture
def agents() -> Iterator[Agents]:
    with Agents() as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def no_shim_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A pod that computes would take a processor from all files that come later."""
    yield
    for state in tmp_path_factory.getbasetemp().rglob("shim/state.json"):
        found = json.loads(state.read_text())
        if proc_table.start_ticks(found["pid"]) == found["ticks"]:
            for pid in reversed(proc_table.tree_of(found["pid"])):
                proc_table.kill(pid, signal.SIGKILL)
        for pid in proc_table.processes_of_pod(state.parent.parent.name):
            if pid != os.getpid():
                proc_table.kill(pid, signal.SIGKILL)
    for identity in tmp_path_factory.getbasetemp().rglob("identity.json"):
        cgroups = tracking_root(identity.parent)
        if cgroups is not None:
            _remove_cgroups(cgroups)


def _remove_cgroups(root: Path) -> None:
    """What is killed leaves its cgroup after a moment."""
    ends_at = time.monotonic() + 10
    while root.exists() and time.monotonic() < ends_at:
        for below in [*sorted((entry for entry in root.rglob("*") if entry.is_dir()), reverse=True), root]:
            with contextlib.suppress(OSError):
                below.rmdir()
        time.sleep(0.05)
