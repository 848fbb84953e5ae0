"""The scheduling queue: every pod without a node, in exactly one place, until it can succeed.

                 add                           pop                          done
     (caller) ────────▶ active ──────────────────────────────▶ in flight ────────▶ (bound)
         │              ▲  ▲  ▲                                   │   │
         │ PreEnqueue   │  │  └─── flush_backoff ──── backoff, ───┘   │ add_unschedulable:
         │ refuses      │  │                          error backoff   │ is it worth an attempt, by
         ▼              │  │ activate                    ▲    ▲       │ what happened meanwhile?
       gated ───────────┘  │                             │    └───────┤ yes
           event of        │                             │            ▼ no
           the gate        └──────────────── unschedulable ◀──────────┘
                                             an event that a hint finds worth an attempt, or 5 minutes

Rules, beyond those of the modules for places, backoff, hints, pods in flight, gates and nominations:

* An event that no plugin of any profile registered for does nothing at all.
* A pod that is worth an attempt goes to activeQ, or to backoffQ while it is backing off; if a plugin for which it was pending
  says so, to activeQ at once.
* PreEnqueue is asked on each way into activeQ or backoffQ, and not again on the way from backoffQ to activeQ.
* A pod leaves the unschedulable ones without any event once it was there for *longer* than five minutes (by default).
* An attempt that no plugin rejected failed with an error: the pod is retried after its backoff, whatever happens.

Operations give back the moves they made, in the order they made them. Times are seconds of any one clock, given by the caller.
`position` is where an entry stands in the caller's log of adds, updates and events; positions never decrease. A caller numbers
all of them or none; unnumbered entries are counted.
Owner: the QueueActor; not thread-safe, never blocks.

Source: PriorityQueue of kube-scheduler 1.34. Different here: an update that changes only status, resourceVersion, generation
or finalizers wakes nobody; a pod's own update is replayed to that pod alone; pods that were handed out can be given back; a pod
added while it is being scheduled is updated.
Cost: add and pop O(log n), the rest by the modules below.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final, TypeAlias

from rayched.framework.cluster_event import (
    FORCE_ACTIVATE,
    GIVEN_BACK,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    ClusterEvent,
)
from rayched.queue.changes import is_pod_updated, pod_change_events
from rayched.queue.event_batch import EventBatch
from rayched.queue.hints import Requeue
from rayched.queue.in_flight import InFlightPod
from rayched.queue.places import INCOMING_LABELS
from rayched.queue.queue_state import QueueState
from rayched.queue.queued_pod import Move, Moves, PendingPod, Place, QueuedPodInfo
from rayched.queue.requeue_matcher import Worth
from rayched.v1.core_pb2 import Pod

_ADDED: Final = UNSCHEDULABLE_POD_ADD.label
_UPDATED: Final = UNSCHEDULABLE_POD_UPDATE.label

PreCheck = Callable[[QueuedPodInfo], bool]
"""False: the event is not for this pod."""


Moving: TypeAlias = Generator[None, None, Moves]
"""An operation in pieces."""


def finished(moving: Moving) -> Moves:
    """All its pieces, one after the other."""
    while True:
        try:
            next(moving)
        except StopIteration as end:
            moves: Moves = end.value
            return moves


class QueueClosed(RuntimeError):
    """Nothing is left to pop and nothing will come."""


class AlreadyQueued(ValueError):
    """An outcome for a pod that is not being scheduled, but waits in the queue."""


class NotInFlight(LookupError):
    """An outcome for a pod that the queue did not hand out."""


class SchedulingQueue(QueueState):
    """Every pod without a node, in exactly one place; the room's only public class."""

    # ----------------------------------------------------------------------------------------------------------- pods

    def add(self, pending: PendingPod, now: float, *, position: int | None = None) -> Moves:
        """A new pod: to activeQ, or gated. A pod that has a node is none of ours."""
        self.places.in_flight.advance(position)
        return self._add(pending, now, _ADDED)

    def update(self, pending: PendingPod, now: float, *, position: int | None = None) -> Moves:
        """The pod's object changed. A pod that the queue does not know is added."""
        self.places.in_flight.advance(position)
        flight = self.places.in_flight.get(pending.uid)
        if flight is not None and not flight.deleted:
            self._update_in_flight(flight, pending)
            return ()
        pod = self.places.queued.get(pending.key)
        if pod is None or pod.uid != pending.uid:
            return self._add(pending, now, _UPDATED)
        self.nominator.update(pod.uid, pod.nominated_node_name, pending)
        old = pod.pod
        self.places.absorb(pod, pending)
        if pod.place in (Place.UNSCHEDULABLE, Place.GATED) and is_pod_updated(old, pod.pod):
            return self._wake_by_its_update(pod, old, now)
        return ()

    def delete(self, uid: str, key: str) -> Place:
        """The pod is gone: where it was. Idempotent."""
        self.nominator.delete(uid)
        flight = self.places.in_flight.get(uid)
        if flight is not None:
            was = Place.NOWHERE if flight.deleted else Place.IN_FLIGHT
            self.places.in_flight.mark_deleted(flight)
            return was
        pod = self.places.queued.get(key)
        if pod is None or pod.uid != uid:
            return Place.NOWHERE
        was = pod.place
        self.places.forget(pod)
        return was

    # ------------------------------------------------------------------------------------------------------- attempts

    def pop(self, now: float) -> QueuedPodInfo | None:
        """The next pod to schedule, now in flight; None where there is none. Raises QueueClosed."""
        popped = self.pop_batch(1, now)
        return popped[0] if popped else None

    def pop_batch(self, limit: int, now: float) -> list[QueuedPodInfo]:
        """Up to `limit` pods, as single pops would give them. Raises QueueClosed where there is none and none will come."""
        popped: list[QueuedPodInfo] = []
        self.places.begin_pops(now)
        take = self.places.pop
        while len(popped) < limit and (pod := take(now)) is not None:
            popped.append(pod)
        self.scheduling_cycle += len(popped)
        if self._closed and not popped:
            raise QueueClosed("scheduling queue is closed")
        return popped

    def put_off(self, uid: str) -> None:
        """The cycle of a pod in flight is not to begin for now. Idempotent."""
        self.places.in_flight.put_off(uid)

    def take_up(self, uid: str, *, position: int | None = None) -> None:
        """The cycle of a pod that was put off begins now: it sees all that has happened. Idempotent."""
        self.places.in_flight.advance(position)
        self.places.in_flight.take_up(uid)

    def done(self, uid: str) -> bool:
        """The pod has its node, or it is not to be tried again. False: it was not in flight. Idempotent."""
        flight = self.places.in_flight.end(uid)
        if flight is None:
            return False
        self.nominator.delete(uid)
        return True

    def add_unschedulable(
        self,
        uid: str,
        now: float,
        *,
        unschedulable_plugins: Iterable[str] = (),
        pending_plugins: Iterable[str] = (),
        began: int | None = None,
        nominated_node_name: str | None = None,
    ) -> Moves:
        """The pod's attempt failed: rejected by these plugins, or by an error where there are none.

        `began` is the position in the log at which its cycle began (default: that of the pop); what came later is replayed.
        `nominated_node_name`: None keeps the nomination, "" ends it. Raises AlreadyQueued, NotInFlight.
        """
        flight = self.places.in_flight.get(uid)
        if flight is None:
            raise self._not_in_flight(uid)
        if flight.deleted:
            self.places.in_flight.end(uid)
            return ()
        pod = flight.pod
        pod.unschedulable_plugins = frozenset(unschedulable_plugins)
        pod.pending_plugins = frozenset(pending_plugins)
        if pod.rejectors:
            pod.unschedulable_count += 1
            pod.consecutive_errors = 0
        else:
            pod.consecutive_errors += 1
        pod.timestamp = now
        pod.seen_through = flight.began if began is None else max(flight.began, began)
        pod.woken_at = 0
        if nominated_node_name is not None:
            self.nominator.add(uid, nominated_node_name)
        requeue = self._wakes.replay(flight, began)
        self.places.land(flight)
        moves: list[Move] = []
        self.places.requeue(pod, requeue, SCHEDULE_ATTEMPT_FAILURE, now, moves)
        return tuple(moves)

    def give_back(self, uids: Iterable[str], now: float) -> Moves:
        """Pods that were handed out, but whose attempt has not begun, go back as if they had not been popped."""
        moves: list[Move] = []
        for uid in uids:
            flight = self.places.in_flight.get(uid)
            if flight is None or flight.deleted:
                self.places.in_flight.end(uid)
                continue
            flight.pod.attempts -= 1
            self.places.to_active(self.places.land(flight), GIVEN_BACK, now, moves)
        return tuple(moves)

    # --------------------------------------------------------------------------------------------------------- events

    def move_all(
        self,
        event: ClusterEvent,
        now: float,
        *,
        old: object = None,
        new: object = None,
        pre_check: PreCheck | None = None,
        position: int | None = None,
    ) -> Moves:
        """Something happened in the cluster: every pod that it may help is queued again.

        `old` and `new` are handed to the hints. `pre_check` leaves out unschedulable pods, but not those in flight.
        """
        return finished(self.moving_all(event, now, old=old, new=new, pre_check=pre_check, position=position))

    def moving_all(
        self,
        event: ClusterEvent,
        now: float,
        *,
        old: object = None,
        new: object = None,
        pre_check: PreCheck | None = None,
        position: int | None = None,
    ) -> Moving:
        """`move_all` piece by piece: between two of them pods may be popped, and time may do its work, but nothing else."""
        self.places.in_flight.advance(position)
        if not self.hints.is_of_interest(event):
            return ()
        if event.is_wildcard:
            self.places.in_flight.wake_all()
        else:
            self.places.in_flight.record(event, old, new)
        moves: list[Move] = []
        yield from self._wake(event, now, old, new, pre_check, moves)
        return tuple(moves)

    def move_all_for_each(self, event: ClusterEvent, now: float, news: EventBatch, *, position: int | None = None) -> Moves:
        """As `move_all` for each of these objects in turn, all at one position. Costs next to nothing if no pod waits for it."""
        return finished(self.moving_all_for_each(event, now, news, position=position))

    def moving_all_for_each(self, event: ClusterEvent, now: float, news: EventBatch, *, position: int | None = None) -> Moving:
        """`move_all_for_each` piece by piece."""
        self.places.in_flight.advance(position)
        if not self.hints.is_of_interest(event):
            return ()
        self.places.in_flight.record(event, None, None, news=news)
        moves: list[Move] = []
        if self.is_awaited(event):
            for new in news:
                yield from self._wake(event, now, None, new, None, moves)
        return tuple(moves)

    def _wake(
        self, event: ClusterEvent, now: float, old: object, new: object, pre_check: PreCheck | None, moves: list[Move]
    ) -> Iterator[None]:
        found: Worth = {}
        yield from self._wakes.worth(event, old, new, found, anew=pre_check is not None)
        for pod, requeue in found.values():
            # Since it was found, its time may have been over.
            if pod.place in (Place.UNSCHEDULABLE, Place.GATED) and (pre_check is None or pre_check(pod)):
                pod.woken_at = self.places.in_flight.position
                self.places.requeue(pod, requeue, event.label, now, moves)

    def is_awaited(self, event: ClusterEvent) -> bool:
        """Whether a plugin that holds a waiting pod registered for the event: else it moves no pod."""
        return any(self._wakes.concerned_by(event))

    def activate(self, keys: Iterable[str], now: float) -> Moves:
        """These pods are to be tried at once, whatever they wait for. One in flight is tried again if its attempt fails."""
        moves: list[Move] = []
        for key in keys:
            pod = self.places.queued.get(key)
            if pod is None:
                flight = self.places.in_flight.by_key(key)
                if flight is not None:
                    flight.woken = True
            elif pod.place is not Place.ACTIVE:
                self.places.to_active(pod, FORCE_ACTIVATE.label, now, moves)
        return tuple(moves)

    def close(self) -> None:
        """No more waiting: from now on a pop of an empty queue raises QueueClosed."""
        self._closed = True

    # -------------------------------------------------------------------------------------------------------- private

    def _add(self, pending: PendingPod, now: float, label: str) -> Moves:
        if pending.pod.spec.node_name:
            return ()
        flight = self.places.in_flight.get(pending.uid)
        if flight is not None:
            if not flight.deleted:
                self._update_in_flight(flight, pending)
                return ()
            self.places.in_flight.end(pending.uid)
        pod = QueuedPodInfo(pending, now)
        known = self.places.find(pending.key)
        if known is not None:
            if known.uid != pod.uid:
                # Its deletion was missed, and it must not come back under the new pod's name.
                self.delete(known.uid, known.key)
            elif self._gate.examine(pod).ok:
                self.places.forget(known)
            else:
                return ()
        moves: list[Move] = []
        if self.places.enter(pod, label, now, moves):
            self.nominator.add(pod.uid, pending.nominated_node_name)
        return tuple(moves)

    def _update_in_flight(self, flight: InFlightPod, pending: PendingPod) -> None:
        pod = flight.pod
        old = pod.pod
        self.nominator.update(pod.uid, pod.nominated_node_name, pending)
        self.places.absorb(pod, pending)
        if is_pod_updated(old, pod.pod):
            for event in pod_change_events(old, pod.pod):
                self.places.in_flight.record(event, old, pod.pod, pod.uid)

    def _wake_by_its_update(self, pod: QueuedPodInfo, old: Pod, now: float) -> Moves:
        moves: list[Move] = []
        for event in pod_change_events(old, pod.pod):
            requeue = self.hints.judge(pod, event, old, pod.pod, self._wakes.hint_failed, self.places.pool.questions)
            if requeue is Requeue.SKIP:
                continue
            pod.woken_at = self.places.in_flight.position
            self.places.requeue(pod, requeue, event.label, now, moves)
            break
        return tuple(moves)

    def _not_in_flight(self, uid: str) -> Exception:
        queued = next((pod for pod in self.places.queued.values() if pod.uid == uid), None)
        if queued is None:
            return NotInFlight(f"pod with uid {uid} is neither in flight nor in the queue")
        return AlreadyQueued(f"pod {queued.key} is already present in the {INCOMING_LABELS[queued.place]} queue")
