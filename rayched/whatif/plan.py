"""Plans: where pods would go in a copy of a cluster, what would have to leave, and what would stay pending.

Pods are tried as the queue would have them: the higher priority first, then in the order given. Whoever finds no node is tried
again after others were placed or had to leave, until a round brings nothing more; there is no backoff here, as no time passes. A
preemptor's victims are gone at once, and it is tried again in its turn, with its nomination; what they were is not placed anew.

A pod group is tried as one, in the place of its first member: it is placed whole or not at all, and who has to leave for it
leaves at once. Those of its members that are left over are tried again like a pod.

Pods that a gate or a Permit plugin holds back stay pending with that for a reason.

Source: the scheduling cycle itself, and for groups theirs (`GroupPlacer`); nothing of them is repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from rayched.api.disruption import controller_of
from rayched.api.served_schedulers import not_served
from rayched.framework.plugin import PreEnqueuePlugin
from rayched.framework.status import Status
from rayched.scheduler import attempt
from rayched.scheduler.attempt import Attempt, AttemptFailure, AttemptPhase
from rayched.v1.core_pb2 import Pod
from rayched.whatif.cluster import Cluster, group_of, name_of, uid_of
from rayched.whatif.node_outlook import NodeOutlook, NodesBefore


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
    waits_already: bool = False
    """It is pending without what was asked about, too."""


@dataclass(frozen=True, slots=True)
class PlannedPreemption:
    """Pods would have to leave a node so that another fits there."""

    pod: str
    """For a group namespace/podgroup:name, as the queue calls it."""
    node_name: str
    """Empty for a group: its victims leave all nodes that it needs."""
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupOutlook:
    """What would become of a pod group of which members wait."""

    group: str
    """namespace/name."""
    min_count: int
    members: int
    """That wait."""
    placed: int
    """Of these; 0, or so many that the minimum is reached."""
    is_whole: bool
    """As many are on nodes, or have succeeded, as are needed."""
    reason: str
    """Why members would stay pending; empty where none does."""


@dataclass(frozen=True, slots=True)
class WhatIfPlan:
    """What would happen, each in the order in which it would."""

    placements: tuple[Placement, ...]
    preemptions: tuple[PlannedPreemption, ...]
    unplaced: tuple[Unplaced, ...]
    groups: tuple[GroupOutlook, ...] = ()
    uncontrolled: tuple[str, ...] = ()
    """Pods of drained nodes, as namespace/name, that have no controller: a drain deletes them, and nobody makes them anew.

    They are placed as if somebody did.
    """
    deleted: tuple[str, ...] = ()
    """Pods, as namespace/name, that their controllers would delete."""
    evicted: tuple[str, ...] = ()
    """Pods of drained nodes, as namespace/name, wherever they would go."""
    nodes: tuple[NodeOutlook, ...] = ()
    """Nodes that would change, by name: more or fewer pods, cordoned, or new."""

    @property
    def is_empty(self) -> bool:
        """Nothing would change."""
        return not (self.placements or self.preemptions or self.deleted or self.evicted)


@dataclass(frozen=True, slots=True)
class GroupTry:
    """What one attempt for a group came to."""

    placed: tuple[Attempt, ...] = ()
    """Members that hold room, as many as are needed or more; else none does."""
    reason: str = ""
    """Why members are left."""
    victims: tuple[str, ...] = ()
    """Pods that have to leave so that it fits, by uid; then the members are nominated."""
    entry_name: str = ""
    """As the queue calls the group, where pods have to leave for it."""


class GroupPlacer(Protocol):
    """Decides about the groups of a cluster as the scheduler does. Groups are named namespace/name."""

    def hold(self, group: str) -> str:
        """Why it is not to be tried; empty: nothing is in the way."""

    def attempt(self, group: str) -> GroupTry:
        """One attempt for a group that nothing holds and of which a member waits, under a profile of the cluster."""

    def counts(self, group: str) -> tuple[int, int]:
        """How many members count toward the minimum, and the minimum."""


class WhatIfPlanner:
    """Places pods in a copy of a cluster, which it changes. Make it before anything else changes the copy: it tells nodes apart
    from what they were then."""

    def __init__(self, cluster: Cluster, groups: GroupPlacer) -> None:
        self.cluster = cluster
        self._groups = groups
        self._placements: list[Placement] = []
        self._preemptions: list[PlannedPreemption] = []
        self._uncontrolled: list[str] = []
        self._deleted: list[str] = []
        self._evicted: list[str] = []
        self._nodes_before = NodesBefore(cluster.snapshot)
        self._pending_before = frozenset(cluster.pending)
        """By uid."""
        self._waited: dict[str, set[str]] = {}
        """Members of groups that waited when these were first tried."""

    def drain(self, node_name: str) -> None:
        """The node's pods lose it and wait for another, as if their controllers had replaced them at once; daemons stay."""
        for pod in [pod for pod in self.cluster.bound.values() if pod.spec.node_name == node_name]:
            if any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
                continue
            self.cluster.remove_pod(uid_of(pod))
            if pod.metadata.HasField("deletion_timestamp"):
                continue
            self._evicted.append(name_of(pod))
            if controller_of(pod) is None:
                self._uncontrolled.append(name_of(pod))
            waiting = Pod()
            waiting.CopyFrom(pod)
            waiting.spec.node_name = ""
            waiting.ClearField("status")
            self.cluster.add_pod(waiting)

    def delete(self, pods: Iterable[Pod]) -> None:
        """As their controllers would; gone at once."""
        for pod in pods:
            self.cluster.remove_pod(uid_of(pod))
            self._deleted.append(name_of(pod))

    def plan(self, pods: Iterable[Pod]) -> WhatIfPlan:
        """Place these pods and those that are pending already."""
        for pod in pods:
            self.cluster.add_pod(pod)
        waiting = self._entries()
        reasons: dict[str, str] = {}
        while waiting:
            done = len(self._placements) + len(self._preemptions)
            waiting = [one for one in waiting if not self._try_entry(one, reasons)]
            if len(self._placements) + len(self._preemptions) == done:
                break
        pending = sorted(self.cluster.pending.values(), key=lambda pod: -pod.spec.priority)
        before = self._pending_before
        unplaced = tuple(Unplaced(name_of(pod), reasons[uid_of(pod)], uid_of(pod) in before) for pod in pending)
        groups = tuple(self._outlook(group, reasons) for group in self._waited)
        return WhatIfPlan(
            tuple(self._placements),
            tuple(self._preemptions),
            unplaced,
            groups,
            tuple(self._uncontrolled),
            tuple(self._deleted),
            tuple(self._evicted),
            self._nodes_before.outlooks(),
        )

    def _entries(self) -> list[Pod | str]:
        """Pods without a group, and groups by name, in the order in which they are tried."""
        found: dict[str, tuple[int, Pod | str]] = {}
        for uid, pod in self.cluster.pending.items():
            if not (name := group_of(pod)):
                found[uid] = pod.spec.priority, pod
            elif f"/{name}" not in found:
                group = self.cluster.groups.get(name)
                # No uid begins with a slash.
                found[f"/{name}"] = pod.spec.priority if group is None else group.spec.priority, name
        return [entry for _, entry in sorted(found.values(), key=lambda one: -one[0])]

    def _try_entry(self, entry: Pod | str, reasons: dict[str, str]) -> bool:
        """One attempt; whether nothing of it waits any more."""
        return self._try_group(entry, reasons) if isinstance(entry, str) else self._try(entry, reasons)

    def _try(self, pod: Pod, reasons: dict[str, str]) -> bool:
        """One attempt; whether the pod has a node now."""
        cluster, uid = self.cluster, uid_of(pod)
        held = self._held(pod)
        if held:
            reasons[uid] = held
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

    def _held(self, pod: Pod) -> str:
        """Why nobody tries it; empty: nothing is in the way."""
        profile = self.cluster.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            return not_served(pod.spec.scheduler_name, self.cluster.profiles)
        gate = _gated(pod, profile.pre_enqueue)
        return "" if gate is None else gate.message()

    def _try_group(self, group: str, reasons: dict[str, str]) -> bool:
        """One attempt for all members that wait; whether each of them has a node now."""
        cluster = self.cluster
        waiting = {uid: pod for uid, pod in cluster.members[group].items() if uid in cluster.pending}
        self._waited.setdefault(group, set(waiting))
        # Plugins at PreEnqueue are asked about one member, as by the queue.
        reason = self._groups.hold(group) or self._held(next(iter(waiting.values())))
        if not reason:
            found = self._groups.attempt(group)
            reason = self._bind_all(found.placed) or found.reason
            if found.victims:
                self._end(found.victims, found.entry_name, "")
        left = [uid for uid in waiting if uid in cluster.pending]
        reasons.update(dict.fromkeys(left, reason))
        return not left

    def _bind_all(self, attempts: tuple[Attempt, ...]) -> str:
        """All of them get their nodes; or none does, for the reason that comes back."""
        scheduler = self.cluster.scheduler
        for one in attempts:
            failure = scheduler.begin_binding(one, one.uid)
            if failure is not None:
                for other in reversed(attempts):
                    scheduler.roll_back(other)
                return failure.message
        for one in attempts:
            self._bind(self.cluster.pending[one.uid], one)
        return ""

    def _outlook(self, group: str, reasons: dict[str, str]) -> GroupOutlook:
        waited = self._waited[group]
        left = [uid for uid in self.cluster.members[group] if uid in waited and uid in self.cluster.pending]
        satisfied, min_count = self._groups.counts(group)
        reason = reasons[left[0]] if left else ""
        return GroupOutlook(group, min_count, len(waited), len(waited) - len(left), satisfied >= min_count, reason)

    def _preempt(self, pod: Pod, preemption: attempt.Preemption) -> None:
        """The victims are gone; the preemptor is tried again in its turn, with its nomination."""
        self._end(preemption.victims, name_of(pod), preemption.node_name)

    def _end(self, victims: Iterable[str], by: str, node_name: str) -> None:
        names = tuple(name_of(self.cluster.bound[uid]) for uid in victims)
        for uid in victims:
            self.cluster.remove_pod(uid)
        self._preemptions.append(PlannedPreemption(by, node_name, names))

    def _bind(self, pod: Pod, done: Attempt) -> None:
        self.cluster.scheduler.bound(done)
        self.cluster.remove_pod(done.uid)
        bound = Pod()
        bound.CopyFrom(pod)
        bound.spec.node_name = done.node_name
        bound.status.nominated_node_name = ""
        self.cluster.add_pod(bound)
        self._placements.append(Placement(done.name, done.node_name))


def _gated(pod: Pod, plugins: Iterable[PreEnqueuePlugin]) -> Status | None:
    for plugin in plugins:
        status = plugin.pre_enqueue(pod)
        if not status.ok:
            return status
    return None
