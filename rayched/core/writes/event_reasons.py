"""What the scheduler and the leader's controllers tell people in Events.

Source: `Scheduled`, `FailedScheduling`, `Preempted` of kube-scheduler 1.34; those of nodes and of evictions by taints as the node
lifecycle and taint eviction controllers of 1.34 write them, or the kubelet; of who leads as client-go does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rayched.api.occurrences import NORMAL, WARNING, EventOccurrence, Subject
from rayched.api.readiness import NODE_NOT_READY, is_cut_off
from rayched.api.stages import Stage
from rayched.core.cache.records import CacheChange, NodeChanged, PodChanged, PodRecord
from rayched.scheduler.shadow import ShadowDecision
from rayched.snapshot.snapshot import Snapshot
from rayched.store.codec import decode_stored
from rayched.v1.core_pb2 import Node, Pod

REASON_SCHEDULED: Final = "Scheduled"
REASON_FAILED: Final = "FailedScheduling"
REASON_PREEMPTED: Final = "Preempted"
REASON_SHADOW: Final = "ShadowDecision"
REASON_ELECTED: Final = "LeaderElection"
REASON_REVOKED: Final = "LeaderRevoked"
REASON_EVICTED: Final = "TaintManagerEviction"
NODE_CONTROLLER: Final = "node-controller"
GROUPS: Final = "pod-groups"
TAINT_CONTROLLER: Final = "taint-eviction-controller"
LEASE_NAMESPACE, LEASE_NAME = "kube-system", "kube-scheduler"
_CUT_OFF_BYTES: Final = NODE_NOT_READY.encode()


def pod_subject(uid: str, full_name: str) -> Subject:
    """A pod by uid and namespace/name."""
    namespace, _, name = full_name.partition("/")
    return Subject("Pod", namespace, name, uid)


class Scheduled(NamedTuple):
    """A pod got its node; put into words when it is written, as in a burst few are."""

    uid: str
    name: str
    """namespace/name."""
    node_name: str
    component: str

    @property
    def occurrence(self) -> EventOccurrence:
        message = f"Successfully assigned {self.name} to {self.node_name}"
        return EventOccurrence(pod_subject(self.uid, self.name), NORMAL, REASON_SCHEDULED, message, self.component)


def failed_scheduling(record: PodRecord, message: str) -> EventOccurrence:
    return EventOccurrence(pod_subject(record.uid, record.name), WARNING, REASON_FAILED, message, record.template.scheduler_name)


def group_failed(group: Subject, scheduler_name: str, message: str) -> EventOccurrence:
    return EventOccurrence(group, WARNING, REASON_FAILED, message, scheduler_name)


def group_incomplete(group: Subject, message: str) -> EventOccurrence:
    """A gang that was bound has fewer members than it needs."""
    return EventOccurrence(group, WARNING, "GroupIncomplete", message, GROUPS)


def group_released(group: Subject, message: str) -> EventOccurrence:
    """The members that it has left end."""
    return EventOccurrence(group, WARNING, "GroupReleased", message, GROUPS)


def preempted(victim: PodRecord, node_name: str, by_uid: str, component: str) -> EventOccurrence:
    message = f"Preempted by pod {by_uid} on node {node_name}"
    return EventOccurrence(pod_subject(victim.uid, victim.name), NORMAL, REASON_PREEMPTED, message, component)


def preempted_by_group(victim: PodRecord, group: str) -> EventOccurrence:
    """`group`: namespace/name of the pod group that takes the room."""
    message, component = f"Preempted by pod group {group} on node {victim.node_name}", victim.template.scheduler_name
    return EventOccurrence(pod_subject(victim.uid, victim.name), NORMAL, REASON_PREEMPTED, message, component)


def shadow_decision(decision: ShadowDecision) -> EventOccurrence:
    """A shadow plugin would have decided otherwise, or failed: nothing to do about it now, so never a warning."""
    subject = pod_subject(decision.uid, decision.pod)
    return EventOccurrence(subject, NORMAL, REASON_SHADOW, decision.message(), decision.scheduler_name)


def became_leader(identity: str) -> EventOccurrence:
    """About Kubernetes' own lock of the scheduler; what one replica has won is counted together."""
    subject = Subject("Lease", LEASE_NAMESPACE, LEASE_NAME, "", "coordination.k8s.io/v1")
    return EventOccurrence(subject, NORMAL, REASON_ELECTED, f"{identity} became leader", identity)


