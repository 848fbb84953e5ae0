"""Whether a node takes a pod that is bound to it; the first "no" decides. Pure.

| check | reason |
|---|---|
| pressure: critical pods pass; with memory pressure alone all pass but BestEffort ones that do not tolerate it | Evicted |
| the node shuts down, or another agent has it | NodeShutdown |
| pod slots and resources, node selector and affinity, host ports, NoExecute taints: NodeAdmission | OutOfcpu, NodeAffinity, ... |

A pod for which there is no room while another one ends waits for that, 30 s at most: the scheduler counts the room as free as
soon as a pod has ended or is gone, and its processes may need a moment more.

Source: kubelet's eviction manager and admission handlers, Kubernetes 1.34; there it does not wait.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from rayched.api.admission import BEST_EFFORT, qos_class
from rayched.api.tolerations import NO_SCHEDULE, tolerated
from rayched.api.well_known_taints import MEMORY_PRESSURE as MEMORY_PRESSURE_TAINT
from rayched.nodes.agent.node_object import MEMORY_PRESSURE
from rayched.nodes.agent.oom_scores import CRITICAL_PRIORITY
from rayched.nodes.node_admission import NodeAdmission, NodeRefusal
from rayched.v1.core_pb2 import Node, Pod, Taint

ROOM_SECONDS: Final = 30.0
_WITHOUT_ROOM: Final = ("OutOf", "NodePorts")


def is_critical(pod: Pod) -> bool:
    return pod.spec.priority >= CRITICAL_PRIORITY


class AgentAdmission:
    """One node, what it has taken, and who waits for room."""

    def __init__(self, node: Node) -> None:
        self.placement = NodeAdmission(node)
        self.pressures: Collection[str] = ()
        self.closed = ""
        """Why nothing new is taken; empty: it is."""
        self._waits_until: dict[str, float] = {}

    def judge(self, pod: Pod, now: float, *, someone_ends: bool) -> NodeRefusal | float | None:
        """None: it is taken. A time: until then it waits for room, and is to be judged again."""
        refusal = self._pressed(pod) or self._shut() or self.placement.take(pod)
        uid = pod.metadata.uid
        if refusal is None or not someone_ends or not refusal.reason.startswith(_WITHOUT_ROOM):
            self._waits_until.pop(uid, None)
            return refusal
        until = self._waits_until.setdefault(uid, now + ROOM_SECONDS)
        if now < until:
            return until
        del self._waits_until[uid]
        return refusal

    def forget(self, uid: str) -> None:
        """The pod is gone or holds nothing any more."""
        self._waits_until.pop(uid, None)
        self.placement.leave(uid)

    def _pressed(self, pod: Pod) -> NodeRefusal | None:
        if not self.pressures or is_critical(pod):
            return None
        if set(self.pressures) == {MEMORY_PRESSURE}:
            taint = Taint(key=MEMORY_PRESSURE_TAINT, effect=NO_SCHEDULE)
            if qos_class(pod) != BEST_EFFORT or tolerated(pod.spec.tolerations, taint):
                return None
        words = f"The node had condition: [{', '.join(sorted(self.pressures))}]. "
        return NodeRefusal("Evicted", f"Pod was rejected: {words}")

    def _shut(self) -> NodeRefusal | None:
        return NodeRefusal("NodeShutdown", f"Pod was rejected: {self.closed}") if self.closed else None
