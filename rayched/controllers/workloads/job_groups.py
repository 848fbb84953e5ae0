"""The PodGroup of a job that asks to be one (`api.gangs`): made before its pods, and changed with its parallelism. Pure.

The job is its controller, and it goes when the job does. One of that name that is somebody else's is left alone: the job then
makes no pods, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rayched.api.gangs import asks_for_group, min_count
from rayched.api.kinds import JOB, POD_GROUP, wrap
from rayched.controllers.workloads.workload_view import PodOwner, SeenGroup
from rayched.store.codec import decode_entry, encode
from rayched.store.keys import Keys
from rayched.store.transactions import GuardedPut
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import Job, PodGroup

OP_GANG: Final = "gang"
"""A leader's write of the group of a job."""


@dataclass(frozen=True, slots=True)
class WantedGroup:
    """The group as the job wants it, where it is not so yet."""

    key: bytes
    seen: SeenGroup | None
    count: int


def wanted_group(workload: PodOwner, job: Job, keys: Keys, groups: dict[bytes, SeenGroup]) -> WantedGroup | str | None:
    """None: the job asks for none, or the group is as it is to be. A text: why it cannot have one of its name."""
    count = min_count(job)
    if not asks_for_group(job) or not count:
        return None
    key = keys.object_key(POD_GROUP, job.metadata.namespace, job.metadata.name)
    seen = groups.get(key)
    if seen is not None and seen.owner != workload.identity:
        return f"pod group {job.metadata.name} is there already and is not this job's"
    if seen is not None and seen.min_count == count:
        return None
    return WantedGroup(key, seen, count)


def group_write(wanted: WantedGroup, workload: PodOwner, prototype: Pod, uid: str, wall: float, write: LeaderWrite) -> GuardedPut:
    """Makes the group, or changes its minimum, if the job is still as it was seen. `prototype`: of its pods, as admitted."""
    if wanted.seen is not None:
        item = decode_entry(wanted.seen.entry)
        item.pod_group.spec.scheduling_policy.gang.min_count = wanted.count
        item.pod_group.metadata.generation += 1
        revision = wanted.seen.entry.mod_revision
    else:
        item, revision = wrap(group_of_job(workload, prototype, wanted.count, uid, wall)), 0
    return GuardedPut(wanted.key, revision, encode(item, write), also=workload.condition, attempt=write.attempt)


def group_of_job(workload: PodOwner, prototype: Pod, count: int, uid: str, wall: float) -> PodGroup:
    """As it is made; `prototype` as in `group_write`."""
    job = workload.message.metadata
    group = PodGroup(api_version=POD_GROUP.api_version, kind=POD_GROUP.name)
    metadata, spec = group.metadata, group.spec
    metadata.namespace, metadata.name, metadata.uid, metadata.generation = job.namespace, job.name, uid, 1
    metadata.creation_timestamp.seconds = int(wall)
    metadata.owner_references.add(
        api_version=JOB.api_version, kind=JOB.name, name=job.name, uid=job.uid, controller=True, block_owner_deletion=True
    )
    spec.scheduling_policy.gang.min_count = count
    spec.disruption_mode.single.SetInParent()
    # What admission has given to its pods: members and group agree in these.
    spec.priority_class_name, spec.priority = prototype.spec.priority_class_name, prototype.spec.priority
    if prototype.spec.preemption_policy:
        spec.preemption_policy = prototype.spec.preemption_policy
    return group
