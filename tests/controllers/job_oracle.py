"""What a job wants done, counted anew from all of its pods: slow and plain, and not from what the controller keeps.

It says what is to be done without saying in which order, as far as the order is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rayched.controllers.workloads.owned_pods import OwnedPod
from rayched.v1.workloads_pb2 import Job


@dataclass
class Recount:
    """Of one look at a job that has not finished."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    restarts: int = 0
    release: list[str] = field(default_factory=list)
    """Names of pods whose finalizer may go."""
    unnamed: dict[str, list[str]] = field(default_factory=lambda: {"Succeeded": [], "Failed": []})
    """uids that the status has to name, one for each pod."""
    kept: dict[str, list[str]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    """All that the status counts now."""
    total: dict[str, int] = field(default_factory=dict)
    """And with those that it names, or has to."""
    done: set[int] = field(default_factory=set)
    out_of_place: list[str] = field(default_factory=list)
    """Names, in the order in which they go."""
    free: list[int] = field(default_factory=list)
    """Indexes that a pod may be made for."""


def numbers_in(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def recount(job: Job, pods: Sequence[OwnedPod]) -> Recount:
    spec, status, found = job.spec, job.status, Recount()
    indexed, only_failed = spec.completion_mode == "Indexed", spec.pod_replacement_policy == "Failed"
    active = [pod for pod in pods if not pod.ended and not pod.deleting]
    terminating = [pod for pod in pods if not pod.ended and pod.deleting]
    found.active, found.terminating = len(active), len(terminating)
    found.ready = sum(pod.ready_since is not None for pod in active)
    found.restarts = sum(pod.restarts for pod in active)
    named = {"Succeeded": [*status.uncounted_terminated_pods.succeeded], "Failed": [*status.uncounted_terminated_pods.failed]}
    recorded = {index for index in numbers_in(status.completed_indexes) if index < spec.completions} if indexed else set()
    found.done = set(recorded)
    for pod in pods:
        if not pod.tracked or not (pod.ended or (pod.deleting and not only_failed)):
            continue
        outcome = "Succeeded" if pod.phase == "Succeeded" else "Failed"
        has_index = pod.index is not None and pod.index < spec.completions
        succeeds = indexed and outcome == "Succeeded"
        is_known = pod.uid in named["Succeeded"] + named["Failed"] or (succeeds and pod.index in recorded)
        if is_known or (indexed and not has_index):
            found.release.append(pod.name)
        elif succeeds and pod.index is not None:
            found.done.add(pod.index)
        else:
            found.unnamed[outcome].append(pod.uid)
    held = {pod.uid for pod in pods if pod.tracked}
    for outcome, before in (("Succeeded", status.succeeded), ("Failed", status.failed)):
        found.kept[outcome] = [uid for uid in named[outcome] if uid in held]
        found.counted[outcome] = before + sum(uid not in held for uid in named[outcome])
        found.total[outcome] = found.counted[outcome] + len(found.kept[outcome]) + len(found.unnamed[outcome])
    if indexed:
        found.counted["Succeeded"] = found.total["Succeeded"] = len(found.done)
        seen: set[int] = set()
        for pod in sorted(active, key=lambda pod: (not pod.node_name, pod.created_at, pod.uid, pod.key)):
            if pod.index is None or pod.index >= spec.completions or pod.index in seen or pod.index in found.done:
                found.out_of_place.append(pod.name)
            else:
                seen.add(pod.index)
        taken = {pod.index for pod in (active + terminating if only_failed else active)}
        found.free = [index for index in range(spec.completions) if index not in found.done | taken]
    return found


class BackoffOracle:
    """Failures in a row, by all that have ended at each look."""

    def __init__(self) -> None:
        self.failures = 0
        self.last_failure_at = 0.0
        self._seen: set[str] = set()

    def observe(self, job: Job, pods: Sequence[OwnedPod], now: float) -> None:
        only_failed = job.spec.pod_replacement_policy == "Failed"
        ended = [pod for pod in pods if pod.tracked and (pod.ended or (pod.deleting and not only_failed))]
        news = [pod for pod in ended if pod.uid not in self._seen]
        self._seen = {pod.uid for pod in ended}
        for pod in sorted(news, key=lambda pod: (pod.ended_at, pod.uid)):
            self.failures = 0 if pod.phase == "Succeeded" else self.failures + 1
            if pod.phase != "Succeeded":
                self.last_failure_at = min(pod.ended_at or now, now)
