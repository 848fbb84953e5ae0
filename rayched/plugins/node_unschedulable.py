"""NodeUnschedulable: keep pods off cordoned nodes.

Filter: a node with spec.unschedulable rejects pods that do not tolerate the taint node.kubernetes.io/unschedulable:NoSchedule.
No preemption can help, so the code is UNSCHEDULABLE_AND_UNRESOLVABLE.

Source: node.spec.unschedulable (core/v1), kube-scheduler 1.34.
Cost: one comparison over the rows; one column for all pods, as all that counts of a pod is whether it is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rayched.api.tolerations import NO_SCHEDULE, tolerated
from rayched.api.well_known_taints import UNSCHEDULABLE
from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import Hint, Registration, is_itself, queue_if
from rayched.framework.status import Code
from rayched.plugins.coding import coded
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Node, Pod, Taint

REASON: Final = "node(s) were unschedulable"
_CORDON: Final = Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)


class NodeUnschedulable:
    name: Final = names.NODE_UNSCHEDULABLE
    reads: Final = Log.UNSCHEDULABLE
    reads_mentioned_labels_alone: Final = True
    reads_tolerations_of_known_taints_alone: Final = True
    reads_no_containers: Final = True

    def key(self, pod: Pod) -> tuple[()] | None:
        """None for pods that tolerate the cordon; all others are alike."""
        return None if tolerated(pod.spec.tolerations, _CORDON) else ()

    def prepare(self, pod: Pod) -> None:  # noqa: ARG002 - nothing of the pod is needed beyond its key
        return None

    def filter(self, state: None, rows: Rows) -> CodeColumn:  # noqa: ARG002
        """Shape (rows,), uint8."""
        return coded(rows.unschedulable, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)

    def reasons(self, state: None, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:  # noqa: ARG002
        return ((REASON, codes != Code.SUCCESS),)

    def registrations(self) -> Sequence[Registration]:
        return (
            Registration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), _after_node),
            Registration(ClusterEvent(Resource.POD, Action.UPDATE_POD_TOLERATION), _after_tolerations),
        )


def _after_node(pod: Pod, old: Node | None, new: Node) -> Hint:  # noqa: ARG001 - all pods that were rejected are alike
    """A node helps when it is open and was not there or cordoned before."""
    return queue_if(not new.spec.unschedulable and (old is None or old.spec.unschedulable))


def _after_tolerations(pod: Pod, old: Pod, new: Pod) -> Hint:  # noqa: ARG001 - it was rejected, so it did not tolerate
    return queue_if(is_itself(pod, new) and tolerated(new.spec.tolerations, _CORDON))
