"""Jobs that ask to be a pod group: the group comes first, follows the job's parallelism, and goes with the job."""

from __future__ import annotations

import pytest

from rayched.api.defaulting import default
from rayched.api.gangs import GANG_ANNOTATION
from rayched.api.kinds import JOB, POD_GROUP
from rayched.api.validation import validate
from rayched.v1.workloads_pb2 import Job, PodGroup, PriorityClass
from tests.controllers.workload_world import LeaderDied, WorkloadWorld, a_job


def a_gang(completions: int | None = None, parallelism: int = 4, answer: str = "true", **spec: object) -> Job:
    job = a_job(completions, parallelism, **spec)  # type: ignore[arg-type]
    job.metadata.annotations[GANG_ANNOTATION] = answer
    return job


def group(world: WorkloadWorld, name: str = "count") -> PodGroup:
    found = world.get(POD_GROUP, name)
    assert isinstance(found, PodGroup)
    return found


def least(world: WorkloadWorld) -> int:
    return group(world).spec.scheduling_policy.gang.min_count


@pytest.mark.row("GT6")
def test_the_group_is_made_before_the_pods_which_are_its_members() -> None:
    world = WorkloadWorld()
    world.create(PriorityClass(metadata={"name": "gold"}, value=7))
    job = a_gang(parallelism=4)
    job.spec.template.spec.priority_class_name = "gold"
    world.create(job)
    world.see()
    world.turn()
    assert world.has(POD_GROUP, "count") and not world.pods()
    world.settle()
    made = group(world)
    assert made.spec.scheduling_policy.gang.min_count == 4
    assert (made.spec.priority_class_name, made.spec.priority) == ("gold", 7)
    assert made.spec.preemption_policy == world.pods()[0].spec.preemption_policy
    assert [(one.kind, one.name, one.uid, one.controller) for one in made.metadata.owner_references] == [
        ("Job", "count", "uid-count", True)
    ]
    assert made.metadata.uid and not validate(made)
    assert [pod.spec.scheduling_group.pod_group_name for pod in world.pods()] == ["count"] * 4


@pytest.mark.row("GT6")
@pytest.mark.parametrize(("completions", "parallelism", "wanted"), [(3, 5, 3), (5, 4, 4), (None, 2, 2)])
def test_the_minimum_is_what_runs_at_once(completions: int | None, parallelism: int, wanted: int) -> None:
    world = WorkloadWorld()
    world.create(a_gang(completions, parallelism))
    world.settle()
    assert least(world) == wanted and len(world.pods()) == wanted


@pytest.mark.row("GT6")
def test_the_minimum_follows_the_parallelism_up_and_down() -> None:
    world = WorkloadWorld()
    world.create(a_gang(parallelism=2))
    world.settle()
    uid = group(world).metadata.uid
    for count in (5, 3):
        world.edit(JOB, "count", lambda job, count=count: setattr(job.spec, "parallelism", count))  # type: ignore[misc]
        world.settle()
        assert least(world) == count and len(world.active()) == count
    world.edit(JOB, "count", lambda job: setattr(job.spec, "suspend", True))
    world.settle()
    assert least(world) == 3 and not world.active()
    assert group(world).metadata.uid == uid


def test_a_suspended_job_makes_no_group_until_it_goes_on() -> None:
    world = WorkloadWorld()
    world.create(a_gang(parallelism=2, suspend=True))
    world.settle()
    assert not world.has(POD_GROUP, "count")
    world.edit(JOB, "count", lambda job: setattr(job.spec, "suspend", False))
    world.settle()
    assert least(world) == 2 and len(world.pods()) == 2


@pytest.mark.row("GT7")
def test_the_group_goes_with_its_job() -> None:
    world = WorkloadWorld()
    world.create(a_gang(parallelism=2))
    world.settle()
    world.delete(JOB, "count")
    world.settle()
    assert not world.has(POD_GROUP, "count") and not world.pods()


@pytest.mark.row("GT7")
def test_a_group_of_somebody_else_is_left_alone_and_the_job_says_why_it_makes_no_pods() -> None:
    world = WorkloadWorld()
    foreign = PodGroup(metadata={"name": "count", "namespace": "default"})
    foreign.spec.scheduling_policy.gang.min_count = 9
    world.create(foreign)
    world.create(a_gang(parallelism=2))
    world.settle()
    assert not world.pods() and least(world) == 9
    assert "pod group count is there already and is not this job's" in world.news[-1].message
    world.delete(POD_GROUP, "count")
    world.settle()
    assert least(world) == 2 and len(world.pods()) == 2


@pytest.mark.parametrize("answer", ["false", None])
def test_without_the_annotation_there_is_no_group(answer: str | None) -> None:
    world = WorkloadWorld()
    job = a_gang(parallelism=2, answer=answer or "false")
    if answer is None:
        job.metadata.annotations.clear()
    world.create(job)
    world.settle()
    assert not world.has(POD_GROUP, "count")
    assert [pod.spec.scheduling_group.pod_group_name for pod in world.pods()] == ["", ""]


def test_a_template_that_names_a_group_keeps_it() -> None:
    world = WorkloadWorld()
    job = a_gang(parallelism=2)
    job.spec.template.spec.scheduling_group.pod_group_name = "ranks"
    world.create(job)
    world.settle()
    assert not world.has(POD_GROUP, "count")
    assert [pod.spec.scheduling_group.pod_group_name for pod in world.pods()] == ["ranks", "ranks"]


def test_another_answer_is_refused() -> None:
    job = a_gang(answer="yes")
    job.metadata.uid = "uid-count"
    default(job)
    (fault,) = validate(job)
    assert fault.path == f'metadata.annotations["{GANG_ANNOTATION}"]' and '"true" or "false"' in str(fault)


@pytest.mark.parametrize("how", ["answer", "late", "death"])
def test_whatever_becomes_of_the_writes_there_is_one_group_and_as_many_pods_as_wanted(how: str) -> None:
    world = WorkloadWorld(seed=3)
    world.create(a_gang(parallelism=3))
    losses = iter([how, None, how, None])
    world.lose = lambda: next(losses, None)
    for _ in range(6):
        try:
            world.see()
            world.turn()
        except LeaderDied:
            world.new_leader()
        world.now += 2
    world.wait(20)
    assert least(world) == 3 and len(world.pods()) == 3
