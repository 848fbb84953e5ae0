"""Since when nodes' NoExecute taints, and pods beside them, are there by the leader's own clock, so that no other host's counts.

A taint's timeAdded is written by the clock of whoever set it. Here it only tells one taint from another. The taint counts from
the time at which this replica first could see it: when a revision of etcd that has it was first read (store/revision_clock.py).
A pod that came to the node after the taint counts from its own coming, told in the same way; which of the two came first is
told by their revisions, without any clock.

One that is swapped for another with the same time (not-ready, unreachable) goes on, and so does one that had no time yet.

Pure: the time comes in, from any monotonic clock in seconds. Cost: an entry for each node that has such taints, and for each pod
that came after them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from rayched.api.tolerations import NO_EXECUTE
from rayched.api.well_known_taints import NOT_READY, UNREACHABLE
from rayched.controllers.cluster_view import NodeFacts, PodView
from rayched.store.revision_clock import RevisionClock
from rayched.v1.core_pb2 import Taint

_Identity = tuple[str, int]
"""Which taint it is: its key, and its timeAdded or 0."""
_LOST: Final = "lost"


class MeasuredTaints:
    """`seen` with each change of nodes, also of those that have no such taint any more."""

    def __init__(self, revisions: RevisionClock) -> None:
        self._revisions = revisions
        self._taints: dict[str, dict[_Identity, tuple[int, float]]] = {}
        """By node: the revision with which the taint was first seen, and the time from which it counts."""
        self._pods: dict[bytes, tuple[int, float]] = {}
        """By key, of those that came after a taint: the revision of their coming, and its time."""
        self._histories = 0

    def seen(self, nodes: Iterable[tuple[str, NodeFacts]], histories: int, now: float) -> None:
        """`histories`: how often the store's revisions have gone back. Those of another history tell no order."""
        if histories != self._histories:
            self._histories = histories
            self._taints.clear()
            self._pods.clear()
        for name, facts in nodes:
            known = self._taints.pop(name, {})
            taints = [_identity(taint) for taint in facts.node.spec.taints if taint.effect == NO_EXECUTE]
            if taints:
                new = facts.mod_revision, self._revisions.since(facts.mod_revision, now)
                self._taints[name] = {one: known.get(one) or known.get((one[0], 0)) or new for one in taints}

    def since(self, name: str, taint: Taint, pod: PodView, now: float) -> float:
        """Since when the taint and the pod are on the node together."""
        revision, taint_since = self._taints.get(name, {}).get(_identity(taint), (0, now))
        if pod.on_node_revision <= revision:
            return taint_since
        came = self._pods.get(pod.key)
        if came is None or came[0] != pod.on_node_revision:
            # Noted once: the clock of revisions forgets what is long ago.
            came = self._pods[pod.key] = pod.on_node_revision, self._revisions.since(pod.on_node_revision, now)
        return max(taint_since, came[1])

    def keep(self, names: Container[str], pods: Container[bytes]) -> None:
        """Forgets all other nodes and pods."""
        self._taints = {name: times for name, times in self._taints.items() if name in names}
        self._pods = {key: came for key, came in self._pods.items() if key in pods}


def _identity(taint: Taint) -> _Identity:
    key = _LOST if taint.key in (NOT_READY, UNREACHABLE) else taint.key
    return key, taint.time_added.seconds
