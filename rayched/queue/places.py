"""Where each pending pod is, and the only ways from one place to another.

Invariants (`verify` checks them, and those of the parts): a pod is in exactly one of activeQ, backoffQ, the pool of unschedulable
and gated pods, or in flight, and its `place` says which; `queued` holds exactly the pods that are not in flight; `held` counts
exactly the plugins that hold pods of `queued`. A pod enters activeQ or backoffQ only if PreEnqueue lets it, asked now or on its
way into backoffQ; else it is gated.

Owner: SchedulingQueue, which decides; here the decision is carried out. Each move that is made is appended to `moves`.
Source: moveToActiveQ, moveToBackoffQ, requeuePodWithQueueingStrategy of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rayched.framework.cluster_event import BACKOFF_COMPLETE, POP_FROM_BACKOFF_Q, UNSCHEDULABLE_TIMEOUT
from rayched.queue.backoff import BackoffPolicy, BackoffQueue
from rayched.queue.fair_active import FairActiveQueue
from rayched.queue.gate import EntryGate
from rayched.queue.heap import KeyedHeap
from rayched.queue.hints import HintTable, Requeue
from rayched.queue.in_flight import InFlightPod, InFlightPods
from rayched.queue.namespace_shares import NamespaceShares
from rayched.queue.namespace_turns import NamespaceTurnsQueue, namespace_of
from rayched.queue.queued_pod import NO_PLUGINS, Move, PendingPod, Place, QueuedPodInfo
from rayched.queue.unschedulable import FLUSH_PERIOD_SECONDS, UnschedulablePods

SortKey = Callable[[QueuedPodInfo], Any]
"""QueueSort of the profiles, which share one: lowest first."""

INCOMING_LABELS: Final = {
    Place.ACTIVE: "active",
    Place.BACKOFF: "backoff",
    Place.ERROR_BACKOFF: "backoff",
    Place.UNSCHEDULABLE: "unschedulable",
    Place.GATED: "unschedulable",
}
"""Values of the label `queue` of queue_incoming_pods_total."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a configuration can set."""

    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    unschedulable_seconds_max: float = 300.0
    """A pod that was unschedulable for longer is tried again without any event."""
    retries_in_a_row_max: int = 0
    """After so many the pod that waits longest has its turn; 0: strictly in QueueSort's order, as kube-scheduler."""
    fair_namespaces: bool = False
    """Namespaces that had their share of a second are behind others of the same priority."""


