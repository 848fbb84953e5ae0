"""Which waiting pods an event makes worth another attempt, and what the events of an attempt mean for a pod that failed.

Work comes in pieces: whoever goes through them may stop between two, do what takes pods out of the pool, and go on later. No pod
may be put into the pool, and no other event be begun, before it has ended.

Owner: the SchedulingQueue. Cost: a dictionary look-up for an event that nobody waits for; else what the hint functions take:
plain ones one answer for all pods of a class and template, prepared ones as in `queue.hint_index`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from rayched.framework.cluster_event import ClusterEvent
from rayched.framework.queueing_hints import Hint, HintQuestion, Look, PreparedHint
from rayched.framework.raised import Raised
from rayched.queue.hint_index import HintIndex
from rayched.queue.hints import HintTable, Requeue
from rayched.queue.in_flight import InFlightEvent, InFlightPod
from rayched.queue.places import Places
from rayched.queue.queued_pod import QueuedPodInfo
from rayched.queue.unschedulable import Gate, RejectionClass

Concerned = tuple[tuple[RejectionClass, ...], tuple[Gate, ...]]
T = TypeVar("T")
Worth = dict[str, tuple[QueuedPodInfo, Requeue]]
"""Pods by name."""
PIECE: Final = 64
"""Questions asked in a piece."""


class RequeueMatcher:
    """Finds the waiting pods that an event may help, and replays events to pods in flight."""

    def __init__(self, hints: HintTable, places: Places, raised: Raised) -> None:
        """`raised`: where tracebacks go."""
        self._hints = hints
        self._places = places
        self._concerned: dict[ClusterEvent, tuple[int, Concerned]] = {}
        """Pods that wait for an event, and the version of the pool that this holds for: most events concern no pod."""
        self.failures: Counter[str] = Counter()
        """Hint functions that raised, by plugin."""
        self._raised = raised

    def worth(self, event: ClusterEvent, old: object, new: object, found: Worth, *, anew: bool) -> Iterator[None]:
        """Finds the pods that the event makes worth an attempt, piece by piece. `anew`: not all that are found are to leave."""
        classes, gates = self.concerned_by(event)
        for rejection in classes:
            yield from self._worth_in_class(rejection, event, old, new, found, anew=anew)
        for gate in gates:
            for pods in _pieces(self._places.pool.gated_by(gate).values()):
                for pod in pods:
                    requeue = self._judge(pod, event, old, new)
                    if requeue is not Requeue.SKIP:
                        found[pod.key] = pod, requeue
                yield

    def _worth_in_class(
        self, rejection: RejectionClass, event: ClusterEvent, old: object, new: object, found: Worth, *, anew: bool
    ) -> Iterator[None]:
        pool = self._places.pool
        profile, rejected, pending = rejection
        if event.is_wildcard or not self._hints.knows(profile):
            _all_worth(pool.pods_of(rejection), Requeue.AFTER_BACKOFF, found)
            return
        are_plain = False
        for plugin, hint in self._hints.asked(profile, event, rejected | pending):
            requeue = Requeue.IMMEDIATELY if plugin in pending else Requeue.AFTER_BACKOFF
            if hint is None:
                _all_worth(pool.pods_of(rejection), requeue, found)
            elif isinstance(hint, PreparedHint):
                index = pool.indexes_of(rejection).get(hint)
                if index is None:
                    # The class is remembered, and has no pods any more.
                    return
                yield from self._ask(plugin, hint, index, (old, new), requeue, found, anew=anew)
            else:
                are_plain = True
        if are_plain:
            yield from self._ask_each_template(rejection, event, old, new, found)

    def _ask(
        self,
        plugin: str,
        hint: PreparedHint,
        index: HintIndex,
        change: tuple[object, object],
        requeue: Requeue,
        found: Worth,
        *,
        anew: bool,
    ) -> Iterator[None]:
        try:
            look = hint.look(*change)
        except Exception as problem:
            self.hint_failed(plugin, problem)
            _all_worth([asking.pods for asking in index.askings()], requeue, found)
            return
        for concerned in index.concerned(look, anew=anew):
            for askings in _pieces(concerned):
                for asking in askings:
                    if self._helps(plugin, hint, asking.question, look):
                        _all_worth((asking.pods,), requeue, found)
                yield

    def _helps(self, plugin: str, hint: PreparedHint, question: HintQuestion, look: Look) -> bool:
        try:
            return hint.ask(question, look) is not Hint.SKIP
        except Exception as problem:
            self.hint_failed(plugin, problem)
            return True

    def _ask_each_template(
        self, rejection: RejectionClass, event: ClusterEvent, old: object, new: object, found: Worth
    ) -> Iterator[None]:
        """For plain hints. One that is slow is a piece by itself."""
        for pods in list(self._places.pool.pods_of(rejection)):
            if not pods:
                continue
            first = next(iter(pods.values()))
            if first.key not in found or rejection[2]:
                requeue = self._judge(first, event, old, new)
                if requeue is not Requeue.SKIP:
                    _all_worth((pods,), requeue, found)
            yield

    def _judge(self, pod: QueuedPodInfo, event: ClusterEvent, old: object, new: object) -> Requeue:
        return self._hints.judge(pod, event, old, new, self.hint_failed, self._places.pool.questions)

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

    def replay(self, flight: InFlightPod, began: int | None) -> Requeue:
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
            requeue = self._judge(pod, event, old, new)
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


def _all_worth(groups: Iterable[Mapping[str, QueuedPodInfo]], requeue: Requeue, found: Worth) -> None:
    for pods in groups:
        for key, pod in pods.items():
            if requeue is Requeue.IMMEDIATELY or key not in found:
                found[key] = pod, requeue


def _pieces(items: Iterable[T]) -> Iterator[list[T]]:
    """What is there now, PIECE at a time."""
    everything = list(items)
    for start in range(0, len(everything), PIECE):
        yield everything[start : start + PIECE]


def _each(occurrences: Iterable[InFlightEvent]) -> Iterator[tuple[int, ClusterEvent, object, object]]:
    """Position, event, old and new object of each event."""
    for occurrence in occurrences:
        for old, new in occurrence.changes():
            yield occurrence.position, occurrence.event, old, new
