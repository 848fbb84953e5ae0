"""Three replicas' APIs over one etcd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.replica.etcd.etcd_server import EtcdServer
from tests.client.replicas import Process


@pytest.fixture
def replicas(etcd: EtcdServer, etcd_root: str) -> Iterator[list[Process]]:
    found = [Process(etcd, etcd_root) for _ in range(3)]
    yield found
    for replica in found:
        replica.end()
