"""Whether gangs were bound whole: at each revision in which a leader binds a member, the minimum is bound or has succeeded (P1).

A gang may be below its minimum where history shows that a member ended between the decision and its commit: no condition of a
binding guards those that run already.
"""

from __future__ import annotations

from collections import defaultdict

from rayched.audit.findings import Findings
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import PodGroup


class GroupJudge:
    """Told of every PodGroup and of every pod that names one, and of the end of each revision."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._min_counts: dict[str, int] = {}
        """Of gangs, by namespace/name."""
        self._members: defaultdict[str, set[str]] = defaultdict(set)
        """Those that count toward the minimum, by group."""
        self._groups_of: dict[str, str] = {}
        self._cut: dict[str, int] = {}
        """When a group last lost a member that ran."""
        self._bound: dict[str, LeaderWrite] = {}
        """Groups of which a leader has bound members in this revision, with one of the writes."""

    def group_changed(self, name: str, group: PodGroup | None) -> None:
        if group is None or not group.spec.scheduling_policy.HasField("gang"):
            self._min_counts.pop(name, None)
        else:
            self._min_counts[name] = group.spec.scheduling_policy.gang.min_count

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
        counted, counts = uid in self._members[name], pod is not None and _counts(pod)
        if counts:
            self._members[name].add(uid)
        elif counted:
            self._members[name].discard(uid)
            self._cut[name] = revision
        if binding is not None:
            self._bound[name] = binding

    def revision_over(self, revision: int) -> None:
        """All changes of the revision were told."""
        for name, write in self._bound.items():
            counted, needed = len(self._members[name]), self._min_counts.get(name, 0)
            if counted < needed and self._cut.get(name, 0) <= write.decided_at_revision:
                words = f"revision {revision}: of pod group {name} {counted} members are bound, {needed} are needed"
                self._findings.add("gang_partial", f"{words}, by attempt {write.attempt}")
        self._bound.clear()


def _counts(pod: Pod) -> bool:
    """Whether it counts toward the minimum: it has succeeded, or has a node and goes on."""
    if pod.status.phase == "Succeeded":
        return True
    return pod.spec.node_name != "" and pod.status.phase != "Failed" and not pod.metadata.HasField("deletion_timestamp")
