"""A cluster in memory with a clock of its own: objects under revisions, agents that speak or not, and leaders that come and go.

Writes are judged as etcd would judge them: each by its own conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rayched.api.kinds import NODE, POD
from rayched.controllers.cluster_view import ClusterView
from rayched.controllers.heartbeat_ages import HeartbeatAges
from rayched.controllers.node_lifecycle import NodeLifecycle
from rayched.controllers.node_settings import NodeSettings
from rayched.controllers.node_writes import NodeWrites
from rayched.store.codec import decode_entry, encode
from rayched.store.entries import Change, Deleted, Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.store.revision_clock import RevisionClock
from rayched.store.transactions import GuardedDelete, Write
from rayched.v1.core_pb2 import Node, Pod, Toleration
from rayched.v1.workloads_pb2 import Object

KEYS = Keys("/memory")
_EPOCH_BEGAN = 1_700_000_000


class MemoryWorld:
    """Time moves by `pass_second` alone; the leader looks at the heartbeats every `period` seconds."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.now = 0
        self.revision = 0
        self.entries: dict[bytes, Entry] = {}
        self.heartbeats: dict[str, int] = {}
        self.last_spoke: dict[str, int] = {}
        self.leader_since = 0
        self._terms = 0
        self.change_leader()

    @property
    def wall(self) -> int:
        return _EPOCH_BEGAN + self.now

    # ---- objects

    def put(self, key: bytes, item: Object) -> None:
        self.revision += 1
        before = self.entries.get(key)
        created = before.create_revision if before is not None else self.revision
        entry = Entry(key, encode(item), created, self.revision)
        self.entries[key] = entry
        self._tell(entry)

    def remove(self, key: bytes) -> None:
        self.revision += 1
        if self.entries.pop(key, None) is not None:
            self._tell(Deleted(key, self.revision))

    def _tell(self, change: Change) -> None:
        self.view.deliver(Changed((change,), self.revision))

    def add_node(self, name: str, zone: str = "a", **labels: str) -> None:
        node = Node()
        node.metadata.name = name
        node.metadata.labels["topology.kubernetes.io/zone"] = zone
        for key, value in labels.items():
            node.metadata.labels[f"node.kubernetes.io/{key.replace('_', '-')}"] = value
        node.status.conditions.add(type="Ready", status="True")
        self.put(KEYS.object_key(NODE, "", name), Object(node=node))
        self.speak([name])

    def add_pod(self, name: str, node: str, tolerations: Sequence[Toleration] = (), grace: int = 0) -> None:
        pod = Pod()
        pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", name
        pod.metadata.creation_timestamp.seconds = self.wall
        pod.spec.node_name = node
        pod.spec.termination_grace_period_seconds = grace
        pod.spec.tolerations.extend(tolerations)
        pod.status.phase = "Running"
        pod.status.conditions.add(type="Ready", status="True")
        self.put(self.pod_key(name), Object(pod=pod))

    def end_pod(self, name: str, phase: str = "Succeeded", reason: str = "") -> None:
        pod = self.pod(name)
        assert pod is not None
        pod.status.phase, pod.status.reason = phase, reason
        self.put(self.pod_key(name), Object(pod=pod))

    def delete_pod(self, name: str, grace: int, ahead: int = 0) -> None:
        """By a replica whose clock is so far ahead of the leader's."""
        pod = self.pod(name)
        assert pod is not None
        pod.metadata.deletion_timestamp.seconds = self.wall + ahead + grace
        pod.metadata.deletion_grace_period_seconds = grace
        self.put(self.pod_key(name), Object(pod=pod))

    def pods(self) -> list[Pod]:
        prefix = KEYS.prefix(POD)
        return [decode_entry(entry).pod for key, entry in sorted(self.entries.items()) if key.startswith(prefix)]

    def pod_key(self, name: str) -> bytes:
        return KEYS.object_key(POD, "default", name)

    def node(self, name: str) -> Node:
        return decode_entry(self.entries[KEYS.object_key(NODE, "", name)]).node

    def pod(self, name: str) -> Pod | None:
        entry = self.entries.get(self.pod_key(name))
        return None if entry is None else decode_entry(entry).pod

    def taints(self, name: str) -> set[tuple[str, str]]:
        return {(taint.key.removeprefix("node.kubernetes.io/"), taint.effect) for taint in self.node(name).spec.taints}

    # ---- agents

    def speak(self, names: Iterable[str]) -> None:
        """A heartbeat, and the word that the node is ready where its object says otherwise."""
        for name in names:
            self.revision += 1
            self.heartbeats[name] = self.revision
            self.last_spoke[name] = self.now
            node = self.node(name)
            if node.status.conditions[0].status != "True":
                node.status.conditions[0].status = "True"
                self.put(KEYS.object_key(NODE, "", name), Object(node=node))

    # ---- the leader

    def change_leader(self, *, stood_by: bool = False) -> None:
        """The next one knows nothing but what is stored, and where it stood by, what it read of heartbeats."""
        self._terms += 1
        self.leader_since = self.now
        self.view = ClusterView(KEYS)
        self.view.deliver(ListedAll(tuple(sorted(self.entries.values(), key=lambda entry: entry.key)), self.revision))
        if not stood_by:
            self.ages, self.revisions = HeartbeatAges(2 * self.settings.node_monitor_period), RevisionClock()
            self._next_reading = self.now
        self.lifecycle = NodeLifecycle(self.settings, self.view, self.ages, self.revisions)
        self._writes = NodeWrites(KEYS, f"term-{self._terms}")

    def pass_second(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """`meanwhile` happens between the decisions and their writes."""
        self.now += 1
        if self.now >= self._next_reading:
            self._next_reading = self.now + int(self.settings.node_monitor_period)
            self.ages.observed(self.heartbeats, float(self.now))
            self.revisions.observed(self.revision, float(self.now))
            self.lifecycle.judge(float(self.now))
        edits = self.lifecycle.edits_of_nodes(float(self.now), float(self.wall))
        ends = self.lifecycle.ends_of_pods(float(self.now))
        meanwhile()
        for edit in edits:
            if not self._write(self._writes.of_node(edit, 1, self.view.revision)):
                self.lifecycle.not_done(edit.facts.key, edit.name)
        for end in ends:
            entry = self.entries.get(end.facts.key)
            if entry is None or not self._write(self._writes.of_pod(end, entry, {}, 1, self.view.revision, float(self.wall))):
                self.lifecycle.not_done(end.facts.key, end.facts.node_name)

    def _write(self, write: Write) -> bool:
        conditions = ((write.key, write.mod_revision), *write.also)
        if any(self._revision_of(key) != revision for key, revision in conditions):
            return False
        if isinstance(write, GuardedDelete):
            self.remove(write.key)
        else:
            self.revision += 1
            entry = Entry(write.key, write.value, self.entries[write.key].create_revision, self.revision)
            self.entries[write.key] = entry
            self._tell(entry)
        return True

    def _revision_of(self, key: bytes) -> int:
        name = KEYS.node_of_heartbeat(key)
        if name is not None:
            return self.heartbeats.get(name, 0)
        entry = self.entries.get(key)
        return 0 if entry is None else entry.mod_revision
