"""A real etcd for tests: one process a session, and a root of keys of its own for each test.

`etcd` is running and ready; tests that stop or kill an etcd start their own EtcdServer. `etcd_root` ends without a slash and is
shared with no other test, so nothing has to be cleared.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from rayched.replica.etcd_server import EtcdServer

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
