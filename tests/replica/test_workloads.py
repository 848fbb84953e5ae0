"""Work that comes back: real replicas, a real scheduler, and nodes that run processes; the leader is killed, an auditor watches.

An Indexed job writes the index of each pod that runs into a file, so a pod too many would show there. A ReplicaSet loses pods by
eviction, by deletion and by failure while nobody leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rayched.api.kinds import JOB, POD, REPLICA_SET
from rayched.audit.auditor import Auditor
from rayched.audit.follower import AuditFollower
from rayched.client.client import Client
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_start import stands_for_election
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job, ReplicaSet
from tests.cli.cluster import run_here
from tests.nodes.real_node import agent_thread, settings, sh
from tests.nodes.streaming import run
from tests.replica.clusters import kill, left_alive, nothing_left, scheduler_status, tree_of, until_true

COMPLETIONS, PARALLELISM, REPLICAS = 8, 3, 3
PATIENCE_SECONDS = 120.0
OPTIONS = ("--workers", "0", "--no-compact")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with nothing_left() as pids, LocalCluster(tmp_path / "cluster", 2, unsafe_no_fsync=True, options=OPTIONS) as found:
        with Client(found.addresses, timeout_seconds=20.0) as client:
            scheduler_status(client)
            until_true(
                lambda: all(stands_for_election(address, 2.0) for address in found.addresses), 60.0, "not both stand for election"
            )
        pids |= {pid for replica in found.replicas for pid in tree_of(replica.pid)}
        yield found


def a_replica_set() -> ReplicaSet:
    found = ReplicaSet(metadata={"name": "web", "namespace": "default"})
    found.spec.replicas = REPLICAS
    found.spec.selector.match_labels["app"] = found.spec.template.metadata.labels["app"] = "web"
    found.spec.template.spec.termination_grace_period_seconds = 1
    found.spec.template.spec.containers.add(name="main", command=sh("exec sleep 1000"))
    return found


def a_job(file: Path) -> Job:
    found = Job(metadata={"name": "count", "namespace": "default"})
    found.spec.completions, found.spec.parallelism, found.spec.completion_mode = COMPLETIONS, PARALLELISM, "Indexed"
    found.spec.template.spec.restart_policy = "Never"
    found.spec.template.spec.containers.add(name="main", command=sh(f"sleep 0.5; echo $JOB_COMPLETION_INDEX >>{file}"))
    return found


def running(client: Client) -> set[str]:
    pods = [pod for pod in client.list("pods", label_selector="app=web") if isinstance(pod, Pod)]
    return {
        pod.metadata.name for pod in pods if pod.status.phase == "Running" and not pod.metadata.HasField("deletion_timestamp")
    }


def wait(client: Client, kind: object, name: str, until: Callable[[object], bool]) -> object:
    return client.wait_for(kind, name, until=until, timeout_seconds=PATIENCE_SECONDS)  # type: ignore[arg-type]


def is_complete(job: object) -> bool:
    return isinstance(job, Job) and any(one.type == "Complete" and one.status == "True" for one in job.status.conditions)


@pytest.mark.cluster
@pytest.mark.row("W1")
def test_what_is_evicted_lost_or_failed_comes_back_though_the_leader_dies(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "indexes"
    file.touch()
    follower = AuditFollower(cluster.etcd_endpoints, Auditor()).start()
    addresses = ",".join(cluster.addresses)
    with Client(cluster.addresses, timeout_seconds=20.0) as client, ExitStack() as nodes:
        for number in range(2):
            nodes.enter_context(agent_thread(settings(tmp_path / f"node-{number}", f"node-{number}"), addresses))
        client.submit(a_replica_set())
        until_true(lambda: len(running(client)) == REPLICAS, PATIENCE_SECONDS, "the ReplicaSet has not its pods")
        client.submit(a_job(file))
        wait(client, JOB, "count", lambda job: isinstance(job, Job) and job.status.succeeded >= 2)
        before = running(client)
        leader = cluster.replica_at(client.leader().address)
        epoch, tree = client.leader().epoch, tree_of(leader.pid)
        kill(leader.pid)
        # While nobody leads.
        evicted, deleted, kept = sorted(before)
        client.evict(evicted)
        client.delete(POD, deleted, grace_period_seconds=0)
        assert isinstance(wait(client, JOB, "count", is_complete), Job)
        job = client.get(JOB, "count")
        assert isinstance(job, Job)
        assert (job.status.succeeded, job.status.failed, job.status.completed_indexes) == (COMPLETIONS, 0, f"0-{COMPLETIONS - 1}")
        assert sorted(map(int, file.read_text().split())) == list(range(COMPLETIONS))
        until_true(
            lambda: len(running(client) - {evicted, deleted}) == REPLICAS, PATIENCE_SECONDS, "what was evicted has not come back"
        )
        assert kept in running(client)
        assert client.leader().epoch > epoch

        # The command, on the same cluster.
        def command(*words: str) -> tuple[int, str]:
            result = run_here(words, None, {"RAYCHED_SERVER": addresses})
            return result.code, result.out

        assert run(addresses, "run", "hello", "--rm", "--", "sh", "-c", "echo one; exit 7")[:2] == (7, b"one\n")
        assert command("wait", "--for=condition=complete", "job/count") == (0, "job.batch/count condition met\n")
        assert command("scale", "rs", "web", "--replicas", "1") == (0, "replicaset.apps/web scaled\n")
        assert command("wait", "--for=jsonpath={.status.replicas}=1", "rs/web", "--timeout", "60s")[0] == 0
        for kind, name in ((JOB, "count"), (REPLICA_SET, "web")):
            client.delete(kind, name)
        until_true(lambda: not list(client.list("pods")), PATIENCE_SECONDS, "pods of what is gone are left")
        assert follower.error is None
        findings = follower.ask(lambda auditor: dict(auditor.findings.first))
        assert not findings, findings
        follower.stop()
        assert not left_alive(tree)
