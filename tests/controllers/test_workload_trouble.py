"""What goes wrong for one controller or one pod, and what it costs the others: nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prometheus_client import REGISTRY

from leader.etcd_shim import rpc
from rayched.api.kinds import JOB, POD, REPLICA_SET
from rayched.api.termination import JOB_TRACKING
from rayched.controllers.workloads.jobs import FailureBackoff
from rayched.controllers.workloads.look_list import RETRY_SECONDS, RETRY_SECONDS_MAX, RetryTimes
from rayched.controllers.workloads.owned_pods import facts_of_pod
from rayched.controllers.workloads.pod_making import name_for
from rayched.store.transactions import Outcome, Write
from rayched.v1.core_pb2 import Pod
from tests.controllers.workload_world import KEYS, START, WorkloadWorld, a_job, a_replica_set, as_entry, is_active

MANY = 2**31 - 1


def failed_decisions() -> float:
    found = REGISTRY.get_sample_value("rayched_workload_failed_decisions_total")
    assert found is not None
    return found


def a_pod(name: str, namespace: str = "default", **labels: str) -> Pod:
    pod = Pod(metadata={"name": name, "namespace": namespace, "labels": labels})
    pod.spec.containers.add(name="main")
    return pod


def owned(pod: Pod, kind: str, name: str, uid: str, *, block: bool = False) -> Pod:
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    pod.metadata.owner_references.add(
        api_version=api_version, kind=kind, name=name, uid=uid, controller=True, block_owner_deletion=block
    )
    return pod


# ---- one that nothing can be decided about


def test_a_controller_that_nothing_can_be_decided_about_holds_nobody_up_and_is_tried_ever_later() -> None:
    world, before = WorkloadWorld(), failed_decisions()
    broken = a_job(name="broken")
    # One more cannot be counted in its field.
    broken.status.failed = MANY
    broken.status.uncounted_terminated_pods.failed.append("one-more")
    world.create(broken)
    world.create(a_replica_set(3))
    world.settle()
    assert len(world.active()) == 3
    world.wait(60)
    assert 3 <= failed_decisions() - before <= 8
    world.edit(JOB, "broken", lambda found: setattr(found.status, "failed", 0))
    world.wait(RETRY_SECONDS_MAX + 1)
    assert world.job("broken").status.failed == 1
    assert len(world.active()) == 4


def test_a_pod_that_nothing_can_be_written_about_holds_up_no_other_that_is_left() -> None:
    world, before = WorkloadWorld(), failed_decisions()
    broken = owned(a_pod("broken"), "Job", "gone", "gone", block=True)
    broken.metadata.finalizers.append(JOB_TRACKING)
    world.create(broken)
    # Its time is beyond what can be written, whoever shortens it.
    broken.spec.node_name = "node-1"
    broken.metadata.deletion_timestamp.seconds = -(2**63)
    broken.metadata.deletion_grace_period_seconds = 2**62
    world.change_pod(broken, lambda pod: None)
    world.create(owned(a_pod("good"), "Job", "gone", "gone", block=True))
    world.create(a_replica_set(1))
    world.settle()
    assert failed_decisions() > before
    assert not world.has(POD, "good") and world.has(POD, "broken")
    assert len(world.active()) == 1


def test_what_etcd_refuses_is_sent_ever_more_rarely() -> None:
    world = WorkloadWorld()
    attempts: list[Write] = []

    def refuse(write: Write) -> bool:
        attempts.append(write)
        return True

    world.refuse = refuse
    world.create(a_replica_set(1))
    world.wait(120)
    assert 4 <= len({write.attempt for write in attempts if write.mod_revision == 0}) <= 9
    world.refuse = lambda write: False
    world.wait(RETRY_SECONDS_MAX + 1)
    assert len(world.active()) == 1


def test_times_between_attempts_double_and_begin_anew() -> None:
    retries, now = RetryTimes[str](), 0.0
    waits = []
    for _ in range(8):
        until = retries.fail("a", now)
        waits.append(until - now)
        assert retries.holds("a", until - 0.1) and not retries.holds("a", until) and not retries.holds("b", now)
        now = until
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert retries.fail("a", now + RETRY_SECONDS_MAX + 1) == now + RETRY_SECONDS_MAX + 2
    retries.forget("a")
    assert [retries.fail("a", now, free=2) - now for _ in range(4)] == [0, 0, 1, 2]


# ---- conflicts


def test_pods_left_go_though_a_new_controller_of_that_name_came_in_between() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(2))
    world.settle()
    old = {pod.metadata.name for pod in world.pods()}
    world.delete(REPLICA_SET, "web")
    world.see()
    anew = a_replica_set(1)
    anew.metadata.uid = "another"
    world.create(anew)
    # The deletions are refused: their condition was that there is no controller of that name.
    world.turn()
    assert {pod.metadata.name for pod in world.pods()} == old
    world.settle()
    (left,) = world.pods()
    assert left.metadata.owner_references[0].uid == "another"


def test_a_conflict_is_decided_again_though_nothing_happens_in_the_cluster_any_more() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(2))
    world.see()
    world.edit(REPLICA_SET, "web", lambda found: setattr(found.spec, "replicas", 3))
    world.turn()
    assert not world.pods()
    world.see()
    world.turn()
    assert len(world.active()) == 3


def test_a_conflict_with_a_pod_that_is_gone_is_waited_for_a_second_at_most() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(3))
    world.settle()
    world.now += 100
    world.create(a_pod("too-many", app="web"))
    world.see()
    world.turn()
    world.see()
    # The leader has seen four. Of these the youngest goes, and another one, before it asks the youngest to.
    old = next(pod.metadata.name for pod in world.pods() if pod.metadata.name != "too-many")
    for name in ("too-many", old):
        world.delete(POD, name)
    (plan,) = world.turn()
    assert [write.key for write in plan.pods] == [KEYS.object_key(POD, "default", "too-many")] and len(plan) == 1
    # Decided on the same view it would be asked to go once more.
    assert not world.turn()
    # The watch shows that both are gone, but never the revision of the conflict: there was no change of the cluster at it.
    world.see()
    assert len(world.leader.view.pods_of(plan.owner).active) == 2
    assert world.leader.view.revision < world.etcd.revision
    met_at = world.now
    world.now = met_at + RETRY_SECONDS - 0.01
    assert not world.turn()
    assert world.leader.seconds_until_due(world.now) == pytest.approx(0.01, abs=1e-3)
    world.now = met_at + RETRY_SECONDS
    assert len(world.turn()) == 1 and len(world.active()) == 3


def test_a_deletion_that_arrives_late_is_not_joined_by_another_one() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(4))
    world.settle()
    pods = world.pods()
    for pod in pods:
        world.run(pod)
    world.settle()
    least = [4]

    def count(writes: Sequence[Write], outcomes: Sequence[Outcome]) -> None:
        least.append(len(world.active()))

    world.on_write = count
    world.edit(REPLICA_SET, "web", lambda found: setattr(found.spec, "replicas", 2))
    losses = iter(["late"])
    world.lose = lambda: next(losses, None)
    world.see()
    (plan,) = world.turn()
    chosen = {write.key for write in plan.pods}
    # Others are the ones to go now.
    for pod in world.pods():
        if not any(key.endswith(b"/" + pod.metadata.name.encode()) for key in chosen):
            world.change_pod(
                pod, lambda found: found.metadata.annotations.update({"controller.kubernetes.io/pod-deletion-cost": "-9"})
            )
    world.wait(5)
    assert min(least) == 2 == len(world.active())


# ---- whose a pod is


@pytest.mark.parametrize(
    ("namespace", "kind", "name"), [("other", "ReplicaSet", "web"), ("default", "Job", "web"), ("default", "ReplicaSet", "db")]
)
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.row("W3")
def test_a_uid_alone_makes_no_pod_a_controllers(namespace: str, kind: str, name: str, block: bool) -> None:
    world = WorkloadWorld()
    web = world.create(a_replica_set(2))
    world.create(owned(a_pod("theirs", namespace, app="web"), kind, name, web.metadata.uid, block=block))
    world.settle()
    own = [pod for pod in world.active() if pod.metadata.name != "theirs"]
    assert len(own) == 2 == world.replica_set().status.replicas
    # Whose controller is not there goes, where the reference says that it depends on it.
    assert len(world.pods()) == (2 if block else 3)


def test_the_finalizer_of_a_job_that_is_gone_goes_and_a_pod_that_does_not_depend_on_it_stays() -> None:
    world = WorkloadWorld()
    pod = owned(a_pod("by-hand"), "Job", "gone", "gone")
    pod.metadata.finalizers.extend([JOB_TRACKING, "example.com/mine"])
    world.create(pod)
    world.settle()
    (left,) = world.pods()
    assert is_active(left) and list(left.metadata.finalizers) == ["example.com/mine"]


def test_a_job_that_has_finished_takes_no_pods_and_lets_none_go() -> None:
    world = WorkloadWorld()
    job = a_job(manual_selector=True)
    for labels in (job.spec.selector.match_labels, job.spec.template.metadata.labels):
        labels["app"] = "count"
    world.create(job)
    world.settle()
    (pod,) = world.pods()
    world.end(pod)
    world.settle()
    assert world.job().status.conditions[-1].type == "Complete"
    (pod,) = world.pods()
    world.change_pod(pod, lambda found: found.metadata.labels.update({"app": "other"}))
    world.create(a_pod("late", app="count"))
    world.settle()
    owners = {found.metadata.name: len(found.metadata.owner_references) for found in world.pods()}
    assert owners == {pod.metadata.name: 1, "late": 0}


def test_a_pod_that_cannot_be_adopted_holds_its_controller_up_for_moments_alone() -> None:
    world = WorkloadWorld()
    world.refuse = lambda write: write.key.endswith(b"/mine")
    world.create(a_pod("mine", app="web"))
    world.create(a_replica_set(2))
    world.wait(30)
    assert len(world.active()) == 3 and world.replica_set().status.replicas == 2
    world.refuse = lambda write: False
    world.wait(RETRY_SECONDS_MAX + 1)
    assert len(world.active()) == 2 and all(pod.metadata.owner_references for pod in world.active())


# ---- jobs


@pytest.mark.row("W11")
def test_a_pod_counts_once_though_the_policy_of_its_job_changes_in_between() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=2, parallelism=2, pod_replacement_policy="TerminatingOrFailed"))
    world.settle()
    first = world.active()[0]
    world.run(first)
    world.settle()
    world.ask_to_end(first)
    world.see()
    world.turn()
    assert list(world.job().status.uncounted_terminated_pods.failed) == [first.metadata.uid]
    world.edit(JOB, "count", lambda found: setattr(found.spec, "pod_replacement_policy", "Failed"))
    world.settle()
    (ending,) = [pod for pod in world.pods() if pod.metadata.name == first.metadata.name]
    world.stop(ending)
    world.settle()
    assert world.job().status.failed == 1
    assert not world.has(POD, first.metadata.name)


def test_the_clock_of_a_node_does_not_lengthen_the_back_off() -> None:
    pod = a_pod("failed")
    pod.status.phase = "Failed"
    pod.status.container_statuses.add(name="main").state.terminated.finished_at.seconds = int(START) + 86_400
    backoff = FailureBackoff()
    backoff.observe([facts_of_pod(as_entry(pod, 1), pod)], START)
    assert backoff.ends_at() == START + 10


@pytest.mark.parametrize(("end", "index"), [("." + "b" * 20, None), ("-" + "b" * 20, None), (".-" + "b" * 20, 7)])
def test_a_name_that_is_cut_is_a_name(end: str, index: int | None) -> None:
    middle = "-" if index is None else f"-{index}-"
    begin = "a" * (63 - len(middle) - 5 - (1 if end[1] == "b" else 2))
    assert name_for(begin + end, index, "x7k2p") == f"{begin}{middle}x7k2p"


def test_the_world_moves_etcds_revision_beyond_what_its_watch_shows() -> None:
    world = WorkloadWorld()
    world.etcd.put(rpc.PutRequest(key=b"/elsewhere", value=b""))
    world.see()
    assert world.leader.view.revision < world.etcd.revision
