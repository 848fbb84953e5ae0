"""The examples of pod groups do what their first lines say, over a model store. Pods of jobs are made."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from rayched.api import kinds
from rayched.api.admission import resolve_priority
from rayched.api.defaulting import default
from rayched.api.manifest import read_documents, read_object
from rayched.api.validation import validate
from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.workloads.job_groups import WantedGroup, group_write, wanted_group
from rayched.controllers.workloads.pod_making import PodMaker
from rayched.controllers.workloads.workload_view import AdmissionClasses, pod_owner
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import Job, PodGroup
from tests.core.builders import a_node
from tests.core.grouped import bound_of, scheduled
from tests.core.leading import a_replica, key_of, put_node
from tests.core.replica import KEYS, Replica

EXAMPLES = Path(__file__).parents[2] / "examples" / "groups"
ZONE = "topology.kubernetes.io/zone"


def apply(replica: Replica, name: str) -> None:
    """As `rayched apply -f` and the job controller, whose creations come after the job."""
    for document in read_documents((EXAMPLES / name).read_text(), name):
        message = kinds.unwrap(read_object(document).object)
        message.metadata.namespace, message.metadata.uid = "default", f"uid-of-{message.metadata.name}"
        default(message)
        if isinstance(message, PodGroup):
            assert not resolve_priority(message, {})
        assert not validate(message), validate(message)
        key = KEYS.object_key(kinds.of_message(message), "default", message.metadata.name)
        revision = replica.store.put(key, encode(kinds.wrap(message)))
        if isinstance(message, Job):
            make_pods(replica, Entry(key, replica.store.now[key].value, revision, revision), message)


def make_pods(replica: Replica, entry: Entry, job: Job) -> None:
    owner, maker = pod_owner(entry, job), PodMaker(KEYS, Random(job.metadata.name), DefaultTolerations())
    assert owner is not None
    prototype, write = maker.prototype(owner, AdmissionClasses()), LeaderWrite()
    group = wanted_group(owner, job, KEYS, {})
    if isinstance(group, WantedGroup):
        made = group_write(group, owner, prototype, maker.uid(), 0.0, write)
        replica.store.put(made.key, made.value)
    for index in range(job.spec.parallelism):
        creation = maker.creation(owner, prototype, f"{job.metadata.name}-{index}", index, 0.0, write)
        replica.store.put(creation.key, creation.value)


@pytest.fixture
def leader() -> Replica:
    replica = a_replica()
    replica.store.txn_ops_max = 1_100
    return replica


@pytest.mark.row("GT1", "GT6")
def test_sixteen_ranks_go_to_one_zone(leader: Replica) -> None:
    for zone, size in (("a", 3), ("b", 5), ("c", 3)):
        for number in range(size):
            put_node(leader.store, a_node(f"{zone}-{number}", labels={ZONE: zone}))
    apply(leader, "ranks.yaml")
    leader.settle()
    assert len(bound_of(leader, "ranks")) == 16
    assert {node.partition("-")[0] for node in leader.bound().values()} == {"b"}


@pytest.mark.row("G71", "GT6")
def test_of_two_jobs_that_each_need_six_of_ten_nodes_one_runs_and_then_the_other(leader: Replica) -> None:
    for number in range(10):
        put_node(leader.store, a_node(f"n{number}"))
    apply(leader, "two-jobs.yaml")
    leader.settle()
    counts = {name: len(bound_of(leader, name)) for name in ("first", "second")}
    assert counts == {"first": 6, "second": 0}
    assert scheduled(leader.store, "second")[:2] == ("False", "Unschedulable")
    for name in bound_of(leader, "first"):
        leader.store.delete(key_of(name))
    leader.settle()
    leader.clock.now += 15
    leader.settle()
    assert len(bound_of(leader, "second")) == 6
