"""Whoever dies first, nobody of its tree lives on: replica, guardian, and whoever owns the cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rayched.replica.own_directories import remove_left_behind
from rayched.replica.ray.processes import descendants
from tests.replica.clusters import SmallCluster, kill, left_alive, nothing_left, own_directories, tree_of, until_true

OWNER = """
import json, sys, time
from pathlib import Path
from tests.replica.clusters import SmallCluster, tree_of

with SmallCluster(Path(sys.argv[1]), workers=1) as cluster:
    cluster.pid_of("spare")
    print(json.dumps(sorted(pid for replica in cluster.local.replicas for pid in tree_of(replica.pid))), flush=True)
    print(cluster.local.etcd.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.cluster
def test_a_killed_guardian_and_then_a_killed_replica_leave_nobody_behind(tmp_path: Path) -> None:
    with nothing_left() as pids, SmallCluster(tmp_path, workers=1) as cluster:
        replica = cluster.leader()
        guardian = cluster.pid_of("guardian")
        first_ray = set(descendants(replica.pid))
        pids |= first_ray
        assert len(first_ray) >= 8
        kill(guardian)
        assert left_alive(first_ray) == {}
        until_true(lambda: cluster.pid_of("guardian") != guardian, 1.0, "the guardian is not replaced")
        cluster.submit(5)
        cluster.wait_until_all_bound()

        second_ray = set(descendants(replica.pid))
        pids |= second_ray
        assert len(second_ray) >= 8
        directories = own_directories(replica.pid)
        assert len(directories) == 2
        kill(replica.pid)
        replica.wait(5.0)
        assert left_alive(second_ray) == {}
        # What nobody was left to remove goes with the next start of any replica.
        remove_left_behind(Path("/dev/shm"))
        until_true(lambda: not own_directories(replica.pid), 2.0, f"{directories} stay")


@pytest.mark.cluster
def test_the_cluster_of_a_killed_owner_ends(tmp_path: Path) -> None:
    with nothing_left() as pids:
        owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            assert owner.stdout is not None
            replica_pids = json.loads(owner.stdout.readline())
            pids |= {*replica_pids, int(owner.stdout.readline())}
            assert pids <= tree_of(owner.pid)
            assert len(pids) >= 10
        finally:
            owner.kill()
            owner.wait()
        assert left_alive(pids) == {}
