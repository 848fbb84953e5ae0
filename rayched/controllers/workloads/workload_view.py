"""ReplicaSets, jobs and their pods as the watch tells of them, and which of them have to be looked at. No I/O.

Fed with the deliveries of one watch over the cluster's prefix, so that a controller and its pods are seen as of one revision. A
pod belongs to the controller that its owner reference names, by kind, name and uid, in its own namespace: a uid alone is a text
that anybody can write. One without a controller may be adopted by whoever selects it (selector_index.py).

A ReplicaSet without a template makes no pods: it is there, and that is all. An object that cannot be read counts as not there.

Owner: the WorkloadReconciler, under its driver's lock. Cost: about 25 µs a change of a pod, most of it to decode it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rayched.api import kinds
from rayched.api.kinds import JOB, POD, POD_GROUP, PRIORITY_CLASS, REPLICA_SET, RUNTIME_CLASS, Kind
from rayched.api.selectors import LabelSelectorMatcher
from rayched.controllers.workloads.owned_pods import OwnedPod, PodSet, facts_of_pod
from rayched.controllers.workloads.selector_index import SelectorIndex
from rayched.store.codec import PoisonedObject, decode_entry
from rayched.store.entries import Change, Deleted, Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job, Object, PodGroup, PriorityClass, ReplicaSet, RuntimeClass

OWNERS: Final = {(kind.api_version, kind.name): kind for kind in (REPLICA_SET, JOB)}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class PodOwner:
    """A ReplicaSet or a job as it lies in the store; shared, not to be changed."""

    entry: Entry
    kind: Kind
    message: ReplicaSet | Job
    matcher: LabelSelectorMatcher

    def __str__(self) -> str:
        return f"{self.kind.name} {self.namespace}/{self.message.metadata.name}"

    @property
    def makes_pods(self) -> bool:
        return bool(self.message.spec.template.spec.containers)

    @property
    def identity(self) -> str:
        metadata = self.message.metadata
        return identity_of(self.kind.name, metadata.namespace, metadata.name, metadata.uid)

    @property
    def namespace(self) -> str:
        return self.message.metadata.namespace

    @property
    def condition(self) -> tuple[tuple[bytes, int], ...]:
        """Of a write: the workload is as it was seen."""
        return ((self.entry.key, self.entry.mod_revision),)


class SeenGroup(NamedTuple):
    """A PodGroup as it lies in the store."""

    entry: Entry
    owner: str
    """The job that controls it, by identity; "": none does."""
    min_count: int


def seen_group(entry: Entry, group: PodGroup) -> SeenGroup:
    metadata = group.metadata
    owner = next((one for one in metadata.owner_references if one.controller and one.kind == JOB.name), None)
    of = "" if owner is None else identity_of(JOB.name, metadata.namespace, owner.name, owner.uid)
    return SeenGroup(entry, of, group.spec.scheduling_policy.gang.min_count)


def pod_owner(entry: Entry, message: object) -> PodOwner | None:
    """None: it is no workload, or none that can be read."""
    if not isinstance(message, ReplicaSet | Job):
        return None
    try:
        kind = JOB if isinstance(message, Job) else REPLICA_SET
        return PodOwner(entry, kind, message, LabelSelectorMatcher(message.spec.selector))
    except ValueError as error:
        # No admission let this in; the others go on.
        log.warning("the workload under key %s makes no pods: %s", entry.key.decode(errors="backslashreplace"), error)
        return None


def depends_on_owner(pod: OwnedPod) -> bool:
    """Whether it goes, or changes, with the ReplicaSet or job that controls it.

    Only a reference as controllers write it makes a pod depend on its owner: some name one that has never been there. But nobody
    will ever count a pod whose job is gone.
    """
    owner = pod.owner
    if owner is None or (owner.api_version, owner.kind) not in OWNERS:
        return False
    return pod.tracked or (owner.block_owner_deletion and not pod.deleting)


def message_in(change: Change, decode: Callable[[Entry], Object]) -> kinds.AnyObject | None:
    """The object as it is after the change; None: it is gone, or cannot be read."""
    if isinstance(change, Deleted):
        return None
    try:
        return kinds.unwrap(decode(change))
    except PoisonedObject as error:
        log.warning("set aside: %s", error)
        return None


def identity_of(kind: str, namespace: str, name: str, uid: str) -> str:
    """One text for all that says which controller is meant."""
    return f"{kind}/{namespace}/{name}/{uid}"


@dataclass(slots=True, eq=False)
class AdmissionClasses:
    """The classes that templates may name; `version` changes with them."""

    priority: dict[str, PriorityClass] = field(default_factory=dict)
    runtime: dict[str, RuntimeClass] = field(default_factory=dict)
    version: int = 0


class WorkloadView:
    """As of `revision`. `changed` and `strays` collect until the owner takes them."""

    def __init__(self, keys: Keys, decode: Callable[[Entry], Object] = decode_entry) -> None:
        """`decode` may share what it gives."""
        self._keys = keys
        self._decode = decode
        self.revision = 0
        self.complete = False
        """The list has arrived."""
        self.workloads: dict[str, PodOwner] = {}
        """By identity; so is all else that is said to be by owner."""
        self.classes = AdmissionClasses()
        self.changed: dict[str, None] = {}
        """Workloads that have to be looked at, in the order in which they changed."""
        self.strays: dict[bytes, OwnedPod] = {}
        """Pods whose controller is not there."""
        self.groups: dict[bytes, SeenGroup] = {}
        """PodGroups, by key."""
        self._pods: dict[str, PodSet] = {}
        """By owner, which may not be there."""
        self._owner_of: dict[bytes, str] = {}
        """By key of a pod: its owner, "" without one."""
        self._owner_at: dict[bytes, str] = {}
        self._selectors = SelectorIndex()
        """Of workloads, and of pods without a controller."""
        self.adoptable: defaultdict[str, dict[bytes, OwnedPod]] = defaultdict(dict)
        """By owner: pods without a controller that it selects."""
        self.released: defaultdict[str, dict[bytes, OwnedPod]] = defaultdict(dict)
        """By owner: pods of it that it does not select any more."""

    def pods_of(self, owner: str) -> PodSet:
        return self._pods.get(owner) or PodSet()

    def revision_at(self, key: bytes) -> int:
        """Of the workload under a key; 0: there is none."""
        owner = self._owner_at.get(key)
        return 0 if owner is None else self.workloads[owner].entry.mod_revision

    @property
    def is_idle(self) -> bool:
        """There is nothing to control, and nothing left of what there was."""
        is_left = self.strays or self.stray_groups()
        return not is_left and not any(workload.makes_pods for workload in self.workloads.values())

    # -------------------------------------------------------------------------------------------------------- following

    def deliver(self, delivery: Delivery) -> bool:
        """Whether there may be something to do."""
        match delivery:
            case ListedAll(entries, revision):
                self._forget_all()
                for entry in entries:
                    self._apply(entry)
                self.revision, self.complete = revision, True
            case Changed(changes, revision):
                for change in changes:
                    self._apply(change)
                self.revision = revision
            case _:
                return False
        return True

    def _forget_all(self) -> None:
        for known in (self.workloads, self.changed, self.strays, self.groups, self._pods, self._owner_of, self._owner_at):
            known.clear()
        for table in (self._selectors, self.adoptable, self.released):
            table.clear()
        self.classes = AdmissionClasses(version=self.classes.version + 1)

    def _apply(self, change: Change) -> None:
        name = self._keys.parse(change.key)
        if name is None:
            return
        if name.kind == POD.name:
            self._pod_changed(name.namespace, change)
        elif name.kind == REPLICA_SET.name or name.kind == JOB.name:
            self._workload_changed(change)
        elif name.kind == POD_GROUP.name:
            self._group_changed(name.namespace, name.name, change)
        elif name.kind == PRIORITY_CLASS.name or name.kind == RUNTIME_CLASS.name:
            self._class_changed(name.name, name.kind == PRIORITY_CLASS.name, change)

    # ------------------------------------------------------------------------------------------------------------- pods

    def _pod_changed(self, namespace: str, change: Change) -> None:
        self._pod_gone(namespace, change.key)
        if isinstance(change, Deleted):
            return
        message = message_in(change, self._decode)
        if not isinstance(message, Pod):
            return
        pod = facts_of_pod(change, message)
        if pod.owner is None:
            self._owner_of[pod.key] = ""
            self._selectors.put_pod(namespace, pod)
            for owner in self._selectors.selecting(namespace, pod):
                self._may_adopt(owner, pod)
        elif (pod.owner.api_version, pod.owner.kind) in OWNERS:
            link = pod.owner
            self._owned(pod, identity_of(link.kind, namespace, link.name, link.uid))

    def _owned(self, pod: OwnedPod, owner: str) -> None:
        self._owner_of[pod.key] = owner
        pods = self._pods.get(owner)
        if pods is None:
            pods = self._pods[owner] = PodSet()
        pods.put(pod)
        workload = self.workloads.get(owner)
        if workload is None:
            self._stray(pod)
            return
        self.changed[owner] = None
        self._may_release(workload, pod)

    def _may_release(self, workload: PodOwner, pod: OwnedPod) -> None:
        if workload.makes_pods and not pod.deleting and not workload.matcher.matches(pod.labels):
            self.released[workload.identity][pod.key] = pod

    def _stray(self, pod: OwnedPod) -> None:
        if depends_on_owner(pod):
            self.strays[pod.key] = pod

    def _pod_gone(self, namespace: str, key: bytes) -> None:
        owner = self._owner_of.pop(key, None)
        if owner is None:
            return
        if not owner:
            pod = self._selectors.take_pod(key)
            for selecting in self._selectors.selecting(namespace, pod):
                self.adoptable[selecting].pop(key, None)
            return
        pods = self._pods[owner]
        pods.remove(key)
        if not pods.every:
            del self._pods[owner]
        self.strays.pop(key, None)
        if owner in self.workloads:
            self.released[owner].pop(key, None)
            self.changed[owner] = None

    def _may_adopt(self, owner: str, pod: OwnedPod) -> None:
        workload = self.workloads[owner]
        if workload.makes_pods and not pod.deleting and (not pod.ended or workload.kind is JOB):
            self.adoptable[owner][pod.key] = pod
            self.changed[owner] = None

    # ----------------------------------------------------------------------------------------------------------- groups

    def stray_groups(self) -> list[tuple[SeenGroup, bytes]]:
        """Those whose job is gone, each with its key."""
        found = []
        for group in self.groups.values():
            if group.owner and group.owner not in self.workloads:
                _, namespace, name, _ = group.owner.split("/", 3)
                found.append((group, self._keys.object_key(JOB, namespace, name)))
        return found

    def _group_changed(self, namespace: str, name: str, change: Change) -> None:
        before = self.groups.pop(change.key, None)
        message = message_in(change, self._decode)
        if isinstance(change, Entry) and isinstance(message, PodGroup):
            self.groups[change.key] = seen_group(change, message)
        # A job of that name may have waited for it to go.
        of_name = self._owner_at.get(self._keys.object_key(JOB, namespace, name), "")
        for group in filter(None, (before, self.groups.get(change.key))):
            self.changed.update(dict.fromkeys({group.owner, of_name} & self.workloads.keys()))

    # -------------------------------------------------------------------------------------------------------- workloads

    def _workload_changed(self, change: Change) -> None:
        workload = self._workload(change)
        old_owner = self._owner_at.get(change.key)
        known = None if old_owner is None else self.workloads[old_owner]
        if known and workload and (known.identity, known.makes_pods) == (workload.identity, workload.makes_pods):
            # Selectors do not change, so neither does who is selected.
            self.workloads[known.identity] = workload
            self.changed[known.identity] = None
            return
        if old_owner is not None:
            self._workload_gone(change.key, old_owner)
        if workload is not None:
            self._workload_came(workload)

    def _workload_came(self, workload: PodOwner) -> None:
        owner, labels = workload.identity, workload.message.spec.selector.match_labels
        self.workloads[owner] = workload
        self._owner_at[workload.entry.key] = owner
        self.changed[owner] = None
        for pod in self._selectors.add(owner, workload.namespace, labels, workload.matcher):
            self._may_adopt(owner, pod)
        for key, pod in self.pods_of(owner).every.items():
            self.strays.pop(key, None)
            self._may_release(workload, pod)

    def _workload_gone(self, key: bytes, owner: str) -> None:
        del self.workloads[owner]
        del self._owner_at[key]
        self._selectors.remove(owner)
        for table in (self.adoptable, self.released):
            table.pop(owner, None)
        # Whoever keeps something about it forgets it.
        self.changed[owner] = None
        for pod in self.pods_of(owner).every.values():
            self._stray(pod)

    def _workload(self, change: Change) -> PodOwner | None:
        return None if isinstance(change, Deleted) else pod_owner(change, message_in(change, self._decode))

    def _class_changed(self, name: str, is_priority: bool, change: Change) -> None:
        message = message_in(change, self._decode)
        classes = self.classes
        table: dict[str, PriorityClass] | dict[str, RuntimeClass] = classes.priority if is_priority else classes.runtime
        if message is None:
            table.pop(name, None)
        else:
            table[name] = message  # type: ignore[assignment]
        classes.version += 1
