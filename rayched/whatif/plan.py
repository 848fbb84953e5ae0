"""Plans: where pods would go in a copy of a cluster, what would have to leave, and what would stay pending.

Pods are tried as the queue would have them: the higher priority first, then in the order given. Whoever finds no node is tried
again after others were placed or had to leave, until a round brings nothing more; there is no backoff here, as no time passes. A
preemptor's victims are gone at once, and it is tried again in its turn, with its nomination; what they were is not placed anew.

Pods that a gate or a Permit plugin holds back stay pending with that for a reason.

Source: the scheduling cycle itself; nothing of it is repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rayched.framework.plugin import PreEnqueuePlugin
from rayched.framework.status import Status
from rayched.scheduler import attempt
from rayched.scheduler.attempt import Attempt, AttemptFailure, AttemptPhase
from rayched.v1.core_pb2 import Pod
from rayched.whatif.cluster import Cluster, name_of, uid_of


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod would go to a node."""

    pod: str
    """namespace/name."""
    node_name: str


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod would stay pending."""

    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedPreemption:
    """Pods would have to leave a node so that another fits there."""

    pod: str
    node_name: str
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhatIfPlan:
    """What would happen, each in the order in which it would."""

    placements: tuple[Placement, ...]
    preemptions: tuple[PlannedPreemption, ...]
    unplaced: tuple[Unplaced, ...]

    @property
    def is_empty(self) -> bool:
        """Nothing would change."""
        return not self.placements and not self.preemptions


class WhatIfPlanner:
    """Places pods in a copy of a cluster, which it changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._placements: list[Placement] = []
        self._preemptions: list[PlannedPreemption] = []

    def drain(self, node_name: str) -> None:
        """The node's pods lose it and wait for another, as if their controllers had replaced them at once; daemons stay."""
        for pod in [pod for pod in self._cluster.bound.values() if pod.spec.node_name == node_name]:
            if any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
                continue
            self._cluster.remove_pod(uid_of(pod))
            if pod.metadata.HasField("deletion_timestamp"):
                continue
            waiting = Pod()
            waiting.CopyFrom(pod)
            waiting.spec.node_name = ""
            waiting.ClearField("status")
            self._cluster.add_pod(waiting)

    def plan(self, pods: Iterable[Pod]) -> WhatIfPlan:
        """Place these pods and those that are pending already."""
        for pod in pods:
            self._cluster.add_pod(pod)
        waiting = sorted(self._cluster.pending.values(), key=lambda pod: -pod.spec.priority)
        reasons: dict[str, str] = {}
        while waiting:
            done = len(self._placements) + len(self._preemptions)
            waiting = [pod for pod in waiting if not self._try(pod, reasons)]
            if len(self._placements) + len(self._preemptions) == done:
                break
        unplaced = tuple(Unplaced(name_of(pod), reasons[uid_of(pod)]) for pod in waiting)
        return WhatIfPlan(tuple(self._placements), tuple(self._preemptions), unplaced)

    def _try(self, pod: Pod, reasons: dict[str, str]) -> bool:
        """One attempt; whether the pod has a node now."""
        cluster, uid = self._cluster, uid_of(pod)
        profile = cluster.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            known = ", ".join(sorted(cluster.profiles))
            reasons[uid] = f'spec.schedulerName: no profile has the name "{pod.spec.scheduler_name}"; there are {known}'
            return False
        gate = _gated(pod, profile.pre_enqueue)
        if gate is not None:
            reasons[uid] = gate.message()
            return False
        found = cluster.scheduler.schedule(cluster.to_schedule(pod), 0, 0.0)
        if isinstance(found, Attempt) and found.phase is AttemptPhase.WAITING:
            cluster.scheduler.roll_back(found)
            reasons[uid] = f"it would wait for a Permit plugin, on node {found.node_name}"
            return False
        failure = found if isinstance(found, AttemptFailure) else cluster.scheduler.begin_binding(found, uid)
        if failure is not None:
            reasons[uid] = failure.message
            if failure.preemption is not None:
                self._preempt(pod, failure.preemption)
            return False
        assert isinstance(found, Attempt)
        self._bind(pod, found)
        return True

    def _preempt(self, pod: Pod, preemption: attempt.Preemption) -> None:
        """The victims are gone; the preemptor is tried again in its turn, with its nomination."""
        victims = tuple(name_of(self._cluster.bound[uid]) for uid in preemption.victims)
        for uid in preemption.victims:
            self._cluster.remove_pod(uid)
        self._preemptions.append(PlannedPreemption(name_of(pod), preemption.node_name, victims))

    def _bind(self, pod: Pod, done: Attempt) -> None:
        self._cluster.scheduler.bound(done)
        self._cluster.remove_pod(done.uid)
        bound = Pod()
        bound.CopyFrom(pod)
        bound.spec.node_name = done.node_name
        bound.status.nominated_node_name = ""
        self._cluster.add_pod(bound)
        self._placements.append(Placement(done.name, done.node_name))


def _gated(pod: Pod, plugins: Iterable[PreEnqueuePlugin]) -> Status | None:
    for plugin in plugins:
        status = plugin.pre_enqueue(pod)
        if not status.ok:
            return status
    return None
