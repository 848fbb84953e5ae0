"""What a plan foresees of ReplicaSets and jobs is what their controllers do: here those of a world over the model of etcd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from rayched.api.gangs import GANG_ANNOTATION
from rayched.api.kinds import JOB, REPLICA_SET, AnyObject, unwrap
from rayched.controllers.workloads import foreseen_pods
from rayched.controllers.workloads.foreseen_pods import ForeseenPods, WorkloadForesight
from rayched.controllers.workloads.pod_making import TemplateRefused
from rayched.controllers.workloads.workload_view import AdmissionClasses
from rayched.store.codec import decode_entry
from rayched.store.entries import entry_of
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job, PodGroup, ReplicaSet
from tests.controllers.workload_world import KEYS, START, WorkloadWorld, a_job, a_replica_set, is_active

WORLDS = 300


def foreseen(wanted: ReplicaSet | Job, *objects: AnyObject) -> ForeseenPods:
    return WorkloadForesight(objects, AdmissionClasses(), START).pods_of(wanted)


def objects_in(world: WorkloadWorld) -> list[AnyObject]:
    kinds = [pair for pair in world.etcd.under(KEYS.cluster_prefix) if pair.key != KEYS.epoch]
    return [unwrap(decode_entry(entry_of(pair))) for pair in kinds]


def index_in(pod: Pod) -> str:
    return pod.metadata.annotations.get("batch.kubernetes.io/job-completion-index", "")


def a_random_job(random: Random) -> Job:
    completions = random.choice([None, 3, 7])
    job = a_job(completions, random.randint(0, 6), backoff_limit=1_000)
    if completions is not None and random.random() < 0.6:
        job.spec.completion_mode = "Indexed"
    if random.random() < 0.3:
        job.metadata.annotations[GANG_ANNOTATION] = "true"
    return job


def live_a_while(world: WorkloadWorld, random: Random) -> None:
    """Pods run, end, and are asked to end, and their controllers see some of it."""
    for _ in range(random.randint(0, 6)):
        active = world.active()
        if not active:
            break
        change: Callable[[Pod], None] = random.choice(
            [world.run, world.bind, world.end, lambda pod: world.end(pod, "Failed"), world.ask_to_end, world.stop]
        )
        change(random.choice(active))
        if random.random() < 0.5:
            world.settle()
    # Nobody waits for a time after a failure that a plan knows nothing of.
    world.wait(700)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_what_is_foreseen_comes_true(seed: int) -> None:
    random = Random(seed)
    world = WorkloadWorld(seed)
    first: ReplicaSet | Job = a_replica_set(random.randint(0, 5)) if random.random() < 0.4 else a_random_job(random)
    kind = REPLICA_SET if isinstance(first, ReplicaSet) else JOB
    name = first.metadata.name
    wanted = type(first)()
    wanted.CopyFrom(first)
    if random.random() < 0.8:
        world.create(first)
        world.settle()
        live_a_while(world, random)
    field = "replicas" if isinstance(wanted, ReplicaSet) else "parallelism"
    setattr(wanted.spec, field, random.randint(0, 8))
    if isinstance(wanted, Job) and random.random() < 0.2:
        wanted.spec.suspend = True

    found = WorkloadForesight(objects_in(world), AdmissionClasses(), world.now).pods_of(wanted)
    before = {pod.metadata.name: pod for pod in world.pods()}
    if world.has(kind, name):

        def change(stored: AnyObject) -> None:
            setattr(stored.spec, field, getattr(wanted.spec, field))  # type: ignore[union-attr]
            if isinstance(stored, Job) and isinstance(wanted, Job) and wanted.spec.HasField("suspend"):
                stored.spec.suspend = wanted.spec.suspend

        world.edit(kind, name, change)
    else:
        world.create(wanted)
    world.settle()

    after = {pod.metadata.name: pod for pod in world.pods()}
    made = [pod for pod_name, pod in after.items() if pod_name not in before]
    assert Counter(map(index_in, found.made)) == Counter(map(index_in, made))
    gone = {pod_name for pod_name, pod in before.items() if is_active(pod) and not is_active(after.get(pod_name, ended(pod)))}
    assert {pod.metadata.name for pod in found.deleted} == gone
    if found.made and made:
        told, real = ({(one.spec.SerializeToString(deterministic=True)) for one in pods} for pods in (found.made, made))
        assert told == real


def ended(pod: Pod) -> Pod:
    """For one that is not there any more."""
    found = Pod()
    found.CopyFrom(pod)
    found.status.phase = "Succeeded"
    return found


def test_new_pods_have_names_that_say_so_and_no_real_one_has() -> None:
    there = Pod(metadata={"name": "web-new2", "namespace": "default", "labels": {"app": "web"}})
    found = foreseen(a_replica_set(4), there)
    assert [pod.metadata.name for pod in found.made] == ["web-new1", "web-new3", "web-new4"]
    indexed = a_job(5, 2)
    indexed.spec.completion_mode = "Indexed"
    assert [pod.metadata.name for pod in foreseen(indexed).made] == ["count-0-new1", "count-1-new1"]


def test_a_manifest_that_does_not_say_how_many_leaves_that_as_it_is() -> None:
    stored, silent = a_replica_set(4), a_replica_set(1)
    stored.metadata.uid = "u"
    silent.spec.ClearField("replicas")
    assert len(foreseen(silent, stored).made) == 4
    assert len(foreseen(silent).made) == 1


def test_pods_of_a_controller_that_nobody_shows_are_known_by_its_name() -> None:
    pod = Pod(metadata={"name": "web-x", "namespace": "default"})
    pod.metadata.owner_references.add(api_version="apps/v1", kind="ReplicaSet", name="web", uid="1", controller=True)
    assert len(foreseen(a_replica_set(3), pod).made) == 2
    stored = a_replica_set(3)
    stored.metadata.uid = "2"
    # Of a set of that name that is gone.
    assert len(foreseen(a_replica_set(3), pod, stored).made) == 3


def test_the_group_of_a_job_comes_along_unless_it_is_there() -> None:
    job = a_job(None, 3)
    job.metadata.annotations[GANG_ANNOTATION] = "true"
    found = foreseen(job)
    assert found.group is not None and found.group.spec.scheduling_policy.gang.min_count == 3
    assert {pod.spec.scheduling_group.pod_group_name for pod in found.made} == {"count"}
    with pytest.raises(TemplateRefused, match="pod group count is there already and is not this job's"):
        foreseen(job, PodGroup(metadata={"name": "count", "namespace": "default"}))


def test_a_plan_of_more_pods_than_there_ever_are_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreseen_pods, "PODS_MAX", 1_200)
    foresight = WorkloadForesight([], AdmissionClasses(), START)
    assert len(foresight.pods_of(a_replica_set(1_100)).made) == 1_100
    assert len(foresight.pods_of(a_job(None, 100)).made) == 100
    with pytest.raises(TemplateRefused, match=r"spec\.replicas: a plan has at most 1200 new pods of controllers"):
        foresight.pods_of(a_replica_set(1, "other"))
    with pytest.raises(TemplateRefused, match=r"spec\.replicas: a plan has at most 1200"):
        WorkloadForesight([], AdmissionClasses(), START).pods_of(a_replica_set(2_000_000_000))


def test_what_the_api_would_refuse_is_refused() -> None:
    with pytest.raises(TemplateRefused, match=r"spec\.replicas"):
        foreseen(a_replica_set(-1))
    unknown = a_replica_set(1)
    unknown.spec.template.spec.priority_class_name = "nobodys"
    with pytest.raises(TemplateRefused, match="nobodys"):
        foreseen(unknown)
