"""The cluster as the watch tells it: store events go in, the snapshot follows, and what changed comes out in order.

Rules:

* A list is reconciled as differences: what has another revision is a change, what is not in it is gone. So a relist looks to
  everybody else like the changes that were missed.
* `revision` is that of the newest list or change delivered; nothing else moves it. Because the epoch's key lies under the same
  prefix, a cache at an epoch's revision or later has seen all that was written under earlier epochs.
* A key whose new object comes under another uid is two changes: one pod went, another came.
* **One bad object parks itself.** What cannot be decoded, compiled or taken into the snapshot is noted in `poisoned` with its
  reason, until the key changes again. A pod on a node keeps its room meanwhile, a pending pod and a node leave: nothing can be
  promised about what cannot be read.

Owner: the SchedulerCore. Pods take up room through the Occupancy, nodes through the Snapshot.
Cost: about 3 µs for a new pod like one before, 11 where its parts are known, 20 for any other; 25 µs a node. `progress` is called
at least every PROGRESS_OBJECTS objects of a list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from rayched.api import kinds
from rayched.api.kinds import AnyObject, Kind
from rayched.api.node_difference import node_difference
from rayched.api.stages import BOUND, PENDING, Stage, stage_of
from rayched.core.cache.pod_decoder import PodsByBytes
from rayched.core.cache.pods_alike import KnownPod
from rayched.core.cache.records import (
    CacheChange,
    KeptPod,
    NodeChanged,
    ObjectChanged,
    PlanChanged,
    PodChanged,
    PodRecord,
    RecordedPlan,
    told_by,
)
from rayched.core.writes.pod_patches import OP_BIND, bound_behind
from rayched.scheduler.occupancy import Occupancy
from rayched.snapshot.pod_facts import PodFacts, facts_of
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.store.codec import PoisonedObject, decode_plan, decode_unversioned
from rayched.store.entries import Change, Deleted, Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import LeaderWrite, Suspect

PROGRESS_OBJECTS: Final = 512
"""Objects of a list between two signs of life: some milliseconds."""
UNREPORTED_MAX: Final = 100


_Expected = tuple[bytes, str, str]
"""The value of a binding, its node and its attempt: a plain tuple, as it is made for each of them."""


class Cache:
    """All objects under the watched prefix, as of `revision`."""

    def __init__(self, keys: Keys, snapshot: Snapshot, occupancy: Occupancy, progress: Callable[[], None]) -> None:
        self._keys = keys
        self._snapshot = snapshot
        self._occupancy = occupancy
        self._progress = progress
        self._templates = TemplateTable()
        self._by_bytes = PodsByBytes(self._templates, keys.prefix(kinds.POD))
        self.revision = 0
        self._revisions: dict[bytes, int] = {}
        """mod_revision of every key seen, poisoned ones and the epoch's included."""
        self._pods: dict[str, PodRecord] = {}
        self._uids: dict[bytes, str] = {}
        self._objects: dict[bytes, AnyObject] = {}
        """Objects of kinds other than Pod."""
        self._node_guards: dict[str, tuple[bytes, int]] = {}
        """Of nodes that are there, as `node_guard` gives it."""
        self._taken: dict[str, int] = {}
        """When a pod was last seen on a node that it had named itself, by node."""
        self._expected: dict[bytes, _Expected] = {}
        """Bindings that were sent: what the watch will show of most pods next."""
        self.plans: dict[str, RecordedPlan] = {}
        """Of pod groups that are being bound, by namespace/name."""
        self.suspects: dict[str, int] = {}
        """Schedulers that died in the pod's cycles, by uid."""
        self.poisoned: dict[bytes, str] = {}
        """Why a key's object is set aside."""
        self.unreported: deque[str] = deque(maxlen=UNREPORTED_MAX)
        """The same as news, newest last; the reporter takes it out."""

    # ------------------------------------------------------------------------------------------------------ looking up

    def pod(self, uid: str) -> PodRecord | None:
        return self._pods.get(uid)

    def find(self, namespace: str, name: str) -> PodRecord | None:
        """A pod by its name."""
        uid = self._uids.get(self._keys.object_key(kinds.POD, namespace, name))
        return None if uid is None else self._pods.get(uid)

    def uids(self) -> list[str]:
        """Of all pods."""
        return list(self._pods)

    def pending(self) -> list[PodRecord]:
        """Pods that wait for a node, in the order of their creation."""
        return sorted(
            (record for record in self._pods.values() if record.stage is PENDING),
            key=lambda record: (record.create_revision, record.key),
        )

    def node_guard(self, node_name: str) -> tuple[bytes, int]:
        """The node's key and its revision, which a binding to it relies on."""
        guard = self._node_guards.get(node_name)
        if guard is None:
            key = self._keys.object_key(kinds.NODE, "", node_name)
            guard = key, self._revisions.get(key, 0)
        return guard

    def is_taken_since(self, node_name: str, revision: int) -> bool:
        """A pod that this scheduler did not bind has come to the node after this revision."""
        return self._taken.get(node_name, 0) > revision

    def taken_guard(self, node_name: str) -> tuple[bytes, int]:
        """The key, and its revision, that changes with the next such pod."""
        key = self._keys.taken(node_name)
        return key, self._revisions.get(key, 0)

    def guards_of(self, node_names: Iterable[str], revision: int, most: int) -> tuple[tuple[bytes, int], ...]:
        """What a write relies on that decided about these nodes at the revision; with more than `most` keys, on all there are."""
        nodes = dict.fromkeys(node_names)
        guards = dict.fromkeys((*map(self.node_guard, nodes), *map(self.taken_guard, nodes)))
        if len(guards) <= most:
            return tuple(guards)
        return (self._keys.prefix(kinds.NODE), revision), (self._keys.taken_prefix, revision)

    def plan_key(self, group: str) -> bytes:
        """Of the plan of a group, by namespace/name."""
        return self._keys.group_plan(*group.split("/"))

    def object_of(self, kind: Kind, namespace: str, name: str) -> tuple[bytes, int, AnyObject] | None:
        """An object that is no pod, with its key and revision. Not to be changed."""
        key = self._keys.object_key(kind, namespace, name)
        found = self._objects.get(key)
        return None if found is None else (key, self._revisions[key], found)

    def revision_of(self, key: bytes) -> int:
        """The mod_revision of a key as the watch told it last; 0 where it is not there."""
        return self._revisions.get(key, 0)

    def expect(self, key: bytes, value: bytes, node_name: str, attempt: str) -> None:
        """This binding of a pending pod was sent. When the watch shows the very bytes, nothing is read out of them again."""
        self._expected[key] = value, node_name, attempt

    # -------------------------------------------------------------------------------------------------------- following

    def listed(self, listed: ListedAll) -> list[CacheChange]:
        """Everything there is: take over the differences."""
        changes: list[CacheChange] = []
        there = {entry.key for entry in listed.entries}
        for key in [key for key in self._revisions if key not in there]:
            changes.extend(self._gone(key))
        for count, entry in enumerate(listed.entries, 1):
            if self._revisions.get(entry.key) != entry.mod_revision:
                changes.extend(self._put(entry))
            if not count % PROGRESS_OBJECTS:
                self._progress()
        self.revision = listed.revision
        return changes

    def changed(self, changed: Changed) -> list[CacheChange]:
        """What happened, in order."""
        changes: list[CacheChange] = []
        expected, revisions = self._expected, self._revisions
        for count, change in enumerate(changed.changes, 1):
            # Most changes are one of these, and each of these is quick to tell.
            key = change.key
            quick = self._own_binding(change) if key in expected else None
            if quick is None:
                quick = self._bound_pod(change) if key in revisions else self._quick_pod(change)
            if quick is not None:
                changes.append(quick)
            else:
                changes.extend(self._apply(change))
            if not count % PROGRESS_OBJECTS:
                self._progress()
        self.revision = changed.revision
        return changes

    def _apply(self, change: Change) -> Iterator[CacheChange]:
        return self._gone(change.key) if isinstance(change, Deleted) else self._put(change)

    # ---------------------------------------------------------------------------------------------------------- one key

    def _put(self, entry: Entry) -> Iterator[CacheChange]:
        self._revisions[entry.key] = entry.mod_revision
        self._expected.pop(entry.key, None)
        name = self._keys.parse(entry.key)
        if name is None:
            # The epoch; or a kind that a later version stores and this one does not read.
            if (group := self._keys.group_of_plan(entry.key)) is not None:
                yield self._put_plan(group, entry)
            suspect = self._keys.uid_of_suspect(entry.key)
            if suspect is not None:
                self.suspects[suspect] = _deaths(entry.value)
            return
        self.poisoned.pop(entry.key, None)
        try:
            stored = decode_unversioned(entry.value, entry.mod_revision, entry.key)
            message = kinds.unwrap(stored.object)
            if kinds.of_message(message).name != name.kind:
                raise ValueError(f"the object under the key is no {name.kind}")
            if isinstance(message, Pod):
                yield from self._put_pod(entry, message, stored.leader_write)
                return
            message.metadata.resource_version = str(entry.mod_revision)
            if isinstance(message, Node):
                yield self._put_node(entry.key, message)
            else:
                self._snapshot.set_object(name.kind, name.namespace, name.name, message)
                old, self._objects[entry.key] = self._objects.get(entry.key), message
                yield ObjectChanged(name.kind, old, message)
        except (PoisonedObject, ValueError, ArithmeticError, LookupError, TypeError) as problem:
            self.poisoned[entry.key] = str(problem)
            self.unreported.append(f"{name} at revision {entry.mod_revision} is set aside: {problem}")
            yield from self._set_aside(entry.key)

    def _own_binding(self, entry: Change) -> PodChanged | None:
        """The change, where it is a binding that was sent.

        It was built on the record as it is, and the store let it pass only because that was the pod's last state.
        """
        expected = self._expected.get(entry.key)
        if expected is None or not isinstance(entry, Entry):
            return None
        value, node_name, attempt = expected
        return self._bound(entry, self._pods[self._uids[entry.key]], node_name, attempt) if value == entry.value else None

    def _bound_pod(self, entry: Change) -> PodChanged | None:
        """The change, where it is a binding by somebody else that was put behind the pod as it is known."""
        uid = self._uids.get(entry.key)
        old = None if uid is None else self._pods[uid]
        if old is None or old.kept is None or old.kept.has_started or not isinstance(entry, Entry):
            return None
        if entry.create_revision != old.create_revision:
            return None
        found = bound_behind(old.value, entry.value)
        return None if found is None else self._bound(entry, old, *found)

    def _bound(self, entry: Entry, old: PodRecord, node_name: str, attempt: str) -> PodChanged:
        """A pending pod got its node, and else nothing of it has changed."""
        key, value, _, mod_revision = entry
        self._expected.pop(key, None)
        self._revisions[key] = mod_revision
        uid, name, _, _, created, _, _, template, _, _, _, _ = old
        new = PodRecord(uid, name, old.key, mod_revision, created, BOUND, node_name, template, attempt, None, value)
        self._pods[uid] = new
        if not self._occupancy.confirm(uid, template, node_name):
            self._occupancy.observe(uid, template, node_name, facts=PodFacts(name))
        return PodChanged(old, new)

    def _quick_pod(self, entry: Change) -> PodChanged | None:
        """The change, where it is a new pending pod of which nothing but its bytes has to be read."""
        if entry.key in self._revisions or not isinstance(entry, Entry):
            return None
        key, value, created, mod_revision = entry
        found = self._by_bytes.find(key, value)
        if found is None:
            return None
        (template, namespace, _, nominated, has_started, is_bare), name, uid = found
        if uid in self._pods:
            return None
        self._revisions[key] = mod_revision
        self._uids[key] = uid
        kept = KeptPod(value, mod_revision, nominated, has_started, is_bare)
        full_name = f"{namespace}/{name}"
        new = PodRecord(uid, full_name, key, mod_revision, created, PENDING, "", template, "", kept, value)
        self._pods[uid] = new
        return PodChanged(None, new)

    def _gone(self, key: bytes) -> Iterator[CacheChange]:
        self._revisions.pop(key, None)
        self._expected.pop(key, None)
        self.poisoned.pop(key, None)
        uid = self._uids.pop(key, None)
        if uid is not None:
            old = self._pods.pop(uid)
            self._occupancy.remove(uid)
            yield PodChanged(old, None)
        elif key in self._objects:
            yield from self._object_gone(key)
        elif (suspect := self._keys.uid_of_suspect(key)) is not None:
            self.suspects.pop(suspect, None)
        elif (group := self._keys.group_of_plan(key)) is not None and group in self.plans:
            del self.plans[group]
            yield PlanChanged(group, None)

    def _set_aside(self, key: bytes) -> Iterator[CacheChange]:
        """What was known under the key cannot be relied on any more; a pod on a node goes on taking up its room."""
        uid = self._uids.get(key)
        if uid is None:
            if key in self._objects:
                yield from self._object_gone(key)
        elif self._pods[uid].stage is not BOUND:
            del self._uids[key]
            old = self._pods.pop(uid)
            self._occupancy.remove(uid)
            yield PodChanged(old, None)

    def _object_gone(self, key: bytes) -> Iterator[CacheChange]:
        gone = self._objects.pop(key)
        if isinstance(gone, Node):
            self._node_guards.pop(gone.metadata.name, None)
            self._taken.pop(gone.metadata.name, None)
            self._snapshot.remove_node(gone.metadata.name)
            yield NodeChanged(gone, None)
        else:
            kind, metadata = kinds.of_message(gone).name, gone.metadata
            self._snapshot.set_object(kind, metadata.namespace, metadata.name, None)
            yield ObjectChanged(kind, gone, None)

    def _put_plan(self, group: str, entry: Entry) -> PlanChanged:
        self.poisoned.pop(entry.key, None)
        try:
            stored = decode_plan(entry.value, entry.mod_revision, entry.key)
            plan = RecordedPlan(entry.mod_revision, stored.group_plan, stored.leader_write.decided_at_revision)
        except PoisonedObject as problem:
            self.poisoned[entry.key] = str(problem)
            self.unreported.append(f"the plan of pod group {group} at revision {entry.mod_revision} is set aside: {problem}")
            plan = RecordedPlan(entry.mod_revision, None)
        self.plans[group] = plan
        return PlanChanged(group, plan)

    def _put_node(self, key: bytes, node: Node) -> NodeChanged:
        old = self._objects.get(key)
        if isinstance(old, Node):
            difference = node_difference(old, node)
            self._snapshot.update_node(node, difference)
            change = NodeChanged(old, node, difference)
        else:
            self._snapshot.add_node(node)
            change = NodeChanged(None, node)
        self._node_guards[node.metadata.name] = key, self._revisions[key]
        self._objects[key] = node
        return change

    def _put_pod(self, entry: Entry, pod: Pod, last_write: LeaderWrite) -> Iterator[CacheChange]:
        """The pod becomes its template's."""
        key, value, created, mod_revision = entry
        metadata = pod.metadata
        uid, namespace, name = metadata.uid, metadata.namespace, metadata.name
        other = self._pods.get(uid)
        if not uid or (other is not None and other.key != key):
            raise ValueError("the pod has no uid" if not uid else f"the pod has the uid of pod {other and other.name}")
        stage, node_name, kept, facts, terminating = stage_of(pod), pod.spec.node_name, None, None, False
        if stage is PENDING:
            kept = KeptPod(value, mod_revision, *told_by(pod.status))
        elif stage is BOUND:
            facts, terminating = facts_of(pod), metadata.HasField("deletion_timestamp")
            if other is None and node_name in self._node_guards:
                self._taken[node_name] = mod_revision
        templates = self._templates
        n_templates = templates.n_seen
        template = templates.intern_given(pod)
        op = last_write.op
        bound_by = last_write.attempt if op == OP_BIND else ""
        if stage is Stage.OVER and not template.pod_group:
            # How a member of a group has ended counts.
            value = b""
        pod_name = f"{namespace}/{name}"
        new = PodRecord(uid, pod_name, key, mod_revision, created, stage, node_name, template, bound_by, kept, value, terminating)
        old_uid = self._uids.get(key)
        if old_uid is not None and old_uid != uid:
            yield from self._gone(key)
            self._revisions[key] = mod_revision
        old = self._pods.get(uid)
        self._pods[uid], self._uids[key] = new, uid
        if kept is not None and old is None and templates.n_seen == n_templates and not op:
            prefix = key[: -len(name.encode())]
            known = KnownPod(template, namespace, prefix, kept.nominated, kept.has_started, kept.is_bare)
            self._by_bytes.learn(value, known)
        if facts is not None:
            self._occupancy.observe(uid, template, node_name, terminating=terminating, facts=facts)
        elif stage is Stage.OVER or (old is not None and old.stage is BOUND):
            self._occupancy.remove(uid)
        yield PodChanged(old, new)


def _deaths(value: bytes) -> int:
    """As a Suspect tells; what cannot be read is one."""
    try:
        return max(1, Suspect.FromString(value).deaths)
    except DecodeError:
        return 1
