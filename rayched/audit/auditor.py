"""The auditor: replays etcd's history, revision by revision, and counts what must never happen.

It shares no code with the scheduler: it knows the keys, the stored messages and Kubernetes' rules for resources, nothing else.
Etcd's total order makes each check a matter of one pass:

* **bound twice**: a pod (by uid) that was bound to one node and then to another, or again.
* **over capacity**: a binding after which a node's pods ask for more than it offers, of any resource, host port or pod slot.
  A pod that named its node itself (spec.nodeName at its submission) counts for the others, and is not held against the scheduler.
* **bound nowhere**: a binding to a node that does not exist at that revision, or of a pod that is being deleted.
* **stale**: a leader's write that carries another epoch than the one in force at its revision.
* **lost**: an acknowledged submission whose object is not in the store and whose deletion nobody asked for. The auditor is told
  which submissions were acknowledged and which deletions were asked for.

A first violation of each kind is described in words, so that a run that fails says where to look.

Source: invariants S1 to S5 of the reliability rules. Cost: O(1) for each change.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from google.protobuf.message import DecodeError

from rayched.audit.requests import Amounts, amounts, host_ports, taken_by
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import Stored

_FINAL_PHASES = ("Succeeded", "Failed")
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Change:
    """One key in one revision; `value` is None where the key was deleted."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Binding:
    """One pod reaching its node. `seconds` is when the auditor saw it, on its own monotonic clock."""

    uid: str
    pod: str
    node: str
    revision: int
    epoch: int
    seconds: float


@dataclass(slots=True)
class _Placed:
    node: str
    takes: Amounts
    ports: set[tuple[str, int, str]]


@dataclass(slots=True)
class Findings:
    """What was counted, and the first violation of each kind in words."""

    bound_twice: int = 0
    over_capacity: int = 0
    bound_nowhere: int = 0
    stale: int = 0
    unreadable: int = 0
    epochs_not_rising: int = 0
    first: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, words: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.first.setdefault(kind, words)

    @property
    def total(self) -> int:
        return self.bound_twice + self.over_capacity + self.bound_nowhere + self.stale + self.unreadable + self.epochs_not_rising


