"""What people are told of ReplicaSets and jobs: Kubernetes' words, once it is so, and no more often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from leader.etcd_shim import rpc
from rayched.api.kinds import JOB, REPLICA_SET
from rayched.store.event_writes import BURST, RATE_PER_SECOND, EventWrites
from rayched.store.transactions import GuardedDelete, GuardedPut, build, read
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import PriorityClass
from tests.controllers.workload_world import KEYS, WorkloadWorld, a_job, a_replica_set
from tests.core.model_store import ModelStore

Told = tuple[str, str, str, str]


def news(world: WorkloadWorld) -> list[Told]:
    """What was told since: about whom, of which type, why, and in which words."""
    found, world.news = world.news, []
    components = {"ReplicaSet": ("replicaset-controller", "apps/v1"), "Job": ("job-controller", "batch/v1")}
    for one in found:
        assert (one.component, one.subject.api_version) == components[one.subject.kind]
        assert (one.subject.namespace, one.subject.uid) == ("default", f"uid-{one.subject.name}")
    return [(one.subject.name, one.type, one.reason, one.message) for one in found]


def reasons(told: Sequence[Told]) -> Counter[tuple[str, str]]:
    return Counter((name, reason) for name, _, reason, _ in told)


@pytest.mark.row("W14")
def test_pods_that_are_made_and_that_go_are_told_of_by_name() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(3))
    world.settle()
    names = {pod.metadata.name for pod in world.pods()}
    assert sorted(news(world)) == [("web", "Normal", "SuccessfulCreate", f"Created pod: {name}") for name in sorted(names)]
    world.edit(REPLICA_SET, "web", lambda found: setattr(found.spec, "replicas", 1))
    world.settle()
    (left,) = (pod.metadata.name for pod in world.pods())
    gone = sorted(names - {left})
    assert sorted(news(world)) == [("web", "Normal", "SuccessfulDelete", f"Deleted pod: {name}") for name in gone]
    world.wait(3)
    assert news(world) == []


def test_what_etcd_does_not_have_is_not_told() -> None:
    world = WorkloadWorld()
    world.lose = lambda: "answer"
    world.create(a_replica_set(3))
    world.see()
    world.turn()
    assert len(world.pods()) == 1 and news(world) == []
    world.lose = lambda: None
    world.wait(3)
    # What became of the first one nobody has said.
    assert len(world.pods()) == 3 and reasons(news(world)) == {("web", "SuccessfulCreate"): 2}


def test_a_template_that_is_refused_is_told_of_and_by_the_writer_ever_more_rarely() -> None:
    world = WorkloadWorld()
    wants = a_replica_set(1)
    wants.spec.template.spec.priority_class_name = "gold"
    world.create(wants)
    world.settle()
    ((name, kind, reason, message),) = set(news(world))
    assert (name, kind, reason) == ("web", "Warning", "FailedCreate")
    assert message == f"Error creating: {world.replica_set().status.conditions[0].message}" and "gold" in message
    world.wait(100)
    assert 3 <= reasons(news(world))["web", "FailedCreate"] <= 8
    world.create(PriorityClass(metadata={"name": "gold"}, value=7))
    world.settle()
    assert reasons(news(world)) == {("web", "SuccessfulCreate"): 1}


def test_what_etcd_refuses_is_told_of_with_its_reason() -> None:
    world = WorkloadWorld()
    world.refuse = lambda write: write.mod_revision == 0
    world.create(a_replica_set(2))
    world.see()
    world.turn()
    assert news(world) == [("web", "Warning", "FailedCreate", "Error creating: refused")]
    world.refuse = lambda write: False
    world.wait(3)
    news(world)
    world.refuse = lambda write: isinstance(write, GuardedDelete)
    world.edit(REPLICA_SET, "web", lambda found: setattr(found.spec, "replicas", 1))
    world.see()
    world.turn()
    assert news(world) == [("web", "Warning", "FailedDelete", "Error deleting: refused")]


def test_a_job_says_that_it_is_complete() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=2, parallelism=2))
    world.settle()
    assert reasons(news(world)) == {("count", "SuccessfulCreate"): 2}
    for pod in world.active():
        world.end(pod)
    world.settle()
    assert news(world) == [("count", "Normal", "Completed", "Job completed")]
    world.new_leader()
    world.wait(3)
    assert news(world) == []


@pytest.mark.row("W14")
@pytest.mark.parametrize("why", ["BackoffLimitExceeded", "DeadlineExceeded"])
def test_a_job_that_fails_says_why(why: str) -> None:
    messages = {
        "BackoffLimitExceeded": "Job has reached the specified backoff limit",
        "DeadlineExceeded": "Job was active longer than specified deadline",
    }
    world = WorkloadWorld()
    spec: dict[str, object] = {"backoff_limit": 0} if why == "BackoffLimitExceeded" else {"active_deadline_seconds": 5}
    world.create(a_job(completions=2, parallelism=2, **spec))
    world.settle()
    news(world)
    if why == "BackoffLimitExceeded":
        world.end(world.active()[0], "Failed")
        world.settle()
    else:
        world.wait(6)
    told = news(world)
    assert told[-1] == ("count", "Warning", why, messages[why])
    assert reasons(told) == {("count", why): 1, ("count", "SuccessfulDelete"): 1 if why == "BackoffLimitExceeded" else 2}


def test_a_job_that_is_suspended_and_goes_on_says_so() -> None:
    world = WorkloadWorld()
    world.create(a_job(completions=2, parallelism=2))
    world.settle()
    news(world)
    world.edit(JOB, "count", lambda found: setattr(found.spec, "suspend", True))
    world.settle()
    told = news(world)
    assert reasons(told) == {("count", "SuccessfulDelete"): 2, ("count", "Suspended"): 1}
    assert ("count", "Normal", "Suspended", "Job suspended") in told
    world.edit(JOB, "count", lambda found: setattr(found.spec, "suspend", False))
    world.settle()
    told = news(world)
    assert reasons(told) == {("count", "SuccessfulCreate"): 2, ("count", "Resumed"): 1}
    assert ("count", "Normal", "Resumed", "Job resumed") in told


@pytest.mark.row("W14")
def test_however_much_happens_to_one_it_is_few_events_that_count() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(1_200))
    world.settle()
    world.edit(REPLICA_SET, "web", lambda found: setattr(found.spec, "replicas", 0))
    world.wait(4)
    assert len(world.news) == 2_400
    writer, store = EventWrites(KEYS, "told", repeating=True), ModelStore()
    # As they come: a hundred in each tenth of a second.
    keys, n_writes = set[bytes](), 0
    for step in range(1_000):
        for one in world.news[step * 100 : (step + 1) * 100]:
            writer.emit(one, step * 0.1, 0.0)
        batch = sent(writer, store, step * 0.1)
        keys.update(write.key for write in batch)
        n_writes += len(batch)
    events = [Stored.FromString(store.now[key].value).object.event for key in keys]
    assert {one.reason: one.count for one in events} == {"SuccessfulCreate": 1_200, "SuccessfulDelete": 1_200}
    # Each when it first happened, and then after pauses that double.
    assert len(keys) == 2 and n_writes <= 8


@pytest.mark.row("W14")
def test_events_of_many_workloads_are_bounded_in_rate() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(1))
    world.settle()
    (one,) = world.news
    many = [one._replace(subject=one.subject._replace(name=f"web-{number}", uid=f"uid-{number}")) for number in range(15_000)]
    writer, store, count = EventWrites(KEYS, "many", repeating=True), ModelStore(), 0
    for step in range(1_500):
        now = step * 0.1
        for told in many[step * 200 : (step + 1) * 200]:
            writer.emit(told, now, now)
        count += len(sent(writer, store, now))
        assert count <= BURST + now * RATE_PER_SECOND
    assert count > BURST


def sent(writer: EventWrites, store: ModelStore, now: float) -> list[GuardedPut]:
    """The Events whose turn it is, as a store takes them."""
    if writer.lease_wanted(now):
        writer.lease_granted(7, now)
    batch = writer.batch(1, store.revision, now, under_pressure=False)
    if batch:
        answer = store.txn(rpc.TxnRequest.FromString(build(None, batch)))
        for write, outcome in zip(batch, read(answer, batch), strict=True):
            writer.outcome(write, outcome, now)
    return batch
