"""Nominations of pods that wait: for which node each of them hopes, because preemption made room for it there.

A pod has at most one nomination. It comes from the pod's status, or from the scheduler before the status is written; an update
of the pod that knows nothing of it does not undo it, one that removes or changes it in the status does.

The queue tells it with the pod. What a decision reserves for nominated pods is counted where decisions are made, from the same
statuses: see `rayched.scheduler.nominations`.

Owner: SchedulingQueue. Source: nominator of kube-scheduler 1.34. Cost: O(1) each.
"""

from __future__ import annotations

from rayched.queue.queued_pod import PendingPod


class Nominator:
    """The node that each pod is nominated to."""

    __slots__ = ("_node_of",)

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}

    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to, "" for none."""
        return self._node_of.get(uid, "")

    def add(self, uid: str, node_name: str) -> None:
        """The pod is nominated to this node and no other; "" to none."""
        if node_name:
            self._node_of[uid] = node_name
        else:
            self.delete(uid)

    def update(self, uid: str, in_old_status: str, new: PendingPod) -> None:
        """The pod changed: what its status says counts, unless it said nothing before and says nothing now."""
        if in_old_status or new.nominated_node_name:
            self.add(uid, new.nominated_node_name)

    def delete(self, uid: str) -> None:
        """Idempotent."""
        self._node_of.pop(uid, None)
