"""Which waiting pods an event makes worth another attempt, and what the events of an attempt mean for a pod that failed.

Owner: the SchedulingQueue. Cost: a dictionary look-up for an event that nobody waits for; else what the hint functions take, one
answer for all pods of a class and template.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rayched.framework.cluster_event import ClusterEvent
from rayched.framework.raised import Raised
from rayched.queue.hints import HintTable, Requeue
from rayched.queue.in_flight import Flight, Occurrence
from rayched.queue.places import Places
from rayched.queue.queued_pod import QueuedPod
from rayched.queue.unschedulable import Gate, RejectionClass

Concerned = tuple[tuple[RejectionClass, ...], tuple[Gate, ...]]


class Wakes:
    """See the module."""

    def __init__(self, hints: HintTable, places: Places, raised: Raised) -> None:
        """`raised`: where tracebacks go."""
        self._hints = hints
        self._places = places
        self._concerned: dict[ClusterEvent, tuple[int, Concerned]] = {}
        """Who waits for an event, and the version of the pool that this holds for: most events concern nobody."""
        self.failures: Counter[str] = Counter()
        """Hint functions that raised, by plugin."""
        self._raised = raised

    def worth(self, event: ClusterEvent, old: object, new: object) -> Iterator[tuple[QueuedPod, Requeue]]:
        """The pods that the event makes worth an attempt. One hint answers for all pods of a class and template."""
        hints = self._hints
        classes, gates = self.concerned_by(event)
        for rejection in classes:
            for pods in self._places.pool.pods_of(rejection):
                requeue = hints.judge(next(iter(pods.values())), event, old, new, self.hint_failed)
                if requeue is not Requeue.SKIP:
                    yield from ((pod, requeue) for pod in pods.values())
        for gate in gates:
            for pod in self._places.pool.gated_by(gate).values():
                requeue = hints.judge(pod, event, old, new, self.hint_failed)
                if requeue is not Requeue.SKIP:
                    yield pod, requeue

    def concerned_by(self, event: ClusterEvent) -> Concerned:
        """The classes and gates of waiting pods that have a plugin registered for the event, empty ones among them."""
        pool, hints = self._places.pool, self._hints
        known = self._concerned.get(event)
        if known is None or known[0] != pool.version:
            classes = tuple(
                (profile, rejected, pending)
                for profile, rejected, pending in pool.classes()
                if event.is_wildcard or not hints.knows(profile) or hints.asked(profile, event, rejected | pending)
            )
            gates = tuple((profile, plugin) for (profile, plugin), _ in pool.gates() if hints.gate_reacts(profile, plugin, event))
            known = self._concerned[event] = pool.version, (classes, gates)
        return known[1]

    def replay(self, flight: Flight, began: int | None) -> Requeue:
        """What the events of its attempt mean for a pod whose attempt failed."""
        pod = flight.pod
        occurrences = self._places.in_flight.since(flight, began)
        if not pod.rejectors or occurrences is None:
            return Requeue.AFTER_BACKOFF
        verdict = Requeue.AFTER_BACKOFF if flight.woken else Requeue.SKIP
        # Objects are made for the hints alone.
        for position, event, old, new in _each(one for one in occurrences if self._hints.may_wake(pod, one.event)):
            if verdict is Requeue.AFTER_BACKOFF and not pod.pending_plugins:
                break
            requeue = self._hints.judge(pod, event, old, new, self.hint_failed)
            if requeue is not Requeue.SKIP:
                pod.woken_at = position
                verdict = requeue
            if requeue is Requeue.IMMEDIATELY:
                break
        return verdict

    def hint_failed(self, plugin: str, problem: Exception) -> None:
        """A hint function raised; the pod is taken as worth an attempt."""
        self.failures[plugin] += 1
        self._raised.note(f'a queueing hint of plugin "{plugin}" failed', problem)


def _each(occurrences: Iterable[Occurrence]) -> Iterator[tuple[int, ClusterEvent, object, object]]:
    """Position, event, old and new object of each event."""
    for occurrence in occurrences:
        for old, new in occurrence.changes():
            yield occurrence.position, occurrence.event, old, new
