"""Builders of pods, plugins and queues for the tests of this room; a fake clock where time matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayched.framework.cluster_event import NODE_ADD, Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import Registration
from rayched.framework.status import SUCCESS, Status, unresolvable
from rayched.queue.hints import HintTable
from rayched.queue.queued_pod import Move, Moves, PendingPod, Place, QueuedPodInfo
from rayched.queue.scheduling_queue import SchedulingQueue
from rayched.v1.core_pb2 import Pod

LABELS_OF_PODS = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)
ON_NODES = {"Fit": [Registration(NODE_ADD)]}
GATES_GONE = [Registration(ClusterEvent(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED))]


def by_priority(pod: QueuedPodInfo) -> tuple[int, float]:
    return (-pod.priority, pod.timestamp)


def a_pod(
    name: str = "a",
    *,
    priority: int = 0,
    labels: Mapping[str, str] | None = None,
    gates: Sequence[str] = (),
    scheduler: str = "",
    nominated: str = "",
    uid: str = "",
) -> Pod:
    pod = Pod()
    pod.metadata.name = name
    pod.metadata.namespace = "default"
    pod.metadata.uid = uid or f"uid-{name}"
    pod.metadata.labels.update(labels or {})
    pod.spec.priority = priority
    pod.spec.scheduler_name = scheduler
    pod.status.nominated_node_name = nominated
    for gate in gates:
        pod.spec.scheduling_gates.add(name=gate)
    return pod


def pending(name: str = "a", template: str | None = None, **fields: Any) -> PendingPod:
    return PendingPod.of(a_pod(name, **fields), template)


@dataclass
class Gates:
    """A PreEnqueue plugin that refuses pods with scheduling gates and counts how often it is asked."""

    name: str = "Gates"
    asked: int = 0

    def pre_enqueue(self, pod: Pod) -> Status:
        self.asked += 1
        return unresolvable("gates are closed") if pod.spec.scheduling_gates else SUCCESS


@dataclass
class Clocked:
    """A queue with its own clock."""

    queue: SchedulingQueue
    now: float = 0.0
    moves: list[Move] = field(default_factory=list)

    def after(self, seconds: float) -> Clocked:
        self.now += seconds
        return self

    def add(self, name: str = "a", **fields: Any) -> Moves:
        return self.queue.add(pending(name, **fields), self.now)

    def update(self, name: str = "a", **fields: Any) -> Moves:
        return self.queue.update(pending(name, **fields), self.now)

    def pop(self) -> str | None:
        pod = self.queue.pop(self.now)
        return None if pod is None else pod.pod.metadata.name

    def fail(self, name: str = "a", *plugins: str, pending_plugins: Sequence[str] = ()) -> Moves:
        return self.queue.add_unschedulable(
            f"uid-{name}", self.now, unschedulable_plugins=plugins, pending_plugins=pending_plugins
        )

    def place(self, name: str = "a") -> Place:
        pod = self.queue.find(f"default/{name}")
        return Place.NOWHERE if pod is None else pod.place

    def pod(self, name: str = "a") -> QueuedPodInfo:
        pod = self.queue.find(f"default/{name}")
        assert pod is not None
        return pod

    def unschedulable(self, name: str = "a", *plugins: str, **fields: Any) -> None:
        """Adds a pod and lets its attempt be rejected by these plugins. Pods before it must have left activeQ."""
        self.add(name, **fields)
        assert self.pop() == name
        self.fail(name, *(plugins or ("Fit",)))
        assert self.place(name) is Place.UNSCHEDULABLE


def a_queue(registrations: Mapping[str, Sequence[Registration]] | None = None, **options: Any) -> Clocked:
    """A queue of one profile; `registrations` by plugin."""
    options.setdefault("sort_key", by_priority)
    return Clocked(SchedulingQueue(hints=HintTable({"default-scheduler": registrations or {}}), **options))


def gated_queue(**options: Any) -> Clocked:
    """A queue whose PreEnqueue plugin refuses pods with scheduling gates."""
    return a_queue({"Gates": GATES_GONE, **ON_NODES}, pre_enqueue={"default-scheduler": [Gates()]}, **options)


def to(place: Place, moves: Moves) -> list[str]:
    """Names of the pods that came into the place."""
    return [move.key.removeprefix("default/") for move in moves if move.place is place]
