"""Whether pods had to end for a pod group, and whether groups that end as a whole did.

* **P10** a victim of a group has a lower priority than the group, which may preempt; of a group of mode `all` no member goes on
  that ran when it was decided. The pods, the group they end for and its nominations are written in one transaction.
* **P11** nobody is told to end for a group of which no member waits any more, or which a plan binds already.
* **P15** a pod that ends by itself for a group was in the way of a member: one is nominated to its node. Where it, or a member,
  says anything of pods on other nodes, it may have been in the way from there.

What comes between the decision and its commit breaks nothing. Cost: O(members) for each group of mode `all` that loses one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from rayched.audit.findings import Findings
from rayched.audit.plans_judged import PlanJudge
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import PodGroup

_REASON = "PreemptionByScheduler"


class GroupVictimJudge:
    """Told of every PodGroup, every pod that names one, every pod that a leader tells to end, and of the end of each revision."""

    def __init__(self, findings: Findings, pods: Mapping[str, Pod], plans: PlanJudge) -> None:
        """`pods` are all that there are, by uid, as the auditor has them."""
        self._findings, self._pods, self._plans = findings, pods, plans
        self._groups: dict[str, PodGroup] = {}
        self._made: dict[str, int] = {}
        """Since when the group of a name is the one that it is."""
        self._members: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """By group and uid: since when the member runs; 0: it does not."""
        self._left: dict[str, int] = {}
        """When a member of the group that waited last went, or was bound."""
        self._written: defaultdict[str, list[str]] = defaultdict(list)
        """Groups written in this revision, by attempt."""
        self._ended: defaultdict[str, list[tuple[Pod, LeaderWrite]]] = defaultdict(list)
        """Pods that this revision tells to end to make room, by attempt."""

    def group_changed(self, name: str, group: PodGroup | None, write: LeaderWrite, revision: int) -> None:
        before = self._groups.pop(name, None)
        if group is None:
            return
        if before is None or before.metadata.uid != group.metadata.uid:
            self._made[name] = revision
        self._groups[name] = group
        if write.attempt:
            self._written[write.attempt].append(name)

    def pod_changed(self, name: str, uid: str, pod: Pod | None, revision: int) -> None:
        """A member of this group."""
        members = self._members[name]
        if members.get(uid) == 0 and (pod is None or not _waits(pod)):
            self._left[name] = revision
        if pod is None:
            members.pop(uid, None)
        else:
            members[uid] = (members.get(uid) or revision) if _runs(pod) else 0

    def ended(self, pod: Pod, write: LeaderWrite) -> None:
        """A leader tells the pod to end."""
        if any(one.type == "DisruptionTarget" and one.reason == _REASON for one in pod.status.conditions):
            self._ended[write.attempt].append((pod, write))

    def revision_over(self, revision: int) -> None:
        for attempt, ended in self._ended.items():
            losers = {_group_of(pod) for pod, _ in ended} - {""}
            write = ended[0][1]
            for name in losers:
                self._judge_whole(name, write, f"revision {revision}: of pod group {name}")
            for name in self._written.get(attempt, ()):
                if name not in losers:
                    self._judge_need(name, [pod for pod, _ in ended], write, f"revision {revision}: pod group {name}")
        self._ended.clear()
        self._written.clear()

    def _judge_whole(self, name: str, write: LeaderWrite, words: str) -> None:
        group, decided_at = self._groups.get(name), write.decided_at_revision
        if group is None or not group.spec.disruption_mode.HasField("all") or self._made[name] > decided_at:
            return
        on = [uid for uid, since in self._members[name].items() if 0 < since <= decided_at and _goes_on(self._pods.get(uid))]
        if on:
            self._findings.add(
                "unit_split", f"{words} {len(on)} members go on, and it ends as a whole, by attempt {write.attempt}"
            )

    def _judge_need(self, name: str, victims: list[Pod], write: LeaderWrite, words: str) -> None:
        spec, decided_at = self._groups[name].spec, write.decided_at_revision
        if spec.preemption_policy == "Never" or any(pod.spec.priority >= spec.priority for pod in victims):
            policy = spec.preemption_policy or "PreemptLowerPriority"
            self._findings.add("wrong_victim", f"{words}, priority {spec.priority}, {policy}, ended pods that it may not end")
        self._judge_places(name, victims, words)
        plan = self._plans.of(name)
        waits = any(_waits(pod) for uid in self._members[name] if (pod := self._pods.get(uid)) is not None)
        is_bound = plan is not None and plan.revision <= decided_at
        if is_bound or (not waits and self._left.get(name, 0) <= decided_at):
            why = "is bound by a plan" if is_bound else "has no member that waits"
            self._findings.add("useless_victim", f"{words} {why}, and {len(victims)} pods are told to end for it")

    def _judge_places(self, name: str, victims: list[Pod], words: str) -> None:
        """Nobody ends on a node that no member goes to."""
        members = [pod for uid in self._members[name] if (pod := self._pods.get(uid)) is not None]
        if any(map(_has_rules, members)):
            return
        nodes = {pod.status.nominated_node_name for pod in members if _waits(pod)}
        for pod in victims:
            loser = self._groups.get(group) if (group := _group_of(pod)) else None
            ends_alone = not group or (loser is not None and not loser.spec.disruption_mode.HasField("all"))
            if ends_alone and pod.spec.node_name not in nodes and not pod.spec.HasField("affinity"):
                where = f"{pod.metadata.namespace}/{pod.metadata.name} on {pod.spec.node_name}, where none of its members goes"
                self._findings.add("needless_victim", f"{words} ended {where}")


def _group_of(pod: Pod) -> str:
    group = pod.spec.scheduling_group.pod_group_name
    return f"{pod.metadata.namespace}/{group}" if group else ""


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _runs(pod: Pod) -> bool:
    return pod.spec.node_name != "" and not _has_ended(pod)


def _waits(pod: Pod) -> bool:
    return not (pod.spec.node_name or _has_ended(pod) or pod.metadata.HasField("deletion_timestamp"))


def _goes_on(pod: Pod | None) -> bool:
    return pod is not None and _runs(pod) and not pod.metadata.HasField("deletion_timestamp")


def _has_rules(pod: Pod) -> bool:
    """Whether it matters to the pod who is on other nodes."""
    return pod.spec.HasField("affinity") or len(pod.spec.topology_spread_constraints) > 0
