"""A replica that failed is told of; one that somebody killed is not, as that is what clusters on one host are for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaFailed
from tests.replica.clusters import until_true

pytestmark = pytest.mark.cluster


def test_a_replica_that_crashes_failed_and_one_that_is_killed_did_not(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, replicas=2, unsafe_no_fsync=True, options=["--workers", "0", "--insecure-loopback"]) as cluster:
        killed, crashed = cluster.replicas
        killed.signal(signal.SIGKILL)
        until_true(lambda: not killed.running, 60.0, "it runs on")
        cluster.check()
        crashed.signal(signal.SIGSEGV)
        until_true(lambda: not crashed.running, 60.0, "it runs on")
        with pytest.raises(ReplicaFailed, match=r"replica 1 \(.*\) ended with signal 11; its log"):
            cluster.check()
