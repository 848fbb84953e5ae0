"""Backoff: how long a failed pod waits, and the pods that are waiting.

Rules:

* The wait is `initial`, doubled for each further rejection, never more than `maximum`: 1, 2, 4, 8, 10, 10 s by default. Errors
  (an attempt that no plugin rejected) have a counter of their own, which alone counts until the next rejection.
* The end of a wait is cut down to the whole second, and a pod is still waiting in the second that its end falls into. So pods
  that end in the same second leave together, in activeQ's order.
* Pods rejected by plugins may be popped early, when activeQ is empty; pods that failed with an error may not: what broke them
  is likely to be broken still.

Owner: SchedulingQueue. Source: backoffQueue of kube-scheduler 1.34. Cost: that of two heaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rayched.queue.heap import KeyedHeap
from rayched.queue.queued_pod import Place, QueuedPodInfo

WINDOW_SECONDS: Final = 1
"""Ends of waits fall on whole seconds."""
_DOUBLINGS_MAX: Final = 1_000
"""Any maximum is reached long before; a float cannot hold 2**1024."""


class BackoffSettingsError(ValueError):
    """Settings that contradict each other: one line naming field, value and what is allowed."""


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """podInitialBackoffSeconds and podMaxBackoffSeconds of KubeSchedulerConfiguration."""

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not self.initial_seconds > 0:
            raise BackoffSettingsError(f"podInitialBackoffSeconds: {self.initial_seconds} must be greater than 0")
        if not self.max_seconds >= self.initial_seconds:
            raise BackoffSettingsError(
                f"podMaxBackoffSeconds: {self.max_seconds} must be greater than or equal to podInitialBackoffSeconds"
                f" ({self.initial_seconds})"
            )

    def duration(self, failures: int, members: int = 1) -> float:
        """Seconds to wait after so many failures; 0 after none. That of a pod group is longer by the root of its members."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        return min(self.initial_seconds * 2.0**doublings, self.max_seconds * math.sqrt(members))


class BackoffQueue:
    """Pods that wait for the end of their backoff, those rejected and those that met an error apart."""

    __slots__ = ("_errors", "_policy", "_rejected")

    def __init__(self, policy: BackoffPolicy, sort_key: Callable[[QueuedPodInfo], Any]) -> None:
        self._policy = policy
        self._rejected: KeyedHeap[QueuedPodInfo] = KeyedHeap(_key, lambda pod: (self.ends(pod), sort_key(pod)))
        self._errors: KeyedHeap[QueuedPodInfo] = KeyedHeap(_key, self.ends)

    @property
    def n_rejected(self) -> int:
        return len(self._rejected)

    @property
    def n_errors(self) -> int:
        return len(self._errors)

    def ends(self, pod: QueuedPodInfo) -> float:
        """The second in which the pod's wait ends; -inf where nothing has failed yet."""
        if pod.backoff_until is None:
            failures = pod.consecutive_errors or pod.unschedulable_count
            if not failures:
                return -math.inf
            pod.backoff_until = _window(pod.timestamp + self._policy.duration(failures, pod.members))
        return pod.backoff_until

    def is_backing_off(self, pod: QueuedPodInfo, now: float) -> bool:
        return self.ends(pod) >= _window(now)

    def seconds_left(self, pod: QueuedPodInfo, now: float) -> float:
        """Until the pod may be moved to activeQ; 0 where it may be already."""
        return max(0.0, self.ends(pod) + WINDOW_SECONDS - now)

    def add(self, pod: QueuedPodInfo) -> None:
        """Also puts a pod that changed to its new place."""
        if pod.rejectors:
            pod.place = Place.BACKOFF
            self._rejected.add(pod)
        else:
            pod.place = Place.ERROR_BACKOFF
            self._errors.add(pod)

    def remove(self, pod: QueuedPodInfo) -> None:
        (self._rejected if pod.place is Place.BACKOFF else self._errors).delete(pod.key)

    def holders(self, key: str) -> Iterator[tuple[Place, QueuedPodInfo]]:
        """Where a pod of this name is: in one of the two, or not here, if all is well."""
        for place, heap in ((Place.BACKOFF, self._rejected), (Place.ERROR_BACKOFF, self._errors)):
            if (pod := heap.get(key)) is not None:
                yield place, pod

    def take_out(self, key: str) -> None:
        """From wherever it is, if it is anywhere."""
        for heap in (self._rejected, self._errors):
            if key in heap:
                heap.delete(key)

    def ends_at_most(self, pod: QueuedPodInfo) -> float:
        """No wait of a pod that failed last at its timestamp is longer."""
        return pod.timestamp + self._policy.max_seconds * math.sqrt(pod.members)

    def pop(self) -> QueuedPodInfo:
        """The rejected pod whose wait ends first, however long that is."""
        return self._rejected.pop()

    def completed(self, now: float) -> list[QueuedPodInfo]:
        """Takes out all pods whose wait is over. Looks no further than the first that still waits."""
        over: list[QueuedPodInfo] = []
        for heap in (self._rejected, self._errors):
            while (first := heap.peek()) is not None and not self.is_backing_off(first, now):
                over.append(heap.pop())
        return over

    def next_due(self) -> float | None:
        """When `completed` has something to give, at the earliest."""
        firsts = [first for first in (self._rejected.peek(), self._errors.peek()) if first is not None]
        return min((self.ends(first) + WINDOW_SECONDS for first in firsts), default=None)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        yield from self._rejected
        yield from self._errors

    def in_order(self, limit: int | None = None) -> list[QueuedPodInfo]:
        """`limit`: of each kind."""
        return [*self._rejected.in_order(limit), *self._errors.in_order(limit)]

    def verify(self) -> list[str]:
        wrong = [*self._rejected.verify(), *self._errors.verify()]
        wrong += [
            f"{pod.key} waits as rejected, but its place is {pod.place}"
            for pod in self._rejected
            if pod.place is not Place.BACKOFF
        ]
        wrong += [
            f"{pod.key} waits after an error, but its place is {pod.place}"
            for pod in self._errors
            if pod.place is not Place.ERROR_BACKOFF
        ]
        return wrong


def _window(seconds: float) -> float:
    return float(math.floor(seconds))


def _key(pod: QueuedPodInfo) -> str:
    return pod.key
