"""What people are told of ReplicaSets and jobs, in Kubernetes' words. Pure.

Each is told once it is so: of a write when etcd has it. What happens again to the same object for the same reason is one Event
that counts, as all of rayched's (store/event_writes.py); so five hundred pods that are created are one Event, and its message has
the last of them.

Source: the events of the ReplicaSet and the Job controller of Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rayched.api.kinds import JOB, REPLICA_SET
from rayched.api.occurrences import NORMAL, WARNING, EventOccurrence, Subject
from rayched.controllers.workloads import job_conditions as conditions
from rayched.controllers.workloads.replica_sets import FAILED_CREATE
from rayched.controllers.workloads.workload_view import PodOwner
from rayched.v1.workloads_pb2 import JobStatus

SUCCESSFUL_CREATE: Final = "SuccessfulCreate"
SUCCESSFUL_DELETE: Final = "SuccessfulDelete"
FAILED_DELETE: Final = "FailedDelete"
COMPLETED: Final = "Completed"
SUSPENDED: Final = "Suspended"
RESUMED: Final = "Resumed"
COMPONENTS: Final = {REPLICA_SET.name: "replicaset-controller", JOB.name: "job-controller"}
"""Who says so."""


def _told(workload: PodOwner, kind: str, reason: str, message: str) -> EventOccurrence:
    metadata = workload.message.metadata
    subject = Subject(workload.kind.name, metadata.namespace, metadata.name, metadata.uid, workload.kind.api_version)
    return EventOccurrence(subject, kind, reason, message, COMPONENTS[workload.kind.name])


def pod_created(workload: PodOwner, pod: str) -> EventOccurrence:
    return _told(workload, NORMAL, SUCCESSFUL_CREATE, f"Created pod: {pod}")


def pod_deleted(workload: PodOwner, pod: str) -> EventOccurrence:
    return _told(workload, NORMAL, SUCCESSFUL_DELETE, f"Deleted pod: {pod}")


def not_created(workload: PodOwner, why: str) -> EventOccurrence:
    """No pod can be made."""
    return _told(workload, WARNING, FAILED_CREATE, f"Error creating: {why}")


def refused(occurrence: EventOccurrence, why: str) -> EventOccurrence | None:
    """What is told in place of it where etcd refuses the write; None: nothing."""
    match occurrence.reason:
        case "SuccessfulCreate":
            return occurrence._replace(type=WARNING, reason=FAILED_CREATE, message=f"Error creating: {why}")
        case "SuccessfulDelete":
            return occurrence._replace(type=WARNING, reason=FAILED_DELETE, message=f"Error deleting: {why}")
        case _:
            return None


def of_status(workload: PodOwner, before: JobStatus, after: JobStatus) -> Iterator[EventOccurrence]:
    """What a job's next status says for the first time."""
    finished = conditions.true_condition(after, *conditions.TERMINAL.values())
    if finished is not None and conditions.true_condition(before, finished.type) is None:
        if finished.type == conditions.COMPLETE:
            yield _told(workload, NORMAL, COMPLETED, "Job completed")
        else:
            yield _told(workload, WARNING, finished.reason, finished.message)
    was = conditions.true_condition(before, conditions.SUSPENDED) is not None
    suspended = conditions.true_condition(after, conditions.SUSPENDED) is not None
    if was != suspended:
        yield _told(workload, NORMAL, *((SUSPENDED, "Job suspended") if suspended else (RESUMED, "Job resumed")))
