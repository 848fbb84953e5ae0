"""ReplicaSets and jobs over a real etcd: the API, the leader's loop beside it, and agents that report."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import REGISTRY

from leader.channel import open_channel
from rayched.api.kinds import JOB, POD, REPLICA_SET, wrap
from rayched.api.termination import JOB_TRACKING
from rayched.client import ApiError, Client
from rayched.controllers.workloads.workload_controller import WorkloadController
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.codec import encode
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Event, Pod
from rayched.v1.services_pb2 import ApplyResponse, PodStatusUpdate
from rayched.v1.workloads_pb2 import Job, ReplicaSet
from tests.patience import patient_store
from tests.server.objects import a_namespace, a_pod

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 30.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def lead(etcd: EtcdServer, keys: Keys) -> Iterator[Callable[[], int]]:
    """Begins a new epoch, with a loop of its own; the loops before still believe in theirs."""
    loops: list[WorkloadController] = []
    with open_channel([etcd.endpoint]) as channel:
        store = patient_store(channel)

        def begin() -> int:
            epoch = store.put(keys.epoch, b"{}")
            loops.append(WorkloadController([etcd.endpoint], keys, lambda: epoch))
            loops[-1].start()
            return epoch

        begin()
        yield begin
        assert [loop.problem() for loop in loops] == [None] * len(loops)
        for loop in loops:
            loop.stop()


@pytest.fixture
def namespace(client: Client, lead: Callable[[], int]) -> str:
    name = f"space-{next(_numbers)}"
    client.submit(a_namespace(name))
    return name


def a_replica_set(namespace: str, replicas: int) -> ReplicaSet:
    found = ReplicaSet(metadata={"name": "web", "namespace": namespace})
    found.spec.replicas = replicas
    found.spec.selector.match_labels["app"] = found.spec.template.metadata.labels["app"] = "web"
    found.spec.template.spec.containers.add(name="main", image="nginx:1")
    return found


def a_job(namespace: str, completions: int, parallelism: int) -> Job:
    found = Job(metadata={"name": "count", "namespace": namespace})
    found.spec.completions, found.spec.parallelism = completions, parallelism
    found.spec.template.spec.restart_policy = "Never"
    # It names its node, as nothing schedules here.
    found.spec.template.spec.node_name = "node-1"
    found.spec.template.spec.containers.add(name="main", image="nginx:1")
    return found


def pods(client: Client, namespace: str) -> list[Pod]:
    return [pod for pod in client.list(POD, namespace=namespace) if isinstance(pod, Pod)]


def end(client: Client, pod: Pod, phase: str = "Succeeded") -> None:
    update = PodStatusUpdate(name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid)
    update.status.phase = phase
    assert client.update_pod_statuses([update]) == (None,)


def soon(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"it did not happen: {what}"
        time.sleep(0.02)


def job_of(client: Client, namespace: str) -> Job:
    found = client.get(JOB, "count", namespace)
    assert isinstance(found, Job)
    return found


def is_complete(job: Job) -> bool:
    return any(one.type == "Complete" and one.status == "True" for one in job.status.conditions)


def test_replicas_come_follow_their_number_and_go(client: Client, namespace: str) -> None:
    client.apply(a_replica_set(namespace, 3))
    soon(lambda: len(pods(client, namespace)) == 3, "three pods")
    answer = client.scale(REPLICA_SET, "web", namespace, replicas=1, current_replicas=3)
    assert (answer.changed, answer.previous_replicas, answer.object.replica_set.metadata.generation) == (True, 3, 2)
    soon(lambda: len(pods(client, namespace)) == 1, "one pod")
    found = client.wait_for(
        REPLICA_SET,
        "web",
        namespace,
        until=lambda one: isinstance(one, ReplicaSet) and one.status.observed_generation == 2 and one.status.replicas == 1,
        timeout_seconds=20,
    )
    assert isinstance(found, ReplicaSet)
    # As it was first written: the status is nobody's to apply.
    manifest = a_replica_set(namespace, 1)
    manifest.status.replicas = 9
    assert client.apply(manifest).action == ApplyResponse.UNCHANGED
    client.delete(REPLICA_SET, "web", namespace)
    soon(lambda: not pods(client, namespace), "no pods")


@pytest.mark.parametrize(
    ("kind", "expected", "text"),
    [(POD, None, "a Pod cannot be scaled; want one of ReplicaSet"), (REPLICA_SET, 7, "expected replicas to be 7, was 0")],
)
def test_what_cannot_be_scaled_is_told(client: Client, namespace: str, kind: object, expected: int | None, text: str) -> None:
    client.submit(a_replica_set(namespace, 0))
    client.submit(a_pod("web", namespace=namespace))
    with pytest.raises(ApiError, match=text):
        client.scale(kind, "web", namespace, replicas=2, current_replicas=expected)  # type: ignore[arg-type]
    with pytest.raises(ApiError, match="must not be negative"):
        client.scale(REPLICA_SET, "web", namespace, replicas=-1)


def test_a_job_ends_though_another_leader_comes(client: Client, namespace: str, lead: Callable[[], int]) -> None:
    client.submit(a_job(namespace, 4, 2))
    soon(lambda: len(pods(client, namespace)) == 2, "two pods")
    for pod in pods(client, namespace):
        end(client, pod)
    lead()
    soon(lambda: job_of(client, namespace).status.succeeded == 2, "two are counted")
    soon(lambda: len(pods(client, namespace)) == 4, "two more")
    for pod in pods(client, namespace):
        if pod.status.phase == "Pending":
            end(client, pod)
            client.delete(POD, pod.metadata.name, namespace)
    soon(lambda: is_complete(job_of(client, namespace)), "it is complete")
    status = job_of(client, namespace).status
    assert (status.succeeded, status.failed, status.active) == (4, 0, 0)
    assert {pod.status.phase for pod in pods(client, namespace)} == {"Succeeded"}


def test_a_pod_that_its_agent_removes_is_counted_first(client: Client, namespace: str) -> None:
    client.submit(a_job(namespace, 1, 1))
    soon(lambda: len(pods(client, namespace)) == 1, "a pod")
    (pod,) = pods(client, namespace)
    client.delete(POD, pod.metadata.name, namespace)
    removal = PodStatusUpdate(name=pod.metadata.name, namespace=namespace, uid=pod.metadata.uid, remove=True)
    assert client.update_pod_statuses([removal]) == (None,)
    soon(lambda: job_of(client, namespace).status.failed == 1, "it is counted")
    soon(lambda: pod.metadata.name not in {one.metadata.name for one in pods(client, namespace)}, "it is gone")
    # A repetition of the report, whose answer was lost.
    assert client.update_pod_statuses([removal]) == (None,)


def test_a_job_is_applied_as_it_was_written_and_as_it_is_given(client: Client, namespace: str) -> None:
    created = client.apply(a_job(namespace, 1, 0))
    uid = created.object.job.metadata.uid
    assert created.action == ApplyResponse.CREATED
    assert created.object.job.spec.selector.match_labels["batch.kubernetes.io/controller-uid"] == uid
    soon(lambda: job_of(client, namespace).status.HasField("start_time"), "its status is there")
    assert client.apply(a_job(namespace, 1, 0)).action == ApplyResponse.UNCHANGED
    assert client.apply(client.get(JOB, "count", namespace)).action == ApplyResponse.UNCHANGED
    changed = client.apply(a_job(namespace, 1, 2)).object.job
    assert (changed.spec.parallelism, changed.metadata.generation) == (2, 2)
    with pytest.raises(ApiError, match=r"spec.completions: cannot be changed"):
        client.apply(a_job(namespace, 5, 2))


@pytest.mark.row("W14")
def test_what_controllers_do_is_told_once_with_its_count(client: Client, namespace: str, lead: Callable[[], int]) -> None:
    def told() -> dict[tuple[str, str], Event]:
        found = [one for one in client.list("events", namespace=namespace) if isinstance(one, Event)]
        assert len({(one.involved_object.uid, one.reason) for one in found}) == len(found)
        return {(one.involved_object.name, one.reason): one for one in found}

    client.submit(a_replica_set(namespace, 40))
    client.submit(a_job(namespace, 2, 2))
    soon(lambda: len(pods(client, namespace)) == 42, "the pods")
    soon(lambda: len(told()) == 2, "their creation is told")
    soon(lambda: told()["web", "SuccessfulCreate"].count == 40, "all of them are counted")
    created = told()["web", "SuccessfulCreate"]
    assert (created.type, created.source.component) == ("Normal", "replicaset-controller")
    assert created.message in {f"Created pod: {pod.metadata.name}" for pod in pods(client, namespace)}
    assert created.involved_object.uid == client.get(REPLICA_SET, "web", namespace).metadata.uid
    for pod in pods(client, namespace):
        if pod.metadata.owner_references[0].kind == "Job":
            end(client, pod)
    soon(lambda: ("count", "Completed") in told(), "it is told that the job has completed")
    assert told()["count", "Completed"].message == "Job completed"
    # The next leader counts on what is there.
    lead()
    client.scale(REPLICA_SET, "web", namespace, replicas=43)
    soon(lambda: told()["web", "SuccessfulCreate"].count == 43, "the next three are counted with the others")
    client.scale(REPLICA_SET, "web", namespace, replicas=1)
    soon(lambda: ("web", "SuccessfulDelete") in told() and told()["web", "SuccessfulDelete"].count == 42, "and those that went")


def test_waiting_ends_with_the_time_and_says_what_is_there(client: Client, namespace: str) -> None:
    with pytest.raises(ApiError, match="is not there after"):
        client.wait_for(POD, "none", namespace, until=lambda one: one is not None, timeout_seconds=0.3)
    assert client.wait_for(POD, "none", namespace, until=lambda one: one is None, timeout_seconds=5) is None
    client.submit(a_pod("web", namespace=namespace))
    with pytest.raises(ApiError, match="is not as it is waited for after"):
        client.wait_for(POD, "web", namespace, until=lambda one: one is None, timeout_seconds=0.3)


@pytest.mark.row("W4")
def test_what_is_left_of_a_workload_is_found_though_there_is_none(etcd: EtcdServer) -> None:
    keys = Keys("/leftovers")
    left, by_hand = a_pod("left", namespace="default"), a_pod("by-hand", namespace="default")
    for pod in (left, by_hand):
        pod.metadata.owner_references.add(api_version="batch/v1", kind="Job", name="gone", uid="gone", controller=True)
    left.metadata.owner_references[0].block_owner_deletion = True
    left.metadata.finalizers.append(JOB_TRACKING)
    with open_channel([etcd.endpoint]) as channel:
        store = patient_store(channel)
        for pod in (left, by_hand):
            store.put(keys.object_key(POD, "default", pod.metadata.name), encode(wrap(pod)))
        epoch = store.put(keys.epoch, b"{}")
        loop = WorkloadController([etcd.endpoint], keys, lambda: epoch)
        loop.start()
        try:
            soon(lambda: len(store.list_all(keys.prefix(POD)).entries) == 1, "it is gone")
            # Also one that comes later, when the leader has long been waiting for a workload.
            time.sleep(1.0)
            left.metadata.name = "left-later"
            store.put(keys.object_key(POD, "default", "left-later"), encode(wrap(left)))
            soon(lambda: len(store.list_all(keys.prefix(POD)).entries) == 1, "that one is gone as well")
        finally:
            loop.stop()
        (kept,) = store.list_all(keys.prefix(POD)).entries
        assert kept.key.endswith(b"/by-hand")


def given_up() -> float:
    found = REGISTRY.get_sample_value("rayched_workload_events_total", {"outcome": "given_up"})
    assert found is not None
    return found


@pytest.mark.row("W14")
def test_without_room_for_events_pods_are_made_and_what_would_be_told_is_given_up(etcd: EtcdServer) -> None:
    keys, before = Keys("/no-room"), given_up()
    with open_channel([etcd.endpoint]) as channel:
        store = patient_store(channel)
        epoch = store.put(keys.epoch, b"{}")
        loop = WorkloadController([etcd.endpoint], keys, lambda: epoch, may_tell=lambda: False)
        loop.start()
        try:
            replica_set = a_replica_set("default", 3)
            replica_set.metadata.uid = "uid-web"
            store.put(keys.object_key(REPLICA_SET, "default", "web"), encode(wrap(replica_set)))
            soon(lambda: len(store.list_all(keys.prefix(POD)).entries) == 3, "its pods are made")
            soon(lambda: given_up() == before + 3, "each of them would have been told of")
        finally:
            loop.stop()
        assert not store.list_all(keys.events_prefix).entries
