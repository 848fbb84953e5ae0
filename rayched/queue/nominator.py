"""Nominations: which pending pod hopes for which node, because preemption made room for it there.

A pod has at most one nomination. It comes from the pod's status, or from the scheduler before the status is written; an update
of the pod that knows nothing of it does not undo it, one that removes or changes it in the status does.

Owner: SchedulingQueue. Source: nominator of kube-scheduler 1.34. Cost: O(1) each.
"""

from __future__ import annotations

from collections.abc import Mapping

from rayched.queue.queued_pod import PendingPod


class Nominator:
    """Pods by the node they are nominated to."""

    __slots__ = ("_node_of", "_on")

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._node_of)

    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to, "" for none."""
        return self._node_of.get(uid, "")

    def on(self, node_name: str) -> tuple[str, ...]:
        """uids of the pods nominated to the node, first one first."""
        return tuple(self._on.get(node_name, ()))

    def nominations(self) -> Mapping[str, str]:
        """uid -> node, a copy."""
        return dict(self._node_of)

    def add(self, uid: str, node_name: str) -> None:
        """The pod is nominated to this node and no other; "" to none."""
        if self._node_of.get(uid, "") == node_name:
            return
        self.delete(uid)
        if node_name:
            self._node_of[uid] = node_name
            self._on.setdefault(node_name, {})[uid] = None

    def update(self, uid: str, in_old_status: str, new: PendingPod) -> None:
        """The pod changed: what its status says counts, unless it said nothing before and says nothing now."""
        if in_old_status or new.nominated_node_name:
            self.add(uid, new.nominated_node_name)

    def delete(self, uid: str) -> None:
        """Idempotent."""
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        there = self._on[node_name]
        del there[uid]
        if not there:
            del self._on[node_name]

    def verify(self) -> list[str]:
        by_node = {uid: node_name for node_name, uids in self._on.items() for uid in uids}
        return [] if by_node == self._node_of else ["the nominations by pod and by node differ"]
