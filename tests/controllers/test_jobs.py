"""What becomes of a job: its pods, its counts, its conditions, and its end."""

from __future__ import annotations

import pytest

from rayched.api.kinds import JOB, POD
from rayched.api.termination import JOB_TRACKING
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import JobStatus
from tests.controllers.workload_world import WorkloadWorld, a_job, index_of, is_active

INDEXED = {"completion_mode": "Indexed"}


def conditions(status: JobStatus) -> dict[str, tuple[str, str]]:
    return {found.type: (found.status, found.reason) for found in status.conditions}


def run_all(world: WorkloadWorld) -> list[Pod]:
    for pod in world.active():
        if pod.status.phase == "Pending":
            world.run(pod)
    world.settle()
    return world.active()


def finish(world: WorkloadWorld, phase: str = "Succeeded", count: int = 1_000) -> None:
    for pod in world.active()[:count]:
        world.end(pod, phase)
    world.settle()


@pytest.mark.row("W5")
def test_a_job_runs_so_many_at_a_time_until_all_have_succeeded() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=5, parallelism=2))
    world.settle()
    status = world.job().status
    assert (status.active, status.ready, status.terminating) == (2, 0, 0)
    assert status.start_time.seconds == int(world.now)
    assert all(list(pod.metadata.finalizers) == [JOB_TRACKING] for pod in world.pods())
    for succeeded in (2, 4, 5):
        assert len(world.active()) == min(2, 5 - (succeeded - 2)) or succeeded == 5
        finish(world)
        assert world.job().status.succeeded == succeeded
    status = world.job().status
    assert conditions(status) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert (status.active, status.failed, status.completion_time.seconds) == (0, 0, int(world.now))
    assert not status.uncounted_terminated_pods.succeeded
    assert len(world.pods()) == 5 and not any(pod.metadata.finalizers for pod in world.pods())


@pytest.mark.row("W5")
def test_an_indexed_job_has_each_index_once() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=4, parallelism=3, **INDEXED))
    world.settle()
    pods = {index_of(pod): pod for pod in world.active()}
    assert sorted(pods) == [0, 1, 2]
    pod = pods[1]
    assert pod.metadata.name.startswith("count-1-") and pod.spec.hostname == "count-1"
    (variable,) = pod.spec.containers[0].env
    assert variable.name == "JOB_COMPLETION_INDEX"
    label = "batch.kubernetes.io/job-completion-index"
    assert variable.value_from.field_ref.field_path == f"metadata.labels['{label}']"
    assert pod.metadata.labels[label] == "1"
    world.end(pods[1])
    world.settle()
    assert sorted(index_of(pod) for pod in world.active()) == [0, 2, 3]
    assert (world.job().status.completed_indexes, world.job().status.succeeded) == ("1", 1)
    world.end(pods[0], "Failed")
    world.settle()
    # Its place is taken after the back-off.
    assert sorted(index_of(pod) for pod in world.active()) == [2, 3]
    world.wait(10)
    assert sorted(index_of(pod) for pod in world.active()) == [0, 2, 3]
    finish(world)
    assert (world.job().status.completed_indexes, world.job().status.failed) == ("0-3", 1)
    assert conditions(world.job().status)["Complete"][0] == "True"


@pytest.mark.row("W6")
def test_pods_that_fail_are_replaced_ever_later_until_the_limit() -> None:
    world = WorkloadWorld()
    world.create(a_job(backoff_limit=3))
    world.settle()
    for wait in (10, 20, 40):
        finish(world, "Failed")
        world.wait(wait - 1)
        assert not world.active()
        world.wait(2)
        assert len(world.active()) == 1
    finish(world, "Failed")
    status = world.job().status
    assert (status.failed, status.active) == (4, 0)
    assert conditions(status) == {
        "FailureTarget": ("True", "BackoffLimitExceeded"),
        "Failed": ("True", "BackoffLimitExceeded"),
    }
    assert status.conditions[0].message == "Job has reached the specified backoff limit"
    assert not status.HasField("completion_time")
    world.wait(700)
    assert not world.active()


