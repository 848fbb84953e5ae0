"""Whether pod groups were bound whole, by themselves or by a recorded plan (plans_judged.py).

* **P1** whenever a leader binds a member of a gang, its minimum is bound, has succeeded, or waits with a place in a plan.
* **P2** the first members are bound together, as many as the minimum needs, or after a plan that lists them.
* **P9** that a group was scheduled is said once, and when its minimum is bound or has succeeded.
* **P10** (of releases; of victims and P11: group_victims.py) where members are ended for want of members, all that run then are.
* **P13** no member is bound while members differ in what they must have in common, or from their group in it.
* **P14** no member is bound while one of them has scheduling gates.

A gang may be below its minimum where history shows that a member ended between the decision and its commit: no condition of a
binding guards those that run already. What comes or changes after the decision, or after that of the plan, breaks nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rayched.audit.capacity import Capacity
from rayched.audit.findings import Findings
from rayched.audit.group_victims import GroupVictimJudge
from rayched.audit.plans_judged import AuditedPlan, PlanJudge
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import GroupPlan, LeaderWrite
from rayched.v1.workloads_pb2 import PodGroup

_DEFAULT_POLICY = "PreemptLowerPriority"
_CONDITION = "PodGroupInitiallyScheduled"


@dataclass(slots=True)
class _Member:
    """One that has not ended and is not being deleted."""

    terms: tuple[str, int, str]
    since: int
    """Revision from which on it is as it is."""
    gated: bool


@dataclass(slots=True)
class _Gang:
    """A group of one name, its object and its members."""

    uid: str = ""
    revision: int = 0
    """Of its object."""
    group: PodGroup | None = None
    counted: set[str] = field(default_factory=set)
    """Members that count toward the minimum."""
    living: dict[str, _Member] = field(default_factory=dict)
    cut: int = 0
    """When it last lost a member that ran, or that had a place in its plan."""
    went: dict[str, int] = field(default_factory=dict)
    """When members went that waited, by uid: a plan that was decided before may list them."""
    ending: set[str] = field(default_factory=set)
    """Members that are still to be told to end, since a leader ended others for want of members."""
    released: set[str] = field(default_factory=set)
    """Members that a leader ended so."""
    has_started: bool = False
    """A leader has bound a member."""

    @property
    def needed(self) -> int:
        policy = None if self.group is None else self.group.spec.scheduling_policy
        return policy.gang.min_count if policy is not None and policy.HasField("gang") else 0


@dataclass(slots=True)
class _Bound:
    """What a leader bound of a group in this revision."""

    write: LeaderWrite
    counted_before: int
    plan: AuditedPlan | None
    members: list[str] = field(default_factory=list)


class GroupJudge:
    """Told of every PodGroup, every plan and every pod that names a group, and of the end of each revision."""

    def __init__(self, findings: Findings, capacity: Capacity, pods: Mapping[str, Pod]) -> None:
        self._findings, self._pods = findings, pods
        self.plans = PlanJudge(findings, capacity, pods)
        self.victims = GroupVictimJudge(findings, pods, self.plans)
        self._gangs: defaultdict[str, _Gang] = defaultdict(_Gang)
        self._groups_of: dict[str, str] = {}
        self._bound: dict[str, _Bound] = {}
        self._said: dict[str, LeaderWrite] = {}
        """Groups that say since this revision that they were scheduled."""

    def group_changed(self, name: str, group: PodGroup | None, write: LeaderWrite, revision: int) -> None:
        self.victims.group_changed(name, group, write, revision)
        gang = self._gangs[name]
        uid = "" if group is None else group.metadata.uid
        said = _says(gang.group) if uid == gang.uid else ""
        if uid != gang.uid:
            gang.has_started = False
            self.plans.void(name)
        needed = gang.needed
        gang.uid, gang.revision, gang.group = uid, revision, group
        if gang.needed < needed:
            # What is left may be enough.
            gang.ending.clear()
        says = _says(group)
        if said == "True" and says != "True" and group is not None:
            self._findings.add("condition_wrong", f"revision {revision}: pod group {name} says no more that it was scheduled")
        if says == "True" and said != "True" and write.epoch:
            self._said[name] = write

    def plan_changed(self, name: str, plan: GroupPlan | None, write: LeaderWrite, revision: int) -> None:
        gang, old = self._gangs[name], self.plans.of(name)
        if plan is None:
            self.plans.removed(name, revision, is_there=old is not None and gang.uid == old.uid)
            return
        self.plans.written(name, plan, write, revision, (gang.uid, gang.revision) if gang.uid else None)
        if old is not None and len(plan.members) < len(old.nodes):
            gang.cut = revision
        for member in plan.members if old is None else ():
            went = gang.went.get(member.uid, 0)
            if went > write.decided_at_revision:
                gang.cut = max(gang.cut, went)

    def pod_changed(self, uid: str, pod: Pod | None, revision: int, binding: LeaderWrite | None = None) -> None:
        """`binding`: the leader's write that has just bound it."""
        if pod is None:
            name = self._groups_of.pop(uid, "")
        elif pod.spec.scheduling_group.pod_group_name:
            name = self._groups_of[uid] = f"{pod.metadata.namespace}/{pod.spec.scheduling_group.pod_group_name}"
        else:
            return
        if not name:
            return
        self.plans.moved(uid, revision)
        self.victims.pod_changed(name, uid, pod, revision)
        gang, plan = self._gangs[name], self.plans.of(name)
        if binding is not None and pod is not None:
            bound = self._bound.setdefault(name, _Bound(binding, len(gang.counted), plan))
            bound.members.append(uid)
            self.plans.binds(name, uid, pod.spec.node_name, f"revision {revision}: pod {name}, {pod.metadata.name},")
        counted, counts = uid in gang.counted, pod is not None and _counts(pod)
        if counts:
            gang.counted.add(uid)
        elif counted or (plan is not None and uid in plan.nodes and not _lives(pod)):
            gang.counted.discard(uid)
            gang.cut = revision
        elif not _lives(pod):
            gang.went.setdefault(uid, revision)
        _keep(gang, uid, pod, revision)
        if pod is not None and uid not in gang.released and _is_released(pod):
            gang.released.add(uid)
            gang.ending |= {one for one in gang.counted if one in self._groups_of and self._runs(one)}
        if pod is None or not _counts(pod):
            gang.ending.discard(uid)

    def lacking(self, name: str) -> int:
        """How many members a gang lacks of its minimum; -1: it is not there, has gates, or members that differ."""
        gang = self._gangs.get(name)
        if gang is None or gang.group is None or any(one.gated for one in gang.living.values()):
            return -1
        terms = {one.terms for one in gang.living.values()}
        if len(terms) > 1 or any(_differs(gang.group, one) for one in terms):
            return -1
        return max(0, gang.needed - len(gang.counted))

    def settle(self) -> None:
        """Nothing more will come."""
        for name, gang in self._gangs.items():
            if gang.ending:
                words = f"of pod group {name} {len(gang.ending)} members go on, and others were ended for want of members"
                self._findings.add("unit_split", words)

    def _runs(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and pod.status.phase not in ("Succeeded", "Failed")

    def revision_over(self, revision: int) -> None:
        """All changes of the revision were told."""
        self.victims.revision_over(revision)
        for name, bound in self._bound.items():
            for kind, problem in self._problems(self._gangs[name], bound, self.plans.of(name)):
                self._findings.add(kind, f"revision {revision}: of pod group {name} {problem}, by attempt {bound.write.attempt}")
            self._gangs[name].has_started = True
        for name, write in self._said.items():
            gang = self._gangs[name]
            if len(gang.counted) < gang.needed and gang.cut <= write.decided_at_revision:
                words = (
                    f"revision {revision}: pod group {name} says that it was scheduled, with {len(gang.counted)} members bound"
                )
                self._findings.add("condition_wrong", words)
        self._bound.clear()
        self._said.clear()

    def _problems(self, gang: _Gang, bound: _Bound, plan: AuditedPlan | None) -> Iterator[tuple[str, str]]:
        """Kinds and words of what is wrong with bindings of one revision."""
        decided_at = bound.write.decided_at_revision if bound.plan is None else bound.plan.decided_at
        counted, needed = len(gang.counted), gang.needed
        planned = 0 if plan is None else len(self.plans.waiting(plan))
        if plan is not None:
            needed = min(needed, plan.min_count)
        if counted + planned < needed and gang.cut <= decided_at:
            also = f" and {planned} planned" if planned else ""
            yield "gang_partial", f"{counted} members are bound{also}, {needed} are needed"
        first = bound.plan
        is_listed = first is not None and all(uid in first.nodes for uid in bound.members)
        if not gang.has_started and not is_listed and counted < needed and gang.cut <= decided_at:
            yield "gang_unplanned", f"the first {len(bound.members)} members were bound without a plan, {needed} are needed"
        old = [one for one in gang.living.values() if one.since <= decided_at]
        own = {one.terms for uid, one in gang.living.items() if uid in bound.members}
        if len({one.terms for one in old} | own) > 1 or any(_differs(gang.group, terms) for terms in own):
            yield "group_mixed", "members were bound that differ in what they must have in common"
        if any(one.gated and one.since <= decided_at for one in gang.living.values()):
            yield "gate_passed", "members were bound while one of them has scheduling gates"


def _keep(gang: _Gang, uid: str, pod: Pod | None, revision: int) -> None:
    """The member as it stands now, among those that live."""
    if pod is None or not _lives(pod):
        gang.living.pop(uid, None)
        return
    spec = pod.spec
    terms = spec.scheduler_name, spec.priority, spec.preemption_policy or _DEFAULT_POLICY
    gated = len(spec.scheduling_gates) > 0
    before = gang.living.get(uid)
    if before is None or (before.terms, before.gated) != (terms, gated):
        gang.living[uid] = _Member(terms, revision, gated)


def _lives(pod: Pod | None) -> bool:
    """It has not ended and is not being deleted."""
    if pod is None or pod.status.phase in ("Succeeded", "Failed"):
        return False
    return not pod.metadata.HasField("deletion_timestamp")


def _differs(group: PodGroup | None, terms: tuple[str, int, str]) -> bool:
    """Whether a member with these terms is not like its group."""
    if group is None:
        return False
    return (group.spec.priority, group.spec.preemption_policy or _DEFAULT_POLICY) != terms[1:]


def _says(group: PodGroup | None) -> str:
    """Status of the group's condition, "" where there is none."""
    conditions = () if group is None else group.status.conditions
    return next((one.status for one in conditions if one.type == _CONDITION), "")


def _is_released(pod: Pod) -> bool:
    """A leader ended it because its group had too few members."""
    return any(one.type == "DisruptionTarget" and one.reason == "GroupIncomplete" for one in pod.status.conditions)


def _counts(pod: Pod) -> bool:
    """Whether it counts toward the minimum: it has succeeded, or has a node and goes on."""
    if pod.status.phase == "Succeeded":
        return True
    return pod.spec.node_name != "" and pod.status.phase != "Failed" and not pod.metadata.HasField("deletion_timestamp")
