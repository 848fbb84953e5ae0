"""Pod groups and their members over a model store, and what an observer from outside sees of them."""

from __future__ import annotations

from rayched.api import kinds
from rayched.audit.auditor import Auditor, KeyChange
from rayched.core.groups.group_writes import condition_of
from rayched.store.codec import encode
from rayched.store.entries import Change, Entry
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import PodGroup
from tests.core.builders import a_pod
from tests.core.leading import key_of, put_pod
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Replica

MINUTES = 60.0


def later(replica: Replica, seconds: float) -> None:
    """Time passes, and what is due then happens."""
    replica.clock.now += seconds
    replica.settle()


def a_group(
    name: str = "train",
    least: int | None = 3,
    *,
    priority: int = 0,
    uid: str = "",
    namespace: str = "default",
    topology: str = "",
    whole: bool = False,
    policy: str = "PreemptLowerPriority",
) -> PodGroup:
    """A gang; without a minimum a basic group."""
    group = PodGroup(api_version="scheduling.k8s.io/v1beta1", kind="PodGroup")
    group.metadata.namespace, group.metadata.name = namespace, name
    group.metadata.uid = uid or f"uid-of-group-{namespace}-{name}"
    group.spec.priority = priority
    group.spec.preemption_policy = policy
    if whole:
        group.spec.disruption_mode.all.SetInParent()
    else:
        group.spec.disruption_mode.single.SetInParent()
    if least is None:
        group.spec.scheduling_policy.basic.SetInParent()
    else:
        group.spec.scheduling_policy.gang.min_count = least
    if topology:
        group.spec.scheduling_constraints.topology.add(key=topology)
    return group


def group_key(name: str = "train", namespace: str = "default") -> bytes:
    return KEYS.object_key(kinds.POD_GROUP, namespace, name)


def put_group(store: ModelStore, group: PodGroup) -> int:
    """Creates the group, or changes what its spec says; its status is the leader's."""
    there = store.now.get(group_key(group.metadata.name, group.metadata.namespace))
    if there is not None:
        old = Stored.FromString(there.value).object.pod_group
        if old.metadata.uid == group.metadata.uid:
            group.status.CopyFrom(old.status)
    return store.put(group_key(group.metadata.name, group.metadata.namespace), encode(kinds.wrap(group)))


def a_member(name: str, group: str = "train", **options: object) -> Pod:
    policy = options.pop("policy", "")
    pod = a_pod(name, **options)  # type: ignore[arg-type]
    pod.spec.scheduling_group.pod_group_name = group
    if policy:
        pod.spec.preemption_policy = str(policy)
    return pod


def put_members(store: ModelStore, count: int, group: str = "train", first: int = 0, **options: object) -> None:
    for number in range(first, first + count):
        put_pod(store, a_member(f"{group}-{number}", group, **options))


def stored_group(store: ModelStore, name: str = "train", namespace: str = "default") -> PodGroup:
    return Stored.FromString(store.now[group_key(name, namespace)].value).object.pod_group


def scheduled(store: ModelStore, name: str = "train") -> tuple[str, str, str]:
    """Status, reason and message of the group's condition."""
    condition = condition_of(stored_group(store, name))
    return ("", "", "") if condition is None else (condition.status, condition.reason, condition.message)


def bound_of(replica: Replica, group: str = "train") -> list[str]:
    """Members of the group that have nodes, sorted."""
    return sorted(name for name in replica.bound() if name.startswith(f"{group}-"))


def change_pod(store: ModelStore, name: str, **status: str) -> None:
    """Somebody writes the pod's status, as an agent does."""
    entry = store.now[key_of(name)]
    stored = Stored.FromString(entry.value)
    for field, text in status.items():
        setattr(stored.object.pod.status, field, text)
    store.put(entry.key, stored.SerializeToString())


def audited(store: ModelStore) -> Auditor:
    """An auditor that has read the store's whole history."""
    auditor = Auditor("/t")
    for revision, changes in enumerate(store.history, 1):
        read = [KeyChange(change.key, _value(change)) for change in changes]
        auditor.replay(revision, read)
    auditor.settle()
    return auditor


def _value(change: Change) -> bytes | None:
    if not isinstance(change, Entry):
        return None
    # Replicas of these tests write no record into the epoch's key.
    return change.value if change.key != KEYS.epoch else b'{"holder": "a", "transitions": 0}'


def revisions_of_bindings(store: ModelStore) -> dict[str, int]:
    """In which revision each pod got its node."""
    return {binding.pod.partition("/")[2]: binding.revision for binding in audited(store).bindings}
