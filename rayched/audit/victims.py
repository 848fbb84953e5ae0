"""Evictions by the scheduler, and whether each had a preemptor that may do so: S9, whose other half is in room_judged.py.

A victim says by its condition DisruptionTarget, reason PreemptionByScheduler, why it goes. Its preemptor is a pending pod of
higher priority that may preempt, nominated to the victim's node; or, of a pod group, to any node, as pods may have to go that are
in its way from elsewhere, and with them all of their own group.

Source: kube-scheduler's preemption, KEP 3329 (pod disruption conditions).
"""

from __future__ import annotations

from collections.abc import Mapping

from rayched.audit.findings import Findings
from rayched.v1.core_pb2 import Pod

_CONDITION, _REASON = "DisruptionTarget", "PreemptionByScheduler"


class VictimJudge:
    """Told of each of a leader's writes to a pod."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._evicted: set[str] = set()

    def knows(self, uid: str) -> bool:
        """A leader evicted the pod."""
        return uid in self._evicted

    def written(self, pod: Pod, before: Pod | None, revision: int, pods: Mapping[str, Pod]) -> bool:
        """Whether the write makes the pod go."""
        if before is None or before.metadata.HasField("deletion_timestamp"):
            return False
        if not pod.metadata.HasField("deletion_timestamp"):
            return False
        self._evicted.add(pod.metadata.uid)
        node, priority = pod.spec.node_name, pod.spec.priority
        if _is_preempted(pod) and not any(_may_preempt(other, node, priority) for other in pods.values()):
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            words = f"revision {revision}: pod {name}, priority {priority}, was evicted from {node} for no pod of higher priority"
            self._findings.add("wrong_victim", words)
        return True


def _is_preempted(pod: Pod) -> bool:
    return any(one.type == _CONDITION and one.status == "True" and one.reason == _REASON for one in pod.status.conditions)


def _may_preempt(pod: Pod, node: str, priority: int) -> bool:
    if pod.spec.node_name or pod.spec.priority <= priority or pod.spec.preemption_policy == "Never":
        return False
    nominated = pod.status.nominated_node_name
    return nominated == node or (nominated != "" and pod.spec.scheduling_group.pod_group_name != "")