def term_revoked(words: str, identity: str) -> EventOccurrence:
    """A leader's term was ended before its lease: by whom and why, as its successor tells."""
    subject = Subject("Lease", LEASE_NAMESPACE, LEASE_NAME, "", "coordination.k8s.io/v1")
    return EventOccurrence(subject, WARNING, REASON_REVOKED, words, identity)


def of_change(change: CacheChange, snapshot: Snapshot) -> Iterable[EventOccurrence]:
    """What is worth telling of a change that the snapshot has taken in: of nodes, and of pods that suffer for theirs."""
    if isinstance(change, PodChanged):
        # Pods change all the time, and bindings are told of elsewhere.
        is_on_node = change.old is not None and change.old.stage is Stage.BOUND
        return _of_pod(change, snapshot) if is_on_node else ()
    return _of_node(change) if isinstance(change, NodeChanged) else ()


def _of_pod(change: PodChanged, snapshot: Snapshot) -> Iterator[EventOccurrence]:
    """A pod on a node changed: does a taint of the node end it since then, or is it not ready because the node is not?"""
    old, new = change.old, change.new
    if old is None or new is None:
        return
    bound = snapshot.bound(new.uid)
    if bound is not None and bound.facts.evicted and not _pod_of(old).metadata.HasField("deletion_timestamp"):
        message = f"Marking for deletion Pod {new.name}"
        yield EventOccurrence(pod_subject(new.uid, new.name), NORMAL, REASON_EVICTED, message, TAINT_CONTROLLER)
    # Looked for in the bytes first, for reading the two pods of every change would cost more than all else here.
    if _CUT_OFF_BYTES in new.value and is_cut_off(_pod_of(new)) and not is_cut_off(_pod_of(old)):
        yield EventOccurrence(pod_subject(new.uid, new.name), WARNING, NODE_NOT_READY, "Node is not ready", NODE_CONTROLLER)


def _pod_of(record: PodRecord) -> Pod:
    return decode_stored(record.value, record.mod_revision, record.key).object.pod


def _of_node(change: NodeChanged) -> Iterable[EventOccurrence]:
    difference = change.difference
    is_told = difference.conditions or difference.cordoned or difference.uncordoned
    return _told_of_node(change.old, change.new) if change.old is None or change.new is None or is_told else ()


def _told_of_node(old: Node | None, new: Node | None) -> Iterator[EventOccurrence]:
    node = new or old
    if node is None:
        return
    name = node.metadata.name

    def told(reason: str, message: str) -> EventOccurrence:
        return EventOccurrence(Subject("Node", "", name, node.metadata.uid), NORMAL, reason, message, NODE_CONTROLLER)

    if old is None:
        yield told("RegisteredNode", f"Node {name} event: Registered Node {name} in Controller")
    elif new is None:
        yield told("RemovingNode", f"Node {name} event: Removing Node {name} from Controller")
    else:
        was, now = _is_ready(old), _is_ready(new)
        if was != now:
            reason = "NodeReady" if now else NODE_NOT_READY
            yield told(reason, f"Node {name} status is now: {reason}")
        if old.spec.unschedulable != new.spec.unschedulable:
            reason = "NodeNotSchedulable" if new.spec.unschedulable else "NodeSchedulable"
            yield told(reason, f"Node {name} status is now: {reason}")


def _is_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
