"""A real etcd for tests: one process a session, and a root of keys of its own for each test.

`etcd` is running and ready; tests that stop or kill an etcd start their own EtcdServer. `etcd_root` ends without a slash and is
shared with no other test, so nothing has to be cleared.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.replica.etcd.etcd_server import EtcdServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd without fsync (the machine does not crash in a test), with `.endpoint`."""
    with EtcdServer(tmp_path_factory.mktemp("etcd") / "data", unsafe_no_fsync=True) as server:
        yield server


@pytest.fixture
def etcd_root(etcd: EtcdServer) -> str:
    """A prefix such as "/test-4711-3" for `Keys(root=...)`."""
    return f"/test-{os.getpid()}-{next(_numbers)}"


def hang(pid: int) -> None:
    """SIGSTOP, and wait until it has reached all threads: one of another processor may answer a call meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    while any(_state(task) not in "TtZX" for task in Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