def test_a_success_ends_the_back_off() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=3, parallelism=1))
    world.settle()
    finish(world, "Failed")
    world.wait(11)
    finish(world)
    assert len(world.active()) == 1
    finish(world, "Failed")
    world.wait(9)
    assert not world.active()
    # A second failure in a row would have to wait for 20 s.
    world.wait(2)
    assert len(world.active()) == 1


@pytest.mark.parametrize(("limit", "restarts", "fails"), [(2, 1, False), (2, 2, True), (0, 0, False), (0, 1, True)])
def test_restarts_in_place_count_against_the_limit(limit: int, restarts: int, fails: bool) -> None:
    world = WorkloadWorld()
    job = a_job(backoff_limit=limit)
    job.spec.template.spec.restart_policy = "OnFailure"
    world.create(job)
    world.settle()
    (pod,) = run_all(world)
    world.change_pod(pod, lambda found: found.status.container_statuses.add(name="main", restart_count=restarts) and None)
    world.settle()
    assert ("FailureTarget" in conditions(world.job().status)) is fails
    assert bool(world.active()) is not fails


@pytest.mark.row("W7")
def test_a_job_that_fails_ends_its_pods_and_counts_them_first() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=4, parallelism=3, backoff_limit=0))
    world.settle()
    first, second, _unbound = world.active()
    world.run(second)
    world.end(first, "Failed")
    world.settle()
    status = world.job().status
    # Three have failed: one by itself, one that never ran, one that is asked to stop.
    assert (status.failed, status.terminating) == (3, 1)
    assert "Failed" not in conditions(status)
    (ending,) = [pod for pod in world.pods() if pod.metadata.name == second.metadata.name]
    assert not is_active(ending)
    world.stop(ending)
    world.settle()
    assert conditions(world.job().status)["Failed"] == ("True", "BackoffLimitExceeded")
    assert world.job().status.failed == 3


@pytest.mark.row("W7")
def test_a_deadline_ends_a_job_that_runs() -> None:
    world = WorkloadWorld()
    world.create(a_job(active_deadline_seconds=60))
    world.settle()
    world.wait(59)
    assert len(world.active()) == 1
    world.wait(2)
    assert conditions(world.job().status)["Failed"] == ("True", "DeadlineExceeded")
    assert world.job().status.conditions[0].message == "Job was active longer than specified deadline"
    assert not world.active()


@pytest.mark.row("W8")
def test_a_suspended_job_has_no_pods_and_its_deadline_stands_still() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=3, parallelism=2, suspend=True, active_deadline_seconds=100))
    world.settle()
    assert conditions(world.job().status) == {"Suspended": ("True", "JobSuspended")}
    assert not world.pods() and not world.job().status.HasField("start_time")
    world.edit(JOB, "count", lambda found: setattr(found.spec, "suspend", False))
    world.settle()
    assert conditions(world.job().status) == {"Suspended": ("False", "JobResumed")}
    assert len(world.active()) == 2
    world.edit(JOB, "count", lambda found: setattr(found.spec, "suspend", True))
    world.settle()
    assert not world.active()
    assert world.job().status.failed == 0
    world.wait(150)
    world.edit(JOB, "count", lambda found: setattr(found.spec, "suspend", False))
    world.settle()
    assert world.job().status.start_time.seconds == int(world.now)
    assert len(world.active()) == 2


@pytest.mark.parametrize(("policy", "at_once"), [("TerminatingOrFailed", True), ("Failed", False)])
@pytest.mark.row("W9")
def test_whether_a_pod_that_is_ending_is_replaced(policy: str, at_once: bool) -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=2, parallelism=2, pod_replacement_policy=policy, **INDEXED))
    world.settle()
    first, second = run_all(world)
    world.end(second)
    world.settle()
    world.ask_to_end(first)
    world.settle()
    world.wait(11)
    assert len(world.active()) == at_once
    assert world.job().status.failed == at_once
    (ending,) = [pod for pod in world.pods() if pod.metadata.name == first.metadata.name]
    world.stop(ending)
    world.settle()
    world.wait(11)
    assert [index_of(pod) for pod in world.active()] == [0]
    assert world.job().status.failed == 1


