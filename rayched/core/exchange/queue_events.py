"""What the queue is told of a change in the cache.

A pod without a node is told when it comes, goes, or changes in something that the queue goes by: its template or its nomination.
All else is told only where a plugin of some profile registered for the event, because nothing happens to an event of no interest.
The default plugins registered for most of them, for bound pods too: required affinity and spreading wait for those.

Two things free room, or seem to, without any pod leaving a node; both are told as the departure of a pod:

* A pod that was nominated to a node goes, or gives its nomination up. Pods of its priority and lower ones reckoned with it.
* An attempt that held room on its node is undone. Everybody reckoned with it; the pod itself has its own outcome.

Pods whose scheduler name no profile has are not the queue's business; where they are bound, they are events like all others.

Pure; state is only the table of registrations.
Source: eventhandlers.go and the binding cycle's error handling of kube-scheduler 1.34. Different here: a pod that is bound to the
very node it was nominated to frees nothing, and is no departure.
Cost: less than 1 µs for each binding, here and in the queue together, while nobody waits for one; 11 µs for each pod that goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, assert_never

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.api.stages import BOUND, PENDING
from rayched.core.cache.records import CacheChange, NodeChanged, ObjectChanged, PlanChanged, PodChanged, PodRecord, nominated_in
from rayched.core.exchange.messages import AssignedPod, ClusterChange, LogEntry, PendingPodGone, PendingPodSeen, SentObject
from rayched.framework.cluster_event import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.queue.changes import node_change_events, pod_change_events
from rayched.queue.hints import HintTable
from rayched.snapshot.templates import PodTemplate

_RESOURCES: Final = {
    kinds.NAMESPACE.name: Resource.NAMESPACE,
    kinds.SERVICE.name: Resource.SERVICE,
    kinds.POD_DISRUPTION_BUDGET.name: Resource.POD_DISRUPTION_BUDGET,
}

Told = tuple[LogEntry, Collection[PodTemplate]]
"""An entry and the templates that it names."""


class QueueFeed:
    """Turns changes of the cache into entries of the log."""

    def __init__(self, hints: HintTable, knows: Callable[[str], bool]) -> None:
        """`knows`: whether a profile has this scheduler name."""
        self._hints = hints
        self._knows = knows
        self.tells_of_bindings = hints.is_of_interest(ASSIGNED_POD_ADD)
        """Whether a binding is an event for anybody."""

    def is_queued(self, record: PodRecord | None) -> bool:
        """Whether the queue has to know this pod. Members of a group are in no queue: their group is."""
        if record is None or record.stage is not PENDING or record.template.pod_group:
            return False
        return self._knows(record.template.scheduler_name)

    @staticmethod
    def is_plain_binding(change: PodChanged) -> bool:
        """A pending pod got its node: all that there is to tell, where the queue does not know the pod any more."""
        old, new = change
        if old is None or new is None or old.stage is not PENDING or new.stage is not BOUND:
            return False
        return nominated_in(old) in ("", new.node_name)

    def told(self, change: CacheChange, now: float) -> Iterable[Told]:
        """The entries for one change, in order."""
        if isinstance(change, PodChanged):
            old, new = change.old, change.new
            if old is None and new is not None and new.stage is PENDING:
                # Most changes are this one and the next.
                return (self.pending_pod(new, now),) if self.is_queued(new) else ()
            return [*self._pending(old, new, now), *self._assigned(old, new), *self._nomination(old, new)]
        if isinstance(change, NodeChanged):
            return self._node(change)
        if isinstance(change, ObjectChanged):
            return self._object(change.kind, change.old, change.new)
        if isinstance(change, PlanChanged):
            return ()
        assert_never(change)

    def pending_pod(self, record: PodRecord, now: float, *, is_new: bool = True) -> Told:
        template = record.template
        entry = PendingPodSeen(record.uid, record.name, template.id, template.priority, now, nominated_in(record), is_new)
        return entry, (template,)

    def _pending(self, old: PodRecord | None, new: PodRecord | None, now: float) -> Iterator[Told]:
        was, is_now = self.is_queued(old), self.is_queued(new)
        if was and old is not None and not is_now:
            yield PendingPodGone(old.uid, old.name), ()
        elif is_now and new is not None and (not was or old is None or _differs(old, new)):
            yield self.pending_pod(new, now, is_new=not was)

    def _assigned(self, old: PodRecord | None, new: PodRecord | None) -> Iterator[Told]:
        before = old if old is not None and old.stage is BOUND else None
        after = new if new is not None and new.stage is BOUND else None
        if before is None and after is not None:
            if self._hints.is_of_interest(ASSIGNED_POD_ADD):
                yield ClusterChange(ASSIGNED_POD_ADD, None, _assigned_pod(after)), (after.template,)
            return
        if before is not None and after is None:
            events: tuple[ClusterEvent, ...] = (ASSIGNED_POD_DELETE,)
        elif before is not None and after is not None and before.template is not after.template:
            changes = pod_change_events(before.template.pod, after.template.pod)
            # Templates carry no node, so the change itself cannot tell that the pods have one.
            events = tuple(replace(event, resource=Resource.ASSIGNED_POD) for event in changes)
        else:
            return
        templates = tuple(record.template for record in (before, after) if record is not None)
        for event in filter(self._hints.is_of_interest, events):
            yield ClusterChange(event, _assigned_pod(before), _assigned_pod(after)), templates

    def undone(self, uid: str, template: PodTemplate, node_name: str) -> Iterator[Told]:
        """An attempt of this pod gave back the room that it held on the node."""
        if self._hints.is_of_interest(ASSIGNED_POD_DELETE):
            yield ClusterChange(ASSIGNED_POD_DELETE, AssignedPod(template.id, node_name), except_uid=uid), (template,)

    def _nomination(self, old: PodRecord | None, new: PodRecord | None) -> Iterator[Told]:
        node_name = nominated_in(old) if self.is_queued(old) else ""
        if old is None or not node_name or not self._hints.is_of_interest(ASSIGNED_POD_DELETE):
            return
        if new is not None and node_name in (nominated_in(new), new.node_name):
            return
        template = old.template
        went = AssignedPod(template.id, "", node_name)
        yield ClusterChange(ASSIGNED_POD_DELETE, went, priority_max=template.priority), (template,)

    def _node(self, change: NodeChanged) -> Iterator[Told]:
        old, new, difference = change
        if new is None:
            events: tuple[ClusterEvent, ...] = (NODE_DELETE,)
        else:
            events = (NODE_ADD,) if old is None else node_change_events(difference)
        wanted = [event for event in events if self._hints.is_of_interest(event)]
        if wanted:
            before, after = _sent(kinds.NODE.name, old), _sent(kinds.NODE.name, new)
            yield from ((ClusterChange(event, before, after), ()) for event in wanted)

    def _object(self, kind: str, old: AnyObject | None, new: AnyObject | None) -> Iterator[Told]:
        resource = _RESOURCES.get(kind)
        if resource is None:
            return
        action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
        event = ClusterEvent(resource, action)
        if self._hints.is_of_interest(event):
            yield ClusterChange(event, _sent(kind, old), _sent(kind, new)), ()


def _differs(old: PodRecord, new: PodRecord) -> bool:
    if old.template is not new.template or old.kept is None or new.kept is None:
        return True
    return nominated_in(old) != nominated_in(new)


def _assigned_pod(record: PodRecord | None) -> AssignedPod | None:
    return None if record is None else AssignedPod(record.template.id, record.node_name)


def _sent(kind: str, message: AnyObject | None) -> SentObject | None:
    return None if message is None else SentObject(kind, message.SerializeToString())
