"""The nodes of the cluster and the pods on them, as the leader's node controllers need them: facts by key, and what to look at.

Fed by the deliveries of a watch of all objects, in etcd's order. A poisoned object counts as not there. Pods without a node are
kept only while they are being deleted, or when they have ended.

Owner: one controller; no lock of its own, no I/O. Cost: 1 µs for a pod without a node like one before, 4 for its binding, and
6, decoded already, for another one that is new on a node; 300 bytes a pod on a node, beside its value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rayched.api.disconnection import fence_is_armed, stop_after_seconds
from rayched.api.kinds import NODE, POD
from rayched.api.termination import FINAL_PHASES, is_tracked
from rayched.api.tolerations import NO_EXECUTE
from rayched.controllers.node_taints import ready_status
from rayched.queue.heap import KeyedHeap
from rayched.store.codec import PoisonedObject, decode_entry
from rayched.store.entries import Change, Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll
from rayched.store.pod_layouts import AlikePods, part_behind
from rayched.v1.core_pb2 import Node, Toleration
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import Object

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


class PodView(NamedTuple):
    """A pod on a node, or one without a node that is being deleted or has ended."""

    key: bytes
    mod_revision: int
    uid: str
    node_name: str
    on_node_revision: int
    """With which it was first seen on this node."""
    ended: bool
    ready: bool
    deletion_timestamp: float | None
    """By the clock of whoever wrote it; None: it is not being deleted."""
    value: bytes
    """As it lies in the store."""
    goes_after: tuple[bool, float] = (True, 0.0)
    """Of one that has ended: whether it was not evicted, and when it was created. Where there are too many the lowest goes."""
    grace_seconds: float = 0.0
    """Its deletion_grace_period_seconds."""
    tracked: bool = False
    """Of one that has ended: its job has yet to count it."""

    @property
    def tolerations(self) -> Sequence[Toleration]:
        """Read anew each time: they are asked for only when the node has taints that evict."""
        return Stored.FromString(self.value).object.pod.spec.tolerations

    @property
    def stop_after_seconds(self) -> float | None:
        """After how long without a connection its node stops it; None: it does not. Read anew each time, of pods that end."""
        return stop_after_seconds(Stored.FromString(self.value).object.pod)

    def fence_is_armed(self, node: Node) -> bool:
        """Whether the agent of its node has said that it will be stopped. Read anew each time, of pods that end."""
        return fence_is_armed(Stored.FromString(self.value).object.pod, node)


def _name_of(facts: PodView) -> str:
    return facts.key.decode()


class ClusterView:
    """What is there. `nodes_to_look_at` and `pods_to_look_at` collect until the owner takes them."""

    def __init__(self, keys: Keys, decode: Callable[[Entry], Object] = decode_entry) -> None:
        """`decode` may share what it gives."""
        self._decode = decode
        self._nodes_prefix = keys.prefix(NODE)
        self._pods_prefix = keys.prefix(POD)
        self._alike: AlikePods[bytes] = AlikePods()
        """Pods of which there is nothing to keep: the beginning of the keys of those without conditions that have not ended."""
        self.complete = False
        """The list has arrived."""
        self.revision = 0
        self.histories = 0
        """How often the store was found at a lower revision than before."""
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[bytes, PodView] = {}
        self.pods_on: dict[str, dict[bytes, PodView]] = {}
        """By name of node, also of nodes that are not there."""
        self.ended: KeyedHeap[PodView] = KeyedHeap(_name_of, lambda facts: (facts.goes_after, facts.key))
        """Those that have ended, the first to go first. The owner takes out those that are too many."""
        self.nodes_to_look_at: set[str] = set()
        self.pods_to_look_at: dict[bytes, None] = {}
        """Pods that are being deleted and that changed or were listed, in that order. The owner empties it."""
        self._listed_before: dict[bytes, PodView] = {}
        """While a list is taken in: what was known before it."""

    def deliver(self, delivery: Delivery) -> bool:
        """Takes in what the watch delivered; whether there is something new to look at."""
        before = len(self.nodes_to_look_at)
        match delivery:
            case ListedAll(entries, revision):
                went_back = revision < self.revision
                self.histories += went_back
                self._listed_before = {} if went_back else self.pods
                self._list(entries)
                self._listed_before = {}
                self.revision, self.complete = revision, True
                return True
            case Changed(changes, revision):
                for change in changes:
                    self._change(change)
                self.revision = revision
        return len(self.nodes_to_look_at) != before

    def _list(self, entries: Iterable[Entry]) -> None:
        self.nodes.clear()
        self.pods = {}
        self.pods_on.clear()
        self.ended.clear()
        self.pods_to_look_at.clear()
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
            name = _name_of(before)
            if name in self.ended:
                self.ended.delete(name)
            on_node = self.pods_on.get(before.node_name)
            if on_node is not None:
                on_node.pop(change.key, None)
                if not on_node:
                    del self.pods_on[before.node_name]
        facts = self._pod_facts(change, before) if isinstance(change, Entry) else None
        if facts is None:
            return
        known = before or self._listed_before.get(facts.key)
        if known is not None and (known.uid, known.node_name) == (facts.uid, facts.node_name):
            facts = facts._replace(on_node_revision=known.on_node_revision)
        self.pods[facts.key] = facts
        if facts.deletion_timestamp is not None:
            self.pods_to_look_at[facts.key] = None
        if facts.ended:
            self.ended.add(facts)
        if facts.node_name:
            on_node = self.pods_on.get(facts.node_name)
            if on_node is None:
                on_node = self.pods_on[facts.node_name] = {}
            on_node[facts.key] = facts
            node = self.nodes.get(facts.node_name)
            if node is None or node.evicts or node.ready in ("False", "Unknown"):
                self.nodes_to_look_at.add(facts.node_name)

    def _node_facts(self, entry: Entry) -> NodeFacts | None:
        try:
            node = self._decode(entry).node
        except PoisonedObject as error:
            log.warning("set aside: %s", error)
            return None
        evicts = any(taint.effect == NO_EXECUTE for taint in node.spec.taints)
        return NodeFacts(entry.key, entry.mod_revision, node, ready_status(node), evicts)

    def _pod_facts(self, entry: Entry, before: PodView | None) -> PodView | None:
        if self._alike.find(entry.value) is not None:
            return None
        bound = self._bound_facts(entry) if before is None else None
        if bound is not None:
            return bound
        try:
            pod = self._decode(entry).pod
        except PoisonedObject as error:
            log.warning("set aside: %s", error)
            return None
        metadata, node_name = pod.metadata, pod.spec.node_name
        ending, ended = metadata.HasField("deletion_timestamp"), pod.status.phase in FINAL_PHASES
        if not node_name and not ending and not ended:
            self._alike.learn(entry.value, entry.key[: -len(metadata.name.encode())] if not pod.status.conditions else b"")
            return None
        status, revision = pod.status, entry.mod_revision
        ready = any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions)
        deleted_at = float(metadata.deletion_timestamp.seconds) if ending else None
        grace = float(metadata.deletion_grace_period_seconds)
        facts = PodView(
            entry.key, revision, metadata.uid, node_name, revision, ended, ready, deleted_at, entry.value, grace_seconds=grace
        )
        if not ended:
            return facts
        evicted = status.phase == "Failed" and status.reason == "Evicted"
        return facts._replace(goes_after=(not evicted, float(metadata.creation_timestamp.seconds)), tracked=is_tracked(pod))

    def _bound_facts(self, entry: Entry) -> PodView | None:
        """Of a pod that had nothing to keep, and was bound. None: it has to be decoded."""
        parts = part_behind(entry.value)
        found = None if parts is None else self._alike.find(parts[0])
        if parts is None or found is None:
            return None
        beginning, name, uid, _ = found
        pod = parts[1]
        node_name, conditions = pod.spec.node_name, pod.status.conditions
        if not node_name or pod.status.phase or len(conditions) != 1 or beginning + name != entry.key or not uid.isascii():
            return None
        (condition,) = conditions
        if condition.type != "PodScheduled" or condition.status != "True":
            return None
        revision = entry.mod_revision
        return PodView(entry.key, revision, uid.decode(), node_name, revision, False, False, None, entry.value)