def test_a_pod_that_ended_is_counted_though_somebody_deletes_it() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=2, parallelism=2))
    world.settle()
    first, second = world.active()
    world.end(first)
    world.ask_to_end(first)
    # Nobody has seen either, and the leader is gone.
    world.new_leader()
    world.settle()
    assert world.job().status.succeeded == 1
    assert not world.has(POD, first.metadata.name)
    world.end(second)
    world.settle()
    assert conditions(world.job().status)["Complete"][0] == "True"


def test_without_completions_one_success_lets_the_others_end() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=None, parallelism=3))
    world.settle()
    first, second, third = run_all(world)
    world.end(first)
    world.settle()
    world.wait(20)
    assert len(world.active()) == 2
    assert "Complete" not in conditions(world.job().status)
    world.end(second)
    world.end(third, "Failed")
    world.settle()
    assert conditions(world.job().status)["Complete"][0] == "True"
    assert (world.job().status.succeeded, world.job().status.failed) == (2, 1)


def test_fewer_at_a_time_deletes_pods_that_are_not_counted() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=10, parallelism=5))
    world.settle()
    ran = [pod.metadata.name for pod in world.active()[:2]]
    for name in ran:
        world.run(next(pod for pod in world.active() if pod.metadata.name == name))
    world.settle()
    world.edit(JOB, "count", lambda found: setattr(found.spec, "parallelism", 2))
    world.settle()
    assert sorted(pod.metadata.name for pod in world.pods()) == sorted(ran)
    assert world.job().status.failed == 0


@pytest.mark.row("W10")
def test_a_job_goes_when_its_time_after_the_end_is_over() -> None:
    world = WorkloadWorld()
    world.create(a_job(ttl_seconds_after_finished=30))
    world.settle()
    finish(world)
    world.wait(28)
    assert world.has(JOB, "count")
    world.wait(3)
    assert not world.has(JOB, "count")
    assert not world.pods()


@pytest.mark.row("W4")
def test_what_a_deleted_job_made_goes_with_it_counted_or_not() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=3, parallelism=3))
    world.settle()
    first, second, _ = world.active()
    world.run(first)
    world.end(second)
    world.delete(JOB, "count")
    world.settle()
    (left,) = world.pods()
    assert left.metadata.name == first.metadata.name and not is_active(left) and not left.metadata.finalizers
    world.stop(left)
    world.settle()
    assert not world.pods()


def test_no_completions_are_complete_at_once() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=0, parallelism=1))
    world.settle()
    assert conditions(world.job().status)["Complete"][0] == "True"
    assert not world.pods()


def test_an_elastic_job_grows_and_shrinks() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=2, parallelism=2, **INDEXED))
    world.settle()
    world.edit(JOB, "count", lambda found: (setattr(found.spec, "completions", 4), setattr(found.spec, "parallelism", 4))[0])
    world.settle()
    assert sorted(index_of(pod) for pod in world.active()) == [0, 1, 2, 3]
    world.edit(JOB, "count", lambda found: (setattr(found.spec, "completions", 1), setattr(found.spec, "parallelism", 1))[0])
    world.settle()
    assert [index_of(pod) for pod in world.active()] == [0]


def test_many_end_at_once_and_the_status_stays_small() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=1_300, parallelism=1_300))
    world.settle()
    for pod in world.active():
        world.end(pod)
    most = 0
    for _ in range(20):
        world.see()
        world.turn()
        world.now += 1
        most = max(most, len(world.job().status.uncounted_terminated_pods.succeeded))
    assert most == 500
    assert world.job().status.succeeded == 1_300
    assert conditions(world.job().status)["Complete"][0] == "True"