class Places:
    """All places of the queue, and the moves between them."""

    __slots__ = (
        "_gate",
        "_hints",
        "_settings",
        "active",
        "backoff",
        "held",
        "in_flight",
        "incoming",
        "incoming_groups",
        "pool",
        "queued",
        "shares",
    )

    def __init__(self, sort_key: SortKey, gate: EntryGate, hints: HintTable, settings: QueueSettings) -> None:
        self._gate = gate
        self._hints = hints
        self._settings = settings
        self.active = _active_queue(sort_key, settings)
        self.shares = NamespaceShares()
        """Of a second, by namespace; empty where nobody tells of it."""
        self.backoff = BackoffQueue(settings.backoff, sort_key)
        self.pool = UnschedulablePods(hints)
        self.in_flight = InFlightPods()
        self.queued: dict[str, QueuedPodInfo] = {}
        """Every pod by namespace/name, except those in flight."""
        self.incoming: Counter[tuple[str, str]] = Counter()
        self.incoming_groups: Counter[tuple[str, str]] = Counter()
        """Those of them that stand for a pod group."""
        self.held: Counter[tuple[str, str]] = Counter()

    def find(self, key: str) -> QueuedPodInfo | None:
        pod = self.queued.get(key)
        if pod is None:
            flight = self.in_flight.by_key(key)
            pod = None if flight is None else flight.pod
        return pod

    # ------------------------------------------------------------------------------------------------- into a queue

    def enter(self, pod: QueuedPodInfo, label: str, now: float, moves: list[Move]) -> bool:
        """A pod that is new. False: it is gated."""
        self.queued[pod.key] = pod
        return self.to_active(pod, label, now, moves)

    def requeue(self, pod: QueuedPodInfo, requeue: Requeue, label: str, now: float, moves: list[Move]) -> None:
        """To activeQ or backoffQ as the verdict says; SKIP, of a pod that comes from an attempt, to the pool."""
        if requeue is Requeue.SKIP:
            self._to_pool(pod, label, now, moves)
        elif requeue is Requeue.AFTER_BACKOFF and self.backoff.is_backing_off(pod, now):
            self._to_backoff(pod, label, now, moves)
        else:
            self.to_active(pod, label, now, moves)

    def to_active(self, pod: QueuedPodInfo, label: str, now: float, moves: list[Move], *, examined: bool = False) -> bool:
        """`examined`: PreEnqueue has let the pod in before. False: it is gated."""
        was = pod.place
        self._leave(pod)
        if not examined and not self._may_enter(pod):
            self._to_pool(pod, label, now, moves, was)
            return False
        if pod.initial_attempt is None:
            pod.initial_attempt = now
        pod.place = Place.ACTIVE
        self.active.add(pod)
        self._moved(pod, label, moves)
        return True

    def complete_backoff(self, now: float, moves: list[Move]) -> None:
        for pod in self.backoff.completed(now):
            pod.place = Place.NOWHERE
            self.to_active(pod, BACKOFF_COMPLETE, now, moves, examined=True)

    def _to_backoff(self, pod: QueuedPodInfo, label: str, now: float, moves: list[Move]) -> None:
        was = pod.place
        self._leave(pod)
        if self._may_enter(pod):
            self.backoff.add(pod)
            self._moved(pod, label, moves)
        else:
            self._to_pool(pod, label, now, moves, was)

    def _to_pool(self, pod: QueuedPodInfo, label: str, now: float, moves: list[Move], was: Place = Place.NOWHERE) -> None:
        flush_due: float | None = pod.timestamp + self._settings.unschedulable_seconds_max
        if pod.gated:
            if self._hints.gate_reacts(pod.scheduler_name, pod.gating_plugin, UNSCHEDULABLE_TIMEOUT):
                flush_due = max(pod.timestamp + self._settings.unschedulable_seconds_max, now + FLUSH_PERIOD_SECONDS)
            else:
                flush_due = None
        self.pool.add(pod, flush_due)
        if pod.place is not was:
            self._moved(pod, label, moves)

    # -------------------------------------------------------------------------------------------------- out of a queue

    def spent(self, told: Iterable[tuple[str, float]], now: float) -> None:
        """So many seconds were worked for these namespaces."""
        for namespace, seconds in told:
            self.shares.spent(namespace, seconds, now)

    def begin_pops(self, now: float) -> None:
        """Who had their share until now lets others go first."""
        if isinstance(self.active, NamespaceTurnsQueue):
            self.active.over = self.shares.over(now)

    @property
    def turns(self) -> int:
        """How often a namespace that had its share let another go first."""
        return self.active.n_turns if isinstance(self.active, NamespaceTurnsQueue) else 0

    def namespaces(self, pods: Sequence[QueuedPodInfo]) -> tuple[str, ...]:
        """Of each pod, where its time is to be told; else none."""
        return tuple(map(namespace_of, pods)) if isinstance(self.active, NamespaceTurnsQueue) else ()

    def pop(self, now: float) -> QueuedPodInfo | None:
        """The first pod of activeQ, or of backoffQ where that is empty, now in flight."""
        if self.active:
            pod = self.active.pop()
        elif self.backoff.n_rejected:
            pod = self.backoff.pop()
            self._came(pod, Place.ACTIVE, POP_FROM_BACKOFF_Q)
        else:
            return None
        pod.attempts += 1
        if pod.unschedulable_plugins or pod.pending_plugins:
            self._release(pod)
            pod.unschedulable_plugins = pod.pending_plugins = NO_PLUGINS
        pod.backoff_until = None
        pod.place = Place.IN_FLIGHT
        del self.queued[pod.key]
        self.in_flight.begin(pod, now)
        return pod

    def land(self, flight: InFlightPod) -> QueuedPodInfo:
        """The pod is no longer in flight and goes to a queue next."""
        pod = flight.pod
        self.in_flight.end(pod.uid)
        self.queued[pod.key] = pod
        for plugin in pod.rejectors:
            self.held[plugin, pod.scheduler_name] += 1
        return pod

    def forget(self, pod: QueuedPodInfo) -> None:
        """A pod of a queue is gone."""
        self._leave(pod)
        self._release(pod)
        del self.queued[pod.key]

    def _leave(self, pod: QueuedPodInfo) -> None:
        """Takes the pod out of where it is, if it is in a queue."""
        match pod.place:
            case Place.ACTIVE:
                self.active.delete(pod.key)
            case Place.BACKOFF | Place.ERROR_BACKOFF:
                self.backoff.remove(pod)
            case Place.UNSCHEDULABLE | Place.GATED:
                self.pool.remove(pod)
        pod.place = Place.NOWHERE

    # --------------------------------------------------------------------------------------------------------- in place

    def absorb(self, pod: QueuedPodInfo, pending: PendingPod) -> None:
        """The pod's object changed; it stays where it is, in its new place there."""
        match pod.place:
            case Place.ACTIVE:
                pod.absorb(pending)
                pod.woken_at = 0
                self.active.add(pod)
            case Place.BACKOFF | Place.ERROR_BACKOFF:
                pod.absorb(pending)
                pod.woken_at = 0
                self.backoff.add(pod)
            case Place.UNSCHEDULABLE | Place.GATED:
                flush_due = pod.flush_due
                # What was before this update was judged for the pod as it was then.
                pod.seen_through = self.in_flight.position - 1
                self.pool.remove(pod)
                pod.absorb(pending)
                self.pool.add(pod, flush_due)
            case _:
                pod.absorb(pending)

    def gated_for_long(self, now: float) -> bool:
        """Whether some pod is gated for longer than a pod may be unschedulable. O(gated pods)."""
        longest = self._settings.unschedulable_seconds_max
        return any(now > pod.timestamp + longest for _, gated in self.pool.gates() for pod in gated.values())

    def in_order(self, limit: int | None = None) -> Iterator[QueuedPodInfo]:
        yield from self.active.in_order(limit)
        yield from self.backoff.in_order(limit)
        yield from self.pool
        yield from (flight.pod for flight in self.in_flight)

    # ------------------------------------------------------------------------------------------------------- for the audit

    def holders(self, key: str) -> Iterator[tuple[Place, QueuedPodInfo]]:
        """Every queue that holds a pod of this name, and the pod: one of each, or none if it is in flight or unknown."""
        if (pod := self.active.get(key)) is not None:
            yield Place.ACTIVE, pod
        yield from self.backoff.holders(key)
        if (pod := self.pool.get(key)) is not None:
            yield (Place.GATED if pod.gated else Place.UNSCHEDULABLE), pod

    def flush_due(self, pod: QueuedPodInfo) -> float:
        """After this a pod that was unschedulable all the time is tried again."""
        return pod.timestamp + self._settings.unschedulable_seconds_max

    def wrong_timers(self, pod: QueuedPodInfo, now: float, flushed: bool) -> Iterator[str]:
        """Of a pod in a queue. `flushed`: whatever was due has been done."""
        match pod.place:
            case Place.BACKOFF | Place.ERROR_BACKOFF:
                if self.backoff.ends(pod) > self.backoff.ends_at_most(pod):
                    yield "backs off for longer than the maximum"
                if flushed and not self.backoff.is_backing_off(pod, now):
                    yield "is still in backoff after its end"
            case Place.UNSCHEDULABLE | Place.GATED:
                yield from self.pool.wrong_timers(pod)
                due = pod.flush_due
                if due is not None and pod.place is Place.UNSCHEDULABLE and due > self.flush_due(pod):
                    yield "has a timer that rings too late"
                if due is not None and flushed and now > due:
                    yield "is still unschedulable after its time"
            case _:
                pass

    def take_out(self, pod: QueuedPodInfo) -> None:
        """Whatever is left of the pod in any queue."""
        if pod.key in self.active:
            self.active.delete(pod.key)
        self.backoff.take_out(pod.key)
        self.pool.take_out(pod)
        if self.queued.get(pod.key) is pod:
            del self.queued[pod.key]
        pod.place = Place.NOWHERE

    def count_held_anew(self) -> None:
        """O(pods in queues)."""
        self.held = Counter((plugin, pod.scheduler_name) for pod in self.queued.values() for plugin in pod.rejectors)

    def verify(self) -> list[str]:
        """Every broken invariant, in words. O(n)."""
        wrong = [*self.active.verify(), *self.backoff.verify(), *self.pool.verify(), *self.in_flight.verify()]
        places: Counter[str] = Counter(pod.key for group in (self.active, self.backoff, self.pool) for pod in group)
        wrong += [f"{key} is in {n} places" for key, n in places.items() if n > 1]
        wrong += [f"{key} is in a queue, but the queue does not know it" for key in places if key not in self.queued]
        wrong += [f"{key} is known, but lost: it is in no queue" for key in self.queued if key not in places]
        wrong += [f"{pod.key} is active, but its place is {pod.place}" for pod in self.active if pod.place is not Place.ACTIVE]
        for flight in self.in_flight:
            if flight.pod.place is not Place.IN_FLIGHT:
                wrong.append(f"{flight.pod.key} is in flight, but its place is {flight.pod.place}")
            if not flight.deleted and flight.pod.key in self.queued:
                wrong.append(f"{flight.pod.key} is in flight and in a queue")
        held = Counter((plugin, pod.scheduler_name) for pod in self.queued.values() for plugin in pod.rejectors)
        if held != self.held:
            wrong.append("the pods counted for each plugin differ from the pods that plugins hold")
        return wrong

    # ---------------------------------------------------------------------------------------------------------- private

    def _may_enter(self, pod: QueuedPodInfo) -> bool:
        """Asks PreEnqueue; a refusal makes the pod gated."""
        before = pod.rejectors
        enters = self._gate(pod)
        if not enters and pod.gating_plugin not in before:
            self.held[pod.gating_plugin, pod.scheduler_name] += 1
        return enters

    def _release(self, pod: QueuedPodInfo) -> None:
        """No plugin holds the pod any more."""
        for plugin in pod.rejectors:
            self.held[plugin, pod.scheduler_name] -= 1

    def _came(self, pod: QueuedPodInfo, place: Place, label: str) -> None:
        labels = INCOMING_LABELS[place], label
        self.incoming[labels] += 1
        if pod.is_group:
            self.incoming_groups[labels] += 1

    def _moved(self, pod: QueuedPodInfo, label: str, moves: list[Move]) -> None:
        self._came(pod, pod.place, label)
        pod.woken_by = label
        moves.append(Move(pod.uid, pod.key, label, pod.place))


def _active_queue(sort_key: SortKey, settings: QueueSettings) -> KeyedHeap[QueuedPodInfo]:
    limit = settings.retries_in_a_row_max
    if settings.fair_namespaces:
        return NamespaceTurnsQueue(sort_key, limit)
    return FairActiveQueue(sort_key, limit) if limit else KeyedHeap[QueuedPodInfo](lambda pod: pod.key, sort_key)
