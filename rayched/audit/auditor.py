"""The auditor: replays etcd's history, revision by revision, and counts what must never happen.

It shares no code with the scheduler: it knows the keys, the stored messages and Kubernetes' rules, nothing else. Etcd's total
order makes each check a matter of one pass:

* **S1** a pod, by uid, has one node in its life; it is bound to a node that is there, while it is pending.
* **S2** no binding leaves a node's pods with more than the node offers (capacity.py).
* **S3** an acknowledged submission is in the store until its deletion was asked for; one uid has one object.
* **S4** a leader's write carries the epoch that is in force at its revision, and was decided on a state that has seen that epoch.
* **S5** epochs rise (terms.py).
* **S8** hard constraints hold (bindings_judged.py).
* **S9** a victim has a recorded preemptor (victims.py), which had no room without it (room_judged.py).
* **P1** to **P15** groups are whole, plans are kept, and victims needed (groups_judged.py, plans_judged.py, group_victims.py).
* **S12** what was deleted does not come back, and what is being deleted stays so.

The auditor is told which submissions were acknowledged, which deletions were asked for and which were acknowledged.

Source: the reliability rules' invariants. Cost: O(1) for each change but for S8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction

from google.protobuf.message import DecodeError

from rayched.audit.bindings_judged import BindingJudge
from rayched.audit.capacity import Capacity
from rayched.audit.constraints import against_node, against_pods
from rayched.audit.findings import Findings
from rayched.audit.groups_judged import GroupJudge
from rayched.audit.requests import host_ports, taken_by
from rayched.audit.room_judged import RoomJudge
from rayched.audit.terms import EpochTerms
from rayched.audit.victims import VictimJudge
from rayched.audit.view import Past, resident
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import LeaderWrite, Stored

_FINAL_PHASES = ("Succeeded", "Failed")
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class KeyChange:
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
    waited: float = 0.0
    """Seconds since the pod was first seen."""


@dataclass(frozen=True, slots=True)
class LateWrite:
    """A leader's write that reached etcd later than it was sent. `seconds` is when, on the auditor's monotonic clock."""

    epoch: int
    attempt: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PodChange:
    """What a watch of all pods has to tell of one revision."""

    revision: int
    kind: str
    """ADDED, MODIFIED, DELETED."""
    name: str


class Auditor:
    """State of the cluster as of the last revision replayed, and the findings so far. One thread at a time."""

    def __init__(self, root: str = "/rayched", *, on_pod_change: Callable[[PodChange], object] | None = None) -> None:
        """`on_pod_change` is told what happens to the pods, in order."""
        self._cluster_prefix = f"{root}/cluster/".encode()
        self._pods_prefix = f"{root}/cluster/pods/".encode()
        self._nodes_prefix = f"{root}/cluster/nodes/".encode()
        self._namespaces_prefix = f"{root}/cluster/namespaces/".encode()
        self._groups_prefix = f"{root}/cluster/podgroups/".encode()
        self._plans_prefix = f"{root}/cluster/groupplans/".encode()
        self._epoch_key = f"{root}/cluster/epoch".encode()
        self._no_objects = (self._epoch_key, f"{root}/cluster/suspects/".encode())
        self._on_pod_change = on_pod_change
        self.findings = Findings()
        self.revision = 0
        self.terms = EpochTerms(self.findings)
        self.pods: dict[str, Pod] = {}
        """By uid, as they are now."""
        self.bindings: list[Binding] = []
        self.deleted: set[str] = set()
        self.leader_writes: Counter[str] = Counter()
        """Those committed, by what they were for."""
        self._past = Past()
        self._judge = BindingJudge(self._past, self.findings)
        self._victims = VictimJudge(self.findings)
        self._room = RoomJudge(self._past, self.findings)
        self._preemptor: tuple[Pod, LeaderWrite] | None = None
        """Of the last preemption, until it is known to evict somebody."""
        self._capacity = Capacity()
        self.groups = GroupJudge(self.findings, self._capacity, self.pods)
        self._uid_of: dict[bytes, str] = {}
        self._node_of: dict[str, str] = {}
        """The one node in a pod's life, by uid; kept after its deletion."""
        self._committed: set[str] = set()
        """Attempts of all the leaders' writes that were ever there."""
        self._attempts: dict[bytes, str] = {}
        """The leader's last attempt seen on an object."""
        self._since: dict[str, float] = {}
        """When a pod without a node was first seen, by uid."""

    def replay(self, revision: int, changes: Iterable[KeyChange], seconds: float = 0.0) -> None:
        """Applies one whole revision."""
        self.revision = revision
        changes = list(changes)
        # An epoch written in a revision holds for the other writes of that revision too.
        for change in changes:
            if change.key == self._epoch_key:
                before = self.terms.epoch
                self.terms.written(change.value, revision, seconds)
                if self.terms.epoch != before:
                    self._judge.epoch_over()
                    self._room.epoch_over()
        # Nodes first: what a pod was bound to in the same revision is there.
        for change in sorted(changes, key=lambda change: change.key.startswith(self._pods_prefix)):
            if change.key.startswith(self._pods_prefix):
                self._pod_changed(change, revision, seconds)
            elif not change.key.startswith(self._no_objects):
                self._other_changed(change)
        self.groups.revision_over(revision)

    # ------------------------------------------------------------------------------------------------------------ questions

    @property
    def epoch(self) -> int:
        """In force."""
        return self.terms.epoch

    @property
    def epochs(self) -> list[tuple[int, float]]:
        """Revision and time of each epoch that somebody acquired."""
        return self.terms.acquired

    @property
    def nodes(self) -> dict[str, Node]:
        return self._past.now.nodes

    def lost(self, acknowledged: Iterable[str], deletions_asked: Iterable[str] = ()) -> list[str]:
        """Uids that were acknowledged, are not in the store, and that nobody asked to delete."""
        asked = set(deletions_asked)
        return [uid for uid in acknowledged if uid not in self.pods and uid not in asked and not self._victims.knows(uid)]

    def undeleted(self, acknowledged: Iterable[str]) -> list[str]:
        """Uids whose deletion was acknowledged, and that are there without being deleted."""
        there = ((uid, self.pods.get(uid)) for uid in acknowledged)
        return [uid for uid, pod in there if pod is not None and not pod.metadata.HasField("deletion_timestamp")]

    def refused(self, late: Iterable[LateWrite]) -> int:
        """How many of these writes reached etcd under a later epoch than their own, and were never committed: nothing but the
        guard refuses such a write before it looks at anything else."""
        begun = [(epoch, seconds) for epoch, seconds in self.terms.acquired]
        attempts = {
            write.attempt for write in late if any(epoch > write.epoch and seconds < write.seconds for epoch, seconds in begun)
        }
        return len(attempts) - self.committed(attempts)

    def committed(self, attempts: Set[str]) -> int:
        """How many of these attempts at a write a revision has."""
        return len(attempts & self._committed)

    def fit_together(self, pods: Sequence[Pod]) -> bool:
        """Whether nodes could take all of them now, each on the first that does. O(nodes x pods)."""
        placed: list[str] = []
        for pod in pods:
            if (node := self.node_for(pod)) is None:
                break
            placed.append(pod.metadata.uid)
            self._capacity.enter(pod.metadata.uid, pod, node)
        for uid in placed:
            self._capacity.leave(uid)
        return len(placed) == len(pods)

    def settle(self) -> None:
        """Nothing more will come: what was still open is decided."""
        self._judge.epoch_over()
        self._room.settle()
        self.groups.settle()

    def pending(self) -> list[tuple[Pod, float]]:
        """Pods that wait for a node, and since when."""
        return [
            (pod, self._since.get(uid, 0.0))
            for uid, pod in self.pods.items()
            if not pod.spec.node_name and not pod.metadata.HasField("deletion_timestamp") and not pod.spec.scheduling_gates
        ]

    def node_for(self, pod: Pod) -> str | None:
        """A node that could take the pod now, by the auditor's own rules. O(nodes x pods)."""
        view, takes, ports = self._past.now, taken_by(pod), host_ports(pod)
        for name, node in view.nodes.items():
            if not (self._capacity.exceeded(takes, ports, name) or against_node(pod, node) or against_pods(pod, node, view)):
                return name
        return None

    def zones(self) -> dict[str, int]:
        """Bound pods for each zone, as of now."""
        counts: Counter[str] = Counter()
        for name in self._capacity.nodes_of_pods():
            node = self.nodes.get(name)
            counts[node.metadata.labels.get(ZONE, "") if node is not None else ""] += 1
        return dict(sorted(counts.items()))

    def allocated(self, resource: str) -> tuple[Fraction, Fraction]:
        """What bound pods take of a resource, and what the nodes offer."""
        return self._capacity.allocated(resource)

    def bound_pods(self) -> int:
        return len(self._capacity)

    # -------------------------------------------------------------------------------------------------------------- changes

    def _other_changed(self, change: KeyChange) -> None:
        gone = change.value is None
        if (stored := Stored() if gone else self._read(change)) is None:
            return
        if change.key.startswith(self._nodes_prefix):
            name = change.key[len(self._nodes_prefix) :].decode()
            node = None if gone else stored.object.node
            self._past.change(self.revision, "nodes", name, node)
            self._capacity.offer(name, node)
            self.groups.plans.node_changed(name, self.revision)
        elif change.key.startswith(self._namespaces_prefix):
            name = change.key[len(self._namespaces_prefix) :].decode()
            labels = None if gone else dict(stored.object.namespace.metadata.labels)
            self._past.change(self.revision, "namespaces", name, labels)
        elif change.key.startswith(self._groups_prefix):
            name = change.key[len(self._groups_prefix) :].decode()
            self.groups.group_changed(name, None if gone else stored.object.pod_group, stored.leader_write, self.revision)
        elif change.key.startswith(self._plans_prefix):
            name = change.key[len(self._plans_prefix) :].decode()
            self.groups.plan_changed(name, None if gone else stored.group_plan, stored.leader_write, self.revision)
        if gone:
            self._attempts.pop(change.key, None)
        else:
            self._written_by_leader(change.key, stored.leader_write, change.key[len(self._cluster_prefix) :].decode())

    def _pod_changed(self, change: KeyChange, revision: int, seconds: float) -> None:
        name = change.key[len(self._pods_prefix) :].decode()
        if change.value is None:
            self._attempts.pop(change.key, None)
            if change.key in self._uid_of:
                self._gone(self._uid_of.pop(change.key))
            self._tell(revision, "DELETED", name)
            return
        stored = self._read(change)
        if stored is None:
            return
        pod = stored.object.pod
        uid = pod.metadata.uid
        before = self.pods.get(uid)
        self._tell(revision, "ADDED" if change.key not in self._uid_of else "MODIFIED", name)
        self._identify(change.key, uid, name)
        self._check_deletion(pod, before, name)
        self.pods[uid] = pod
        write = stored.leader_write
        is_new_write = self._written_by_leader(change.key, write, f"pod {name}")
        if is_new_write and write.op == "bind" and uid in self._node_of:
            self.findings.add("bound_twice", f"revision {revision}: pod {name} was bound again, by attempt {write.attempt}")
        if is_new_write and self._victims.written(pod, before, revision, self.pods):
            self._evicted(write, revision, seconds)
            self.groups.victims.ended(pod, write)
        node, earlier = pod.spec.node_name, self._node_of.get(uid)
        ended = pod.status.phase in _FINAL_PHASES
        if node and earlier is None:
            self._node_of[uid] = node
            if not (is_new_write and write.op == "bind"):
                self.groups.plans.moved(node, revision)
            if (is_new_write and write.op == "bind") or before is not None:
                self._bound(pod, before, write, name, seconds)
            if not ended:
                self._capacity.enter(uid, pod, node)
            self._since.pop(uid, None)
        elif earlier is not None and node != earlier:
            self.findings.add("bound_twice", f"revision {revision}: pod {name} went from {earlier} to {node or 'no node'}")
        elif not node:
            self._since.setdefault(uid, seconds)
        if ended:
            self._capacity.leave(uid)
        there = resident(pod) if node and not ended else None
        self._past.change(revision, "residents", uid, there)
        nominated = pod.status.nominated_node_name if not node and not ended else ""
        waits_for = resident(pod, nominated) if nominated else None
        self._past.change(revision, "nominated", uid, waits_for)
        self.groups.pod_changed(uid, pod, revision, write if is_new_write and node and write.op == "bind" else None)
        if is_new_write and write.op == "status":
            self._room.told(write, seconds)
        if is_new_write and node and write.op == "bind":
            self._room.decided(revision, write, "residents", there or resident(pod), seconds)
        elif is_new_write and waits_for is not None and write.op == "preempt":
            self._room.decided(revision, write, "nominated", waits_for, seconds)
            self._preemptor = pod, write
        elif is_new_write and waits_for is not None and (before is None or before.status.nominated_node_name != nominated):
            self._room.decided(revision, write, "nominated", waits_for, seconds)

    def _evicted(self, write: LeaderWrite, revision: int, seconds: float) -> None:
        """Preemptor and victims are written in one revision, the preemptor first; for victims that follow it was judged then."""
        if self._preemptor is not None and self._preemptor[1].attempt == write.attempt:
            (pod, decision), self._preemptor = self._preemptor, None
            self._room.preempted(pod, decision, revision, seconds, self.pods.values())

    def _bound(self, pod: Pod, before: Pod | None, write: LeaderWrite, name: str, seconds: float) -> None:
        uid, node, revision = pod.metadata.uid, pod.spec.node_name, self.revision
        self.bindings.append(Binding(uid, name, node, revision, write.epoch, seconds, seconds - self._since.get(uid, seconds)))
        if node not in self.nodes:
            self.findings.add("bound_nowhere", f"revision {revision}: pod {name} was bound to {node}, which does not exist")
        if before is not None and before.metadata.HasField("deletion_timestamp"):
            self.findings.add("bound_nowhere", f"revision {revision}: pod {name} was bound while it was being deleted")
        if before is not None and before.status.phase in _FINAL_PHASES:
            self.findings.add("bound_nowhere", f"revision {revision}: pod {name} was bound after it had ended")
        # Room that a plan held for it.
        self._capacity.leave(uid)
        if words := self._capacity.exceeded_by(pod, node):
            self.findings.add("over_capacity", f"revision {revision}: with pod {name}, {words}")
        self._judge.bound(pod, write, revision, name)

    def _identify(self, key: bytes, uid: str, name: str) -> None:
        """One object for each uid, and one life."""
        replaced = self._uid_of.get(key)
        if replaced is not None and replaced != uid:
            self._gone(replaced)
        if replaced != uid:
            if uid in self.pods:
                other = self.pods[uid].metadata
                words = f"revision {self.revision}: uid {uid} is pod {name} and pod {other.namespace}/{other.name}"
                self.findings.add("doubled", words)
            if uid in self.deleted:
                self.findings.add("undeleted", f"revision {self.revision}: pod {name}, uid {uid}, was deleted and is there again")
        self._uid_of[key] = uid

    def _check_deletion(self, pod: Pod, before: Pod | None, name: str) -> None:
        was_ending = before is not None and before.metadata.HasField("deletion_timestamp")
        if was_ending and not pod.metadata.HasField("deletion_timestamp"):
            self.findings.add("undeleted", f"revision {self.revision}: pod {name} is no longer being deleted")

    def _written_by_leader(self, key: bytes, write: LeaderWrite, name: str) -> bool:
        """Whether the change is a leader's write. Objects keep the leader's last one under later writes of others."""
        if not write.attempt or write.attempt == self._attempts.get(key):
            return False
        self._attempts[key] = write.attempt
        self._committed.add(write.attempt)
        self.leader_writes[write.op] += 1
        if write.epoch != self.epoch:
            words = f"revision {self.revision}: {write.op} of {name} under epoch {write.epoch}, in force is {self.epoch}"
            self.findings.add("stale", words)
        if write.decided_at_revision and write.decided_at_revision < write.epoch:
            words = (
                f"revision {self.revision}: {write.op} of {name} under {write.epoch} was decided at {write.decided_at_revision}"
            )
            self.findings.add("decided_early", words)
        return True

    def _gone(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None and not pod.spec.node_name:
            self._room.gone(self.revision, pod)
        self.groups.pod_changed(uid, None, self.revision)
        self._since.pop(uid, None)
        self.deleted.add(uid)
        self._capacity.leave(uid)
        self._past.change(self.revision, "residents", uid, None)
        self._past.change(self.revision, "nominated", uid, None)

    def _tell(self, revision: int, kind: str, name: str) -> None:
        if self._on_pod_change is not None:
            self._on_pod_change(PodChange(revision, kind, name))

    def _read(self, change: KeyChange) -> Stored | None:
        try:
            return Stored.FromString(change.value or b"")
        except DecodeError:
            self.findings.add("unreadable", f"revision {self.revision}: the value of {change.key!r} is no stored object")
            return None
