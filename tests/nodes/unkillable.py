"""A process that no signal ends for a while, as one that hangs in the kernel: it is frozen in a cgroup of the first version."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayched.nodes.agent.shim import proc_table
from tests.nodes.bare_shim import until

_FREEZER = Path("/sys/fs/cgroup/freezer")
_numbers = itertools.count(1)


class Freezer:
    """`thaw` may be called twice."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def freeze(self, pid: int) -> None:
        (self._path / "cgroup.procs").write_text(str(pid))
        (self._path / "freezer.state").write_text("FROZEN")
        until(lambda: proc_table.state_of(pid) == "D", "it is frozen")

    def thaw(self) -> None:
        (self._path / "freezer.state").write_text("THAWED")


@contextmanager
def freezer() -> Iterator[Freezer]:
    """Skips the test where this host has none."""
    path = _FREEZER / f"rayched-test-{os.getpid()}-{next(_numbers)}"
    try:
        path.mkdir()
    except OSError:
        pytest.skip("this host has no freezer of the first version that may be written to")
    found = Freezer(path)
    try:
        yield found
    finally:
        found.thaw()
        for line in (path / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line), 9)
        until(lambda: not (path / "cgroup.procs").read_text(), "it is empty")
        path.rmdir()
