"""Whatever process of a replica is killed, it is replaced, later pods are bound, and none is bound twice.

One cluster for all: each test takes it as the one before left it, alive and with everything bound.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from rayched.replica.ray.guardian import vital_processes
from tests.replica.clusters import SmallCluster, kill, left_alive, until_true

REPLACED_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    # Every evaluation goes to the worker, so that its death matters; leases are long, so that nothing is cured by losing one.
    options = ["--shard-always", "--election-profile", "kube"]
    with SmallCluster(tmp_path_factory.mktemp("cluster"), workers=1, options=options) as cluster:
        yield cluster


@pytest.mark.cluster
def test_a_killed_scheduler_is_replaced_by_the_spare_under_a_new_epoch_of_the_same_leader(cluster: SmallCluster) -> None:
    cluster.submit(20)
    spare, scheduler, queue = (cluster.pid_of(name) for name in ("spare", "scheduler", "queue"))
    before = cluster.client.leader()
    kill(scheduler)
    cluster.submit(20)
    cluster.wait_until_all_bound()
    status, after = cluster.wait_for_leader(), cluster.client.leader()
    assert (status.pids["scheduler"], status.pids["queue"]) == (spare, queue)
    assert after.holder == before.holder
    assert after.epoch == status.epoch > before.epoch
    assert after.transitions == before.transitions + 1
    until_true(lambda: cluster.pid_of("spare") != spare, REPLACED_SECONDS_MAX, "there is no new spare process")


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["queue", "worker-0", "spare"])
def test_a_killed_actor_is_replaced_under_the_same_epoch(cluster: SmallCluster, name: str) -> None:
    pid, guardian, epoch = cluster.pid_of(name), cluster.pid_of("guardian"), cluster.wait_for_leader().epoch
    cluster.submit(20)
    kill(pid)
    cluster.submit(20)
    cluster.wait_until_all_bound()
    until_true(lambda: cluster.pid_of(name) != pid, REPLACED_SECONDS_MAX, f"{name} is not replaced")
    evaluations = cluster.wait_for_leader().worker_evaluations
    cluster.submit(1)
    cluster.wait_until_all_bound()
    status = cluster.wait_for_leader()
    assert (status.epoch, status.pids["guardian"]) == (epoch, guardian)
    if name == "worker-0":
        # A template that is known needs no evaluation; a new shape does.
        until_true(lambda: worked(cluster, evaluations), REPLACED_SECONDS_MAX, "the new worker is not asked")


@pytest.mark.cluster
def test_scheduler_and_queue_killed_together_are_replaced(cluster: SmallCluster) -> None:
    pids = {name: cluster.pid_of(name) for name in ("scheduler", "queue", "spare")}
    guardian = cluster.pid_of("guardian")
    cluster.submit(20)
    for pid in pids.values():
        kill(pid)
    cluster.submit(20)
    cluster.wait_until_all_bound()
    for name, pid in pids.items():
        until_true(lambda name=name, pid=pid: cluster.pid_of(name) != pid, REPLACED_SECONDS_MAX, f"{name} is not replaced")
    assert cluster.pid_of("guardian") == guardian


@pytest.mark.cluster
def test_a_scheduler_that_hangs_is_ended_and_replaced(cluster: SmallCluster) -> None:
    scheduler, guardian = cluster.pid_of("scheduler"), cluster.pid_of("guardian")
    cluster.submit(20)
    os.kill(scheduler, signal.SIGSTOP)
    cluster.submit(20)
    cluster.wait_until_all_bound()
    assert left_alive({scheduler}, 1.0) == {}
    assert cluster.pid_of("scheduler") != scheduler
    assert cluster.pid_of("guardian") == guardian


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_ray_that_lost_a_process_is_replaced_as_a_whole(cluster: SmallCluster, name: str) -> None:
    replica = cluster.leader()
    guardian = cluster.pid_of("guardian")
    old = {*cluster.wait_for_leader().pids.values()} - {replica.pid}
    cluster.submit(20)
    kill(vital_processes(replica.pid)[name])
    cluster.submit(20)
    cluster.wait_until_all_bound(REPLACED_SECONDS_MAX)
    assert left_alive(old) == {}
    assert cluster.pid_of("guardian") != guardian
    assert cluster.leader().pid == replica.pid


@pytest.mark.cluster
def test_no_question_has_reached_a_process_that_was_no_scheduler_yet(cluster: SmallCluster) -> None:
    for replica in cluster.local.replicas:
        log = replica.log_file.read_text()
        assert "the scheduler has read the cluster" in log and "no answer of the scheduler" not in log


def worked(cluster: SmallCluster, evaluations: int) -> bool:
    """Whether workers have answered more often than before, after pods of a shape that nobody has seen."""
    cluster.submit_new_shape()
    cluster.wait_until_all_bound()
    return cluster.wait_for_leader().worker_evaluations > evaluations
