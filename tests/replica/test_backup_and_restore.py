"""docs/operations.md, backup and restore, with etcd's own programs.

What was there at the snapshot is there again, what came later is gone, and scheduling goes on. One replica and one etcd member;
--bump-revision is left out, for the embedded etcd is older than it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rayched.replica.etcd.etcd_binary import find_etcd
from rayched.v1.core_pb2 import Pod
from tests.replica.clusters import SmallCluster, small_pod, until_true

pytestmark = pytest.mark.cluster

PROGRAMS = find_etcd().path.parent


def run(program: str, *words: str) -> None:
    done = subprocess.run([str(PROGRAMS / program), *words], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


def bound(cluster: SmallCluster) -> dict[str, str]:
    """Name of each pod, and its node."""
    pods = [pod for pod in cluster.client.list("pod") if isinstance(pod, Pod)]
    return {pod.metadata.name: pod.spec.node_name for pod in pods}


@pytest.mark.skipif(not (PROGRAMS / "etcdutl").exists(), reason="this etcd came without etcdctl and etcdutl")
def test_a_restored_snapshot_has_what_was_there_and_scheduling_goes_on(tmp_path: Path) -> None:
    snapshot, restored = str(tmp_path / "rayched.db"), str(tmp_path / "restored")
    with SmallCluster(tmp_path) as cluster:
        cluster.submit(20)
        cluster.wait_until_all_bound()
        before = bound(cluster)
        run("etcdctl", "--endpoints", cluster.local.etcd_endpoints[0], "snapshot", "save", snapshot)
        cluster.submit(5)
        cluster.wait_until_all_bound()
        cluster.client.delete("pod", "pod-0", "default", grace_period_seconds=0)
        epoch = cluster.client.leader().epoch
    run("etcdutl", "snapshot", "status", snapshot)
    member = ["--name", "rayched", "--initial-cluster-token", "rayched-2"]
    peer = "http://127.0.0.1:2380"
    member += ["--initial-cluster", f"rayched={peer}", "--initial-advertise-peer-urls", peer]
    run("etcdutl", "snapshot", "restore", snapshot, "--data-dir", restored, *member)
    data = tmp_path / "cluster" / "etcd"
    shutil.move(data, tmp_path / "etcd-before")
    shutil.move(restored, data)
    with SmallCluster(tmp_path) as cluster:
        assert bound(cluster) == before
        assert cluster.client.leader().epoch > epoch
        cluster.client.submit(small_pod("later"))
        until_true(lambda: bool(bound(cluster)["later"]), 20.0, "the new pod is not bound")
        cluster.assert_sound()
        assert before.items() <= bound(cluster).items()
