"""The nodes of the cluster and the pods on them, as the leader's node controllers need them: facts by key, and what to look at.

Fed by the deliveries of a watch of all objects, in etcd's order. A poisoned object counts as not there. Pods without a node are
kept only while they are being deleted.

Owner: one controller; no lock of its own, no I/O. Cost: 15 µs for a pod that is new on a node, 8 for its next changes; 600 bytes
a pod on a node.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rayched.api.kinds import NODE, POD
from rayched.api.termination import FINAL_PHASES
from rayched.api.tolerations import NO_EXECUTE
from rayched.controllers.node_taints import ready_status
from rayched.store.codec import PoisonedObject, decode_entry
from rayched.store.entries import Change, Entry
from rayched.store.keys import Keys
from rayched.store.list_watch import Changed, Delivery, Listed
from rayched.v1.core_pb2 import Node, Pod, Toleration

_TOLERATIONS_KEPT_MAX: Final = 50_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as it lies in the store; shared, not to be changed."""

    key: bytes
    mod_revision: int
    node: Node
    ready: str
    """The status of its condition Ready; empty where nobody has said anything yet."""
    evicts: bool
    """It has a taint with the effect NoExecute."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod on a node, or one without a node that is being deleted. Times are seconds of the wall clock."""

    key: bytes
    mod_revision: int
    uid: str
    node_name: str
    tolerations: tuple[Toleration, ...]
    on_node_since: float
    ended: bool
    ready: bool
    ends_at: float | None
    """Its deletion_timestamp."""


class ClusterView:
    """What is there. `nodes_to_look_at` and `wakes` collect until the owner takes them."""

    def __init__(self, keys: Keys) -> None:
        self._nodes_prefix = keys.prefix(NODE)
        self._pods_prefix = keys.prefix(POD)
        self._tolerations: dict[bytes, tuple[Toleration, ...]] = {}
        self.complete = False
        """The list has arrived."""
        self.revision = 0
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[bytes, PodFacts] = {}
        self.pods_on: dict[str, dict[bytes, PodFacts]] = {}
        """By name of node, also of nodes that are not there."""
        self.ending: dict[bytes, PodFacts] = {}
        """Those that are being deleted."""
        self.nodes_to_look_at: set[str] = set()

    def deliver(self, delivery: Delivery) -> bool:
        """Takes in what the watch delivered; whether there is something new to look at."""
        before = len(self.nodes_to_look_at)
        match delivery:
            case Listed(entries, revision):
                self._list(entries)
                self.revision, self.complete = revision, True
                return True
            case Changed(changes, revision):
                for change in changes:
                    self._change(change)
                self.revision = revision
        return len(self.nodes_to_look_at) != before

    def _list(self, entries: Iterable[Entry]) -> None:
        self.nodes.clear()
        self.pods.clear()
        self.pods_on.clear()
        self.ending.clear()
        for entry in entries:
            self._change(entry)
        self.nodes_to_look_at = {*self.nodes, *self.pods_on}

    def _change(self, change: Change) -> None:
        if change.key.startswith(self._pods_prefix):
            self._pod(change)
        elif change.key.startswith(self._nodes_prefix):
            self._node(change)

    def _node(self, change: Change) -> None:
        name = change.key[len(self._nodes_prefix) :].decode()
        self.nodes_to_look_at.add(name)
        facts = self._node_facts(change) if isinstance(change, Entry) else None
        if facts is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = facts

    def _pod(self, change: Change) -> None:
        before = self.pods.pop(change.key, None)
        if before is not None:
            self.ending.pop(change.key, None)
            on_node = self.pods_on.get(before.node_name)
            if on_node is not None:
                on_node.pop(change.key, None)
                if not on_node:
                    del self.pods_on[before.node_name]
        facts = self._pod_facts(change, before) if isinstance(change, Entry) else None
        if facts is None:
            return
        self.pods[facts.key] = facts
        if facts.ends_at is not None:
            self.ending[facts.key] = facts
        if facts.node_name:
            self.pods_on.setdefault(facts.node_name, {})[facts.key] = facts
            node = self.nodes.get(facts.node_name)
            if node is None or node.evicts or node.ready in ("False", "Unknown"):
                self.nodes_to_look_at.add(facts.node_name)

    def _node_facts(self, entry: Entry) -> NodeFacts | None:
        try:
            node = decode_entry(entry).node
        except PoisonedObject as error:
            log.warning("set aside: %s", error)
            return None
        evicts = any(taint.effect == NO_EXECUTE for taint in node.spec.taints)
        return NodeFacts(entry.key, entry.mod_revision, node, ready_status(node), evicts)

    def _pod_facts(self, entry: Entry, before: PodFacts | None) -> PodFacts | None:
        try:
            pod = decode_entry(entry).pod
        except PoisonedObject as error:
            log.warning("set aside: %s", error)
            return None
        metadata = pod.metadata
        ending = metadata.HasField("deletion_timestamp")
        if not pod.spec.node_name and not ending:
            return None
        if before is not None and (before.uid, before.node_name) != (metadata.uid, pod.spec.node_name):
            before = None
        # Tolerations of a pod can be added, and nothing else.
        same_tolerations = before is not None and len(before.tolerations) == len(pod.spec.tolerations)
        return PodFacts(
            key=entry.key,
            mod_revision=entry.mod_revision,
            uid=metadata.uid,
            node_name=pod.spec.node_name,
            tolerations=before.tolerations if before is not None and same_tolerations else self._interned(pod),
            on_node_since=before.on_node_since if before is not None else _on_node_since(pod),
            ended=pod.status.phase in FINAL_PHASES,
            ready=any(found.type == "Ready" and found.status == "True" for found in pod.status.conditions),
            ends_at=float(metadata.deletion_timestamp.seconds) if ending else None,
        )

    def _interned(self, pod: Pod) -> tuple[Toleration, ...]:
        """Pods of one template share their tolerations."""
        texts = [toleration.SerializeToString(deterministic=True) for toleration in pod.spec.tolerations]
        name = b"".join(len(text).to_bytes(4, "big") + text for text in texts)
        found = self._tolerations.get(name)
        if found is None:
            if len(self._tolerations) >= _TOLERATIONS_KEPT_MAX:
                self._tolerations.clear()
            found = self._tolerations[name] = tuple(Toleration.FromString(text) for text in texts)
        return found


def _on_node_since(pod: Pod) -> float:
    """When it was bound; of a pod that named its node itself, when it was made."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return float(condition.last_transition_time.seconds)
    return float(pod.metadata.creation_timestamp.seconds)
