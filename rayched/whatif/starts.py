"""When pods that wait would start at the latest, as far as that can be known: others have ends, and give their room back then.

An end is known of a pod that is being deleted, of one with `activeDeadlineSeconds`, and of one whose Job has it. A pod that a
controller replaces gives no room back, so of those only the Job's end counts. A pod may end before: a start is an upper bound,
provided that nobody comes in between who is tried first. Where no end that is known makes room, nothing is said.

Pure: the time is an argument. Cost: a plan for each moment at which pods end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job
from rayched.whatif.plan import WhatIfPlanner

MOMENTS_MAX: Final = 200
"""At which pods end; later ones are not looked at."""


@dataclass(frozen=True, slots=True)
class EstimatedStart:
    """A pod that waits would have a node by then."""

    pod: str
    """namespace/name."""
    node_name: str
    seconds: float
    """Unix time; that of the question: there is room now."""


def estimated_starts(planner: WhatIfPlanner, jobs: Iterable[Job], now: float) -> tuple[EstimatedStart, ...]:
    """In the order in which they would start. The planner's cluster is used up. `now` and starts are Unix seconds."""
    deadlines = {job.metadata.uid: end for job in jobs if (end := _end_of_job(job)) is not None}
    cluster = planner.cluster
    started = dict.fromkeys(cluster.bound, 0.0)
    found: list[EstimatedStart] = []
    moment = now
    for _ in range(MOMENTS_MAX):
        for placement in planner.plan(()).placements[len(found) :]:
            found.append(EstimatedStart(placement.pod, placement.node_name, moment))
        for uid in cluster.bound.keys() - started.keys():
            started[uid] = moment
        if not cluster.pending:
            break
        ends = {uid: end for uid, pod in cluster.bound.items() if (end := _end(pod, started[uid], deadlines, now)) is not None}
        if not ends:
            break
        moment = max(min(ends.values()), moment)
        for uid, end in ends.items():
            if end <= moment:
                cluster.remove_pod(uid)
    return tuple(found)


def _end(pod: Pod, planned_start: float, deadlines: Mapping[str, float], now: float) -> float | None:
    """When a bound pod is over at the latest; None: nobody knows. `planned_start`: 0 of one that has its node already."""
    controller = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    if controller is not None:
        return deadlines.get(controller.uid)
    ends = []
    if pod.metadata.HasField("deletion_timestamp"):
        ends.append(float(pod.metadata.deletion_timestamp.seconds))
    if pod.spec.HasField("active_deadline_seconds"):
        # Not begun yet: its time has not begun either.
        began = planned_start or float(pod.status.start_time.seconds) or now
        ends.append(began + pod.spec.active_deadline_seconds)
    return min(ends, default=None)


def _end_of_job(job: Job) -> float | None:
    if not job.spec.HasField("active_deadline_seconds") or not job.status.HasField("start_time"):
        return None
    return float(job.status.start_time.seconds + job.spec.active_deadline_seconds)
