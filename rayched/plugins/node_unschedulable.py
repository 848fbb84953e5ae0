"""NodeUnschedulable: keep pods off cordoned nodes.

Filter: a node with spec.unschedulable rejects pods that do not tolerate the taint node.kubernetes.io/unschedulable:NoSchedule.
No preemption can help, so the code is UNSCHEDULABLE_AND_UNRESOLVABLE.

Source: node.spec.unschedulable (core/v1), kube-scheduler 1.34.
Cost: one comparison over the rows; one column for all pods, as all that counts of a pod is whether it is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rayched.api.tolerations import NO_SCHEDULE, tolerated
from rayched.api.well_known_taints import UNSCHEDULABLE
from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.plugin import FilterPlugin, PodPart, PodReadingPlugin, RegisteringPlugin
from rayched.framework.queueing_hints import Hint, Look, PreparedHint, ReadsNoLabels, Registration, queue_if
from rayched.framework.status import Code
from rayched.plugins.coding import coded
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Node, Pod, Taint

REASON: Final = "node(s) were unschedulable"
_CORDON: Final = Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)


class NodeUnschedulable(FilterPlugin, PodReadingPlugin, RegisteringPlugin):
    name: Final = names.NODE_UNSCHEDULABLE
    reads: Final = Log.UNSCHEDULABLE
    reads_pod: Final = PodPart.LEAST

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
            Registration(
                ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT),
                PreparedHint(lambda _: _CordonNodeHint(), _nodes),
            ),
            Registration(
                ClusterEvent(Resource.POD, Action.UPDATE_POD_TOLERATION), PreparedHint(_CordonTolerationsHint.of, _tolerations)
            ),
        )


@dataclass(frozen=True, slots=True)
class _CordonNodeHint(ReadsNoLabels):
    """A node helps when it is open and was not there or cordoned before. All pods that were rejected are alike."""

    def __call__(self, look: Look) -> Hint:
        return queue_if(look.rest is True)


def _nodes(old: Node | None, new: Node) -> Look:
    return Look(not new.spec.unschedulable and (old is None or old.spec.unschedulable))


@dataclass(frozen=True, slots=True)
class _CordonTolerationsHint(ReadsNoLabels):
    """The pod's own tolerations help where they cover a cordon: it was rejected, so they did not before."""

    uid: str

    @classmethod
    def of(cls, pod: Pod) -> _CordonTolerationsHint:
        return cls(pod.metadata.uid)

    def __call__(self, look: Look) -> Hint:
        return queue_if(look.rest == (False, self.uid, True))


def _tolerations(old: Pod, new: Pod) -> Look:  # noqa: ARG001 - see above
    """Whether the pod has a node, the uid of one that has none, and whether it tolerates cordons."""
    is_placed = bool(new.spec.node_name)
    return Look((is_placed, "" if is_placed else new.metadata.uid, tolerated(new.spec.tolerations, _CORDON)))