class Auditor:
    """State of the cluster as of the last revision replayed, and the findings so far. One thread at a time."""

    def __init__(self, root: str = "/rayched") -> None:
        self._pods_prefix = f"{root}/cluster/pods/".encode()
        self._nodes_prefix = f"{root}/cluster/nodes/".encode()
        self._epoch_key = f"{root}/cluster/epoch".encode()
        self.findings = Findings()
        self.revision = 0
        self.epoch = 0
        self.epochs: list[tuple[int, float]] = []
        """Revision and time of each epoch that somebody acquired."""
        self._transitions = -1
        self.nodes: dict[str, Node] = {}
        self._offers: dict[str, Amounts] = {}
        self.pods: dict[str, Pod] = {}
        """By uid, as they are now."""
        self._uid_of: dict[bytes, str] = {}
        self._placed: dict[str, _Placed] = {}
        self._used: dict[str, Amounts] = defaultdict(lambda: defaultdict(Fraction))
        self._ports: dict[str, Counter[tuple[str, int, str]]] = defaultdict(Counter)
        self._node_of: dict[str, str] = {}
        """The one node in a pod's life, by uid; kept after its deletion."""
        self._attempts: dict[str, str] = {}
        """The leader's last attempt seen on a pod, by uid."""
        self.bindings: list[Binding] = []
        self.deleted: set[str] = set()

    def replay(self, revision: int, changes: Iterable[Change], seconds: float = 0.0) -> None:
        """Applies one whole revision."""
        self.revision = revision
        changes = list(changes)
        # An epoch written in a revision holds for the other writes of that revision too.
        for change in changes:
            if change.key == self._epoch_key:
                self._epoch_changed(change, revision, seconds)
        for change in changes:
            if change.key.startswith(self._nodes_prefix):
                self._node_changed(change)
        for change in changes:
            if change.key.startswith(self._pods_prefix):
                self._pod_changed(change, revision, seconds)

    def lost(self, acknowledged: Iterable[str], deletions_asked: Iterable[str] = ()) -> list[str]:
        """Uids that were acknowledged, are not in the store, and that nobody asked to delete."""
        asked = set(deletions_asked)
        return [uid for uid in acknowledged if uid not in self.pods and uid not in asked]

    def zones(self) -> dict[str, int]:
        """Bound pods for each zone, as of now."""
        counts: Counter[str] = Counter()
        for placed in self._placed.values():
            node = self.nodes.get(placed.node)
            counts[node.metadata.labels.get(ZONE, "") if node is not None else ""] += 1
        return dict(sorted(counts.items()))

    def allocated(self, resource: str) -> tuple[Fraction, Fraction]:
        """What bound pods take of a resource, and what the nodes offer."""
        used = sum((used.get(resource, Fraction(0)) for used in self._used.values()), Fraction(0))
        return used, sum((offer.get(resource, Fraction(0)) for offer in self._offers.values()), Fraction(0))

    def bound_pods(self) -> int:
        return len(self._placed)

    # -------------------------------------------------------------------------------------------------------------- changes

    def _epoch_changed(self, change: Change, revision: int, seconds: float) -> None:
        if change.value is None:
            self.findings.add("epochs_not_rising", f"revision {revision}: the epoch key was deleted")
            return
        written = json.loads(change.value)
        transitions = int(written["transitions"])
        if written["holder"]:
            if transitions != self._transitions + 1 and self._transitions >= 0:
                self.findings.add(
                    "epochs_not_rising", f"revision {revision}: transitions went from {self._transitions} to {transitions}"
                )
            self.epochs.append((revision, seconds))
        self._transitions = transitions
        self.epoch = revision

    def _node_changed(self, change: Change) -> None:
        name = change.key[len(self._nodes_prefix) :].decode()
        if change.value is None:
            self.nodes.pop(name, None)
            self._offers.pop(name, None)
            return
        stored = self._read(change)
        if stored is not None:
            self.nodes[name] = stored.object.node
            self._offers[name] = amounts(stored.object.node.status.allocatable)

    def _pod_changed(self, change: Change, revision: int, seconds: float) -> None:
        if change.value is None:
            uid = self._uid_of.pop(change.key, "")
            self.pods.pop(uid, None)
            self.deleted.add(uid)
            self._leave(uid)
            return
        stored = self._read(change)
        if stored is None:
            return
        pod = stored.object.pod
        uid = pod.metadata.uid
        before = self.pods.get(uid)
        replaced = self._uid_of.get(change.key)
        if replaced is not None and replaced != uid:
            self.pods.pop(replaced, None)
            self.deleted.add(replaced)
            self._leave(replaced)
        self._uid_of[change.key] = uid
        self.pods[uid] = pod
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        write = stored.leader_write
        # The stored message keeps the leader's last write, also under later writes of others: only a new attempt is a write.
        if write.attempt and write.attempt != self._attempts.get(uid):
            self._attempts[uid] = write.attempt
            if write.op == "bind" and uid in self._node_of:
                self.findings.add("bound_twice", f"revision {revision}: pod {name} was bound again, by attempt {write.attempt}")
            if write.epoch != self.epoch:
                self.findings.add(
                    "stale", f"revision {revision}: {write.op} of pod {name} under epoch {write.epoch}, in force is {self.epoch}"
                )
        node = pod.spec.node_name
        earlier = self._node_of.get(uid)
        if node and earlier is None:
            self._node_of[uid] = node
            if write.op == "bind" or before is not None:
                self.bindings.append(Binding(uid, name, node, revision, write.epoch, seconds))
                self._bound(pod, before, name, node, revision)
            else:
                self._enter(uid, pod, node)
        elif earlier is not None and node != earlier:
            self.findings.add("bound_twice", f"revision {revision}: pod {name} went from {earlier} to {node or 'no node'}")
        if pod.status.phase in _FINAL_PHASES:
            self._leave(uid)

    def _bound(self, pod: Pod, before: Pod | None, name: str, node: str, revision: int) -> None:
        uid = pod.metadata.uid
        if node not in self.nodes:
            self.findings.add("bound_nowhere", f"revision {revision}: pod {name} was bound to {node}, which does not exist")
        if before is not None and before.metadata.HasField("deletion_timestamp"):
            self.findings.add("bound_nowhere", f"revision {revision}: pod {name} was bound while it was being deleted")
        takes = self._enter(uid, pod, node)
        offer = self._offers.get(node, {})
        for resource, wanted in takes.takes.items():
            used, offered = self._used[node][resource], offer.get(resource, Fraction(0))
            if wanted and used > offered:
                words = f"revision {revision}: with pod {name}, node {node} has {float(used):g} of {float(offered):g} {resource}"
                self.findings.add("over_capacity", words)
                return
        for port in takes.ports:
            if any(_collide(port, other) and count > (other == port) for other, count in self._ports[node].items()):
                words = f"revision {revision}: pod {name} shares host port {port[1]}/{port[0]} on node {node}"
                self.findings.add("over_capacity", words)
                return

    def _enter(self, uid: str, pod: Pod, node: str) -> _Placed:
        placed = self._placed[uid] = _Placed(node, taken_by(pod), host_ports(pod))
        for resource, value in placed.takes.items():
            self._used[node][resource] += value
        self._ports[node].update(placed.ports)
        return placed

    def _leave(self, uid: str) -> None:
        placed = self._placed.pop(uid, None)
        if placed is None:
            return
        for resource, value in placed.takes.items():
            self._used[placed.node][resource] -= value
        self._ports[placed.node].subtract(placed.ports)

    def _read(self, change: Change) -> Stored | None:
        try:
            return Stored.FromString(change.value or b"")
        except DecodeError:
            self.findings.add("unreadable", f"revision {self.revision}: the value of {change.key!r} is no stored object")
            return None


def _collide(one: tuple[str, int, str], other: tuple[str, int, str]) -> bool:
    return one[:2] == other[:2] and (one[2] == other[2] or not one[2] or not other[2])
