"""Pod groups in a plan: decided about on a copy of a cluster by what decides about them in the real one.

The cycle, the search for victims and the rules that hold a group back are those of `PodGroups`, over the copy's snapshot and with
the copy's scheduler. What differs is what follows: nothing is written, so no transaction is too large but by what a plan of a
group takes, and nobody waits, so victims are gone at once.

A state is made of the members anew for each attempt, since the copy changes in between.

Pure; one thread, that of the plan, which is never the one that decides for a cluster.
Cost: that of the group's cycle, 20 µs a member, and 20 µs for each member of another group where somebody has to go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rayched.api import kinds
from rayched.api.stages import Stage, stage_of
from rayched.core.cache.records import KeptPod, PodRecord
from rayched.core.groups.clearings import Clearing, GroupWait
from rayched.core.groups.deciding import GroupAttempts
from rayched.core.groups.group_cycle import GroupCycle, GroupPlacement
from rayched.core.groups.group_measures import GroupMeasures
from rayched.core.groups.group_preemption import GroupPreemption
from rayched.core.groups.group_writes import conditions_words
from rayched.core.groups.membership import GroupState
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Pod
from rayched.whatif.cluster import Cluster, name_of, uid_of
from rayched.whatif.plan import GroupTry, WhatIfPlanner

_UNSTORED: Final = 0
"""The revision of what lies in no store."""


def planner_of(cluster: Cluster) -> WhatIfPlanner:
    """Plans for pods and groups on this copy, which it changes."""
    return WhatIfPlanner(cluster, PlannedGroups(cluster))


class PlannedGroups:
    """The GroupPlacer of plans."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._states: dict[str, GroupState] = {}
        measures = GroupMeasures(_no_time)
        cycle = GroupCycle(cluster.snapshot, cluster.scheduler, _nobody_waits, measures)
        preemption = GroupPreemption(cluster.snapshot, cluster.scheduler, cycle, self._state_of)
        self._attempts = GroupAttempts(cycle, preemption, _NominationsOnTheCopy(cluster), measures, _no_time)

    def hold(self, group: str) -> str:
        held = self._state_now(group).hold()
        return "" if held is None else held.message

    def counts(self, group: str) -> tuple[int, int]:
        state = self._state_now(group)
        return state.satisfied, state.min_count

    def attempt(self, group: str) -> GroupTry:
        state = self._state_now(group)
        found = self._attempts.decide(state, 0, 0.0, 0.0)
        if isinstance(found, GroupPlacement):
            return GroupTry(found.attempts, "" if found.left is None else conditions_words(state, found.left)[1])
        if isinstance(found, Clearing):
            nominations = self._cluster.scheduler.nominations
            for uid, node_name in found.room.nodes.items():
                nominations.nominate(uid, state.waiting[uid].template, node_name)
            victims = tuple(victim.uid for victim in found.room.victims)
            if not victims:
                return GroupTry(reason="it fits once pods have gone that are ending already")
            return GroupTry(reason=found.message, victims=victims, entry_name=state.entry_name)
        return GroupTry(reason=conditions_words(state, found)[1])

    def _state_now(self, group: str) -> GroupState:
        """The group as it is now. The others are looked at anew as well, if anybody asks about them."""
        self._states.clear()
        return self._state_of(group)

    def _state_of(self, group: str) -> GroupState:
        found = self._states.get(group)
        if found is None:
            cluster = self._cluster
            found = self._states[group] = GroupState(group)
            found.group = cluster.groups.get(group)
            if found.group is not None:
                found.uid = found.group.metadata.uid
            for order, pod in enumerate(cluster.members.get(group, {}).values()):
                found.take(self._record(pod, order))
        return found

    def _record(self, pod: Pod, order: int) -> PodRecord:
        """`order` stands for the revision at which it was created."""
        template, stage, value = self._cluster.to_schedule(pod).template, stage_of(pod), encode(kinds.wrap(pod))
        kept = KeptPod(value, _UNSTORED, pod.status.nominated_node_name) if stage is Stage.PENDING else None
        name, node_name = name_of(pod), pod.spec.node_name
        is_ending = stage is Stage.BOUND and pod.metadata.HasField("deletion_timestamp")
        key = name.encode()
        return PodRecord(uid_of(pod), name, key, _UNSTORED, order, stage, node_name, template, "", kept, value, is_ending)


class _NominationsOnTheCopy:
    """Of members, which wait for nobody: whoever leaves is gone at once."""

    overdue: frozenset[str] = frozenset()

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def lift(self, members: Iterable[PodRecord]) -> dict[str, str]:
        nominations = self._cluster.scheduler.nominations
        nodes = {member.uid: node for member in members if (node := nominations.node_of(member.uid))}
        for uid in nodes:
            nominations.forget(uid)
        return nodes

    def nominate(self, nodes: dict[str, str]) -> None:
        for uid, node_name in nodes.items():
            template = self._cluster.to_schedule(self._cluster.pending[uid]).template
            self._cluster.scheduler.nominations.nominate(uid, template, node_name)

    def waits_on(self, _uid: str, _nodes: dict[str, str], _priority: int, _now: float, /) -> GroupWait | None:
        return None

    def end_wait(self, _uid: str, /) -> None:
        pass


def _no_time() -> float:
    return 0.0


def _nobody_waits() -> None:
    """There is nobody to whom a sign of life is to be given."""
