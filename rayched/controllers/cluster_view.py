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

from rayched.api.kinds import NODE, POD
from rayched.api.termination import FINAL_PHASES
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
    """A pod on a node, or one without a node that is being deleted or has ended. Times are seconds of the wall clock."""

    key: bytes
    mod_revision: int
    uid: str
    node_name: str
    on_node_since: float
    ended: bool
    ready: bool
    ends_at: float | None
    """Its deletion_timestamp."""
    value: bytes
    """As it lies in the store."""
    goes_after: tuple[bool, float] = (True, 0.0)
    """Of one that has ended: whether it was not evicted, and when it was created. Where there are too many the lowest goes."""
    grace_seconds: float = 0.0
    """Its deletion_grace_period_seconds."""

    @property
    def tolerations(self) -> Sequence[Toleration]:
        """Read anew each time: they are asked for only when the node has taints that evict."""
        return Stored.FromString(self.value).object.pod.spec.tolerations


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
        self.lists = 0
        self.revision = 0
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[bytes, PodView] = {}
        self.pods_on: dict[str, dict[bytes, PodView]] = {}
        """By name of node, also of nodes that are not there."""
        self.ending: KeyedHeap[PodView] = KeyedHeap(_name_of, lambda facts: facts.ends_at)
        """Those that are being deleted, by the time at which they have to be gone. The owner takes out those whose time is up."""
        self.ended: KeyedHeap[PodView] = KeyedHeap(_name_of, lambda facts: (facts.goes_after, facts.key))
        """Those that have ended, the first to go first. The owner takes out those that are too many."""
        self.nodes_to_look_at: set[str] = set()
        self.pods_to_look_at: dict[bytes, bool] = {}
        """Pods that are being deleted and that changed: True where the change was seen to happen. The owner empties it."""

    def deliver(self, delivery: Delivery) -> bool:
        """Takes in what the watch delivered; whether there is something new to look at."""
        before = len(self.nodes_to_look_at)
        match delivery:
            case ListedAll(entries, revision):
                self._list(entries)
                self.lists += 1
                self.revision, self.complete = revision, True
                return True
            case Changed(changes, revision):
                for change in changes:
                    self._change(change, seen=True)
                self.revision = revision
        return len(self.nodes_to_look_at) != before

    def _list(self, entries: Iterable[Entry]) -> None:
        self.nodes.clear()
        self.pods.clear()
        self.pods_on.clear()
        self.ending.clear()
        self.ended.clear()
        self.pods_to_look_at.clear()
        for entry in entries:
            self._change(entry, seen=False)
        self.nodes_to_look_at = {*self.nodes, *self.pods_on}

    def _change(self, change: Change, *, seen: bool) -> None:
        """`seen`: it happened while this was followed."""
        if change.key.startswith(self._pods_prefix):
            self._pod(change, seen=seen)
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

    def _pod(self, change: Change, *, seen: bool) -> None:
        before = self.pods.pop(change.key, None)
        if before is not None:
            name = _name_of(before)
            for heap in (self.ending, self.ended):
                if name in heap:
                    heap.delete(name)
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
            self.ending.add(facts)
            self.pods_to_look_at[facts.key] = seen
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
        uid, status = metadata.uid, pod.status
        since = before.on_node_since if before is not None and (before.uid, before.node_name) == (uid, node_name) else None
        ready = False
        for condition in status.conditions:
            match condition.type:
                case "Ready":
                    ready = ready or condition.status == "True"
                case "PodScheduled" if since is None and condition.status == "True":
                    since = float(condition.last_transition_time.seconds)
        if since is None:
            # It named its node itself: it is there since it was made.
            since = float(metadata.creation_timestamp.seconds)
        ends_at = float(metadata.deletion_timestamp.seconds) if ending else None
        grace = float(metadata.deletion_grace_period_seconds)
        facts = PodView(
            entry.key, entry.mod_revision, uid, node_name, since, ended, ready, ends_at, entry.value, grace_seconds=grace
        )
        if not ended:
            return facts
        evicted = status.phase == "Failed" and status.reason == "Evicted"
        return facts._replace(goes_after=(not evicted, float(metadata.creation_timestamp.seconds)))

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
        since = float(condition.last_transition_time.seconds)
        return PodView(entry.key, entry.mod_revision, uid.decode(), node_name, since, False, False, None, entry.value)
