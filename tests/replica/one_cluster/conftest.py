"""One cluster for this folder, an etcd and one replica: each test has nodes and pods of its own, and leaves them there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replica.clusters import SmallCluster, nothing_left, tree_of


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    with nothing_left() as pids, SmallCluster(tmp_path_factory.mktemp("one-cluster")) as found:
        pids |= {pid for replica in found.local.replicas for pid in tree_of(replica.pid)}
        yield found
