"""Recorded plans of pod groups, as history shows them: P3, P4, P12, and the room that they hold (P6, P7).

* **P3** a member with a place in the plan in force is bound there, and while there is a plan nobody else of the group is bound.
* **P4** a plan is made for the group as it is, replaced by a plan of the same group, and goes when each of its members has a node
  or has gone, or when its group has.
* **P12** a plan of an earlier epoch keeps its places, but for members that changed or whose node did.

A plan's members without nodes take room on theirs: `Capacity` has it. Cost: O(members) for each plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rayched.audit.capacity import Capacity
from rayched.audit.findings import Findings
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import GroupPlan, LeaderWrite


@dataclass(slots=True)
class AuditedPlan:
    """A plan in force."""

    uid: str
    """Of its PodGroup."""
    nodes: dict[str, str]
    """By uid of the member."""
    min_count: int
    revision: int
    """At which it was written last."""
    decided_at: int
    """Revision on which its first version was decided."""
    write: LeaderWrite


class PlanJudge:
    """Told of each plan, and of what its places depend on."""

    def __init__(self, findings: Findings, capacity: Capacity, pods: Mapping[str, Pod]) -> None:
        """`pods` are all that there are, by uid, as the auditor has them."""
        self._findings, self.capacity, self._pods = findings, capacity, pods
        self._plans: dict[str, AuditedPlan] = {}
        self._changed: dict[str, int] = {}
        """When a node changed last, or got a pod that a leader did not bind; when a member of a group did. By name, by uid."""

    def progress(self) -> dict[str, tuple[int, int]]:
        """Of each plan, by namespace/name of its group: how many members it lists, and how many of these have no node."""
        return {name: (len(plan.nodes), len(self.waiting(plan))) for name, plan in self._plans.items()}

    def of(self, group: str) -> AuditedPlan | None:
        """The plan in force, by namespace/name of its group."""
        return self._plans.get(group)

    def waiting(self, plan: AuditedPlan) -> list[str]:
        """Members of the plan that are there and have no node."""
        return [uid for uid in plan.nodes if _waits(self._pods.get(uid))]

    def moved(self, what: str, revision: int) -> None:
        """A member of a group changed, or a pod came to a node unasked."""
        self._changed[what] = revision

    def node_changed(self, name: str, revision: int) -> None:
        """Whoever is to go there may go elsewhere: its room is not held against anybody until the plan says so."""
        self._changed[name] = revision
        for plan in self._plans.values():
            for uid, node in plan.nodes.items():
                if node == name:
                    self._leave(uid)

    def void(self, group: str) -> None:
        """The group of the plan is not there any more, and with it the room that the plan holds."""
        self._release(self._plans.get(group))

    def written(self, group: str, plan: GroupPlan, write: LeaderWrite, revision: int, found: tuple[str, int] | None) -> None:
        """A plan was written. `found`: uid of the PodGroup as it is, and the revision of its last change."""
        old = self._plans.get(group)
        words = f"revision {revision}: the plan of pod group {group}"
        nodes = {one.uid: one.node for one in plan.members}
        if old is None and (found is None or found != (plan.group_uid, plan.group_revision)):
            self._findings.add("plan_broken", f"{words} is for another state of it: {found} is there")
        if old is not None and old.uid != plan.group_uid:
            self._findings.add("plan_broken", f"{words} replaces that of another group of the name")
        if not write.attempt or write.op != "group-plan":
            self._findings.add("plan_broken", f"{words} was written by no leader")
        if old is not None and old.write.epoch != write.epoch:
            for uid, node in old.nodes.items():
                changed = max(self._changed.get(node, 0), self._changed.get(uid, 0))
                if nodes.get(uid, node) != node and changed <= old.write.decided_at_revision:
                    self._findings.add("plan_broken", f"{words} moves pod {uid} from {node}, where nothing had changed")
        self._release(old)
        decided_at = write.decided_at_revision if old is None else old.decided_at
        current = AuditedPlan(plan.group_uid, nodes, plan.min_count, revision, decided_at, write)
        self._plans[group] = current
        self._hold(current, words, {} if old is None else old.nodes)

    def removed(self, group: str, revision: int, *, is_there: bool) -> None:
        """The plan was deleted. `is_there`: the group that it was made for is."""
        plan = self._plans.pop(group, None)
        if plan is None:
            return
        left = self.waiting(plan)
        if left and is_there:
            words = f"revision {revision}: the plan of pod group {group} went while {len(left)} of its members have no node"
            self._findings.add("plan_broken", words)
        self._release(plan)

    def binds(self, group: str, uid: str, node: str, words: str) -> None:
        """A leader's binding of a member."""
        plan = self._plans.get(group)
        if plan is not None and plan.nodes.get(uid) != node:
            place = plan.nodes.get(uid, "no place in it")
            self._findings.add("member_strayed", f"{words} was bound to {node}; the plan of its group has {place}")

    def _hold(self, plan: AuditedPlan, words: str, before: Mapping[str, str]) -> None:
        for uid, node in plan.nodes.items():
            pod = self._pods.get(uid)
            if pod is None or not _is_unbound(pod):
                continue
            problem = self.capacity.exceeded_by(pod, node)
            # A node that shrank under a plan that keeps its places is nobody's fault.
            if problem and before.get(uid) != node:
                self._findings.add("over_capacity", f"{words} takes room that is not there: {problem}")
            self.capacity.enter(uid, pod, node)

    def _release(self, plan: AuditedPlan | None) -> None:
        for uid in () if plan is None else plan.nodes:
            self._leave(uid)

    def _leave(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None and _is_unbound(pod):
            self.capacity.leave(uid)


def _is_unbound(pod: Pod) -> bool:
    return not pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")


def _waits(pod: Pod | None) -> bool:
    return pod is not None and _is_unbound(pod) and not pod.metadata.HasField("deletion_timestamp")
