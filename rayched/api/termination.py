"""How a pod's life ends, as changes of the object: the rule of graceful deletion, and the condition that says who wanted it.

| pod | asked to end |
|---|---|
| without a node, or that has ended | its object can go at once |
| on a node, grace 0 | its object can go at once; a job's pod is marked, deletion_timestamp = now |
| on a node | deletion_timestamp = now + grace; its agent stops it and removes it. Asked again, the grace can only shrink |

A pod of a job carries a finalizer until its job has counted it, and its object does not go before: where it could go at once it
becomes Failed instead, if nothing of it runs and it has not ended, with a deletion_timestamp of now. Whoever takes the finalizer
away removes it. That one which may run on a node has Failed is said by its agent's removal, or the end of its node: its place is
not free before. The finalizer holds no pod that no job controls; other finalizers hold nothing at all.

deletion_timestamp is when the pod has to be gone, as in Kubernetes; when it was asked to is that less the grace.

Pure: the time comes in. Source: graceful deletion of pods and the condition DisruptionTarget (KEP-3329), Kubernetes 1.34.
"""

from __future__ import annotations

import enum
from typing import Final

from rayched.api.conditions import set_condition
from rayched.api.kinds import JOB
from rayched.v1.core_pb2 import Pod

FINAL_PHASES: Final = ("Succeeded", "Failed")

START_ERROR: Final = "StartError"
"""The reason of a container that never began; its message says why."""

DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
GROUP_INCOMPLETE: Final = "GroupIncomplete"
EVICTION_BY_EVICTION_API: Final = "EvictionByEvictionAPI"
DELETION_BY_TAINT_MANAGER: Final = "DeletionByTaintManager"
DELETION_BY_POD_GC: Final = "DeletionByPodGC"
"""Reasons of that condition."""


JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer of pods that their job has not counted."""

GRACE_SECONDS_MAX: Final = 2**31 - 1
"""More counts as so much: no time that a pod has to be gone by lies beyond what can be written."""

RULE_UNCOUNTED_PODS_STAY: bool = True
"""Broken by tests alone."""


class Ending(enum.Enum):
    """What became of a pod that was asked to end."""

    REMOVE = "nothing of it runs: the object is to be removed; it was not changed"
    STOPPING = "it was given its deletion_timestamp, or an earlier one"
    UNCHANGED = "it is ending already, and no later than asked for"


def ask_to_end(pod: Pod, grace_seconds: int | None, now_seconds: int) -> Ending:
    """Marks the pod in place; `grace_seconds` None: as long as its own spec gives it."""
    if not pod.spec.node_name or pod.status.phase in FINAL_PHASES:
        return end_object(pod, now_seconds)
    grace = pod.spec.termination_grace_period_seconds if grace_seconds is None else grace_seconds
    if grace <= 0:
        return _stop_at_once(pod, now_seconds) if _is_held(pod) else Ending.REMOVE
    grace = min(grace, GRACE_SECONDS_MAX)
    metadata = pod.metadata
    if metadata.HasField("deletion_timestamp"):
        if grace >= metadata.deletion_grace_period_seconds:
            return Ending.UNCHANGED
        asked_at = metadata.deletion_timestamp.seconds - metadata.deletion_grace_period_seconds
        metadata.deletion_timestamp.seconds = asked_at + grace
    else:
        metadata.deletion_timestamp.seconds = now_seconds + grace
    metadata.deletion_grace_period_seconds = grace
    return Ending.STOPPING


def end_object(pod: Pod, now_seconds: int) -> Ending:
    """The end of a pod of which nothing runs: it can go, or is marked in place as one that its job has yet to count."""
    if not _is_held(pod):
        return Ending.REMOVE
    metadata, ended = pod.metadata, pod.status.phase in FINAL_PHASES
    if ended and metadata.HasField("deletion_timestamp") and not metadata.deletion_grace_period_seconds:
        return Ending.UNCHANGED
    metadata.deletion_timestamp.seconds = now_seconds
    metadata.deletion_grace_period_seconds = 0
    if not ended:
        pod.status.phase = "Failed"
    return Ending.STOPPING


def _stop_at_once(pod: Pod, now_seconds: int) -> Ending:
    metadata = pod.metadata
    if metadata.HasField("deletion_timestamp") and not metadata.deletion_grace_period_seconds:
        return Ending.UNCHANGED
    metadata.deletion_timestamp.seconds = now_seconds
    metadata.deletion_grace_period_seconds = 0
    return Ending.STOPPING


def _is_held(pod: Pod) -> bool:
    return is_tracked(pod) and RULE_UNCOUNTED_PODS_STAY


def is_tracked(pod: Pod) -> bool:
    """Whether a job has yet to count the pod: it has the finalizer, and a job is its controller. Anybody can write the first."""
    return JOB_TRACKING in pod.metadata.finalizers and any(
        owner.controller and (owner.api_version, owner.kind) == (JOB.api_version, JOB.name)
        for owner in pod.metadata.owner_references
    )


def mark_disrupted(pod: Pod, reason: str, message: str, now_seconds: int) -> None:
    """Sets the condition DisruptionTarget in place: something other than the pod itself ends it."""
    set_condition(pod.status.conditions, DISRUPTION_TARGET, "True", reason, message, now_seconds)


def is_disrupted(pod: Pod, reason: str) -> bool:
    """Whether the condition DisruptionTarget names this reason."""
    return any(
        (condition.type, condition.status, condition.reason) == (DISRUPTION_TARGET, "True", reason)
        for condition in pod.status.conditions
    )
