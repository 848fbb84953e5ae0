"""SIGTERM: the lead is handed over, whenever it comes; a second one is obeyed at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rayched.replica.etcd_server import EtcdServer
from rayched.replica.local_cluster import LocalCluster, ReplicaProcess
from rayched.replica.processes import descendants
from tests.replica.clusters import SmallCluster, left_alive, nothing_left, tree_of, until_true

START_SECONDS_MAX = 60.0


@pytest.mark.cluster
def test_a_stopped_leader_hands_over_and_leaves_nobody_behind_and_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with nothing_left() as pids, SmallCluster(tmp_path, replicas=2) as cluster:
        cluster.submit(20)
        cluster.wait_until_all_bound()
        first = cluster.leader()
        second = next(replica for replica in cluster.local.replicas if replica is not first)
        until_true(lambda: stands(second), START_SECONDS_MAX, "the other replica does not stand for election")
        epoch = cluster.client.leader().epoch
        tree = tree_of(first.pid)
        pids |= tree
        struck = time.monotonic()
        first.signal(signal.SIGTERM)
        cluster.submit(20)
        cluster.wait_until_all_bound()
        assert cluster.follower is not None
        binding = cluster.follower.ask(lambda auditor: next(b for b in auditor.bindings if b.epoch > epoch))
        assert binding.seconds - struck < 1.5
        assert first.wait(5.0) == 0
        assert left_alive(tree, 0.5) == {}
        assert "writing has stopped" in first.log_file.read_text()

        # Without etcd nothing can be handed over: what would take its time is cut short by the second signal.
        assert cluster.local.etcd is not None
        etcd = cluster.local.etcd.pid
        assert etcd is not None
        tree = tree_of(second.pid)
        pids |= tree
        os.kill(etcd, signal.SIGSTOP)
        try:
            second.signal(signal.SIGTERM)
            until_true(lambda: "stopping" in second.log_file.read_text(), 2.0, "the signal is not noticed")
            struck = time.monotonic()
            second.signal(signal.SIGTERM)
            assert second.wait(2.0) == 1
            assert time.monotonic() - struck < 0.5
            assert left_alive(tree, 0.5) == {}
        finally:
            os.kill(etcd, signal.SIGCONT)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(lambda replica: "the API listens" in log_of(replica), id="while Ray starts"),
        pytest.param(lambda replica: "Ray is there" in log_of(replica), id="while the actors start"),
    ],
)
def test_a_replica_that_is_stopped_during_its_start_leaves_in_order(
    tmp_path: Path, etcd: EtcdServer, etcd_root: str, moment: Callable[[ReplicaProcess], bool]
) -> None:
    options = ["--workers", "1", "--etcd-root", etcd_root]
    with nothing_left() as pids, LocalCluster(tmp_path, 1, etcd_endpoints=[etcd.endpoint], options=options) as cluster:
        (replica,) = cluster.replicas
        until_true(lambda: moment(replica), START_SECONDS_MAX, "it does not start")
        time.sleep(0.05)
        pids |= {replica.pid, *descendants(replica.pid)}
        struck = time.monotonic()
        replica.signal(signal.SIGTERM)
        assert replica.wait(10.0) == 0, log_of(replica)
        assert time.monotonic() - struck < 5.0
        assert left_alive(pids, 0.5) == {}


def stands(replica: ReplicaProcess) -> bool:
    return "joins the election" in log_of(replica)


def log_of(replica: ReplicaProcess) -> str:
    return replica.log_file.read_text() if replica.log_file.exists() else ""
