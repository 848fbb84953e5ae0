"""activeQ with turns for those who wait: many unschedulable pods at the head of the line do not starve the rest.

kube-scheduler tries pods strictly in QueueSort's order. Where thousands of unschedulable pods of high priority are woken again
and again, their attempts take all the time there is, and a pod of low priority that would fit is never tried. Here, after `limit`
attempts of pods that were tried before, the next turn goes to the pod that has waited longest since it came or failed, whatever
its priority. A pod's first attempt is never put off by this, nor anything at all while the head of the line is new.

So a pod in activeQ is tried at the latest after (limit + 1) retries for each pod that waits longer than itself, plus the first
attempts of pods that go before it.

Invariant: `_waiting` holds the same pods as the heap. Owner: Places, which uses a plain KeyedHeap where no limit is set.
Cost: a second heap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayched.queue.heap import KeyedHeap
from rayched.queue.queued_pod import QueuedPodInfo


class FairActiveQueue(KeyedHeap[QueuedPodInfo]):
    """activeQ with a limit on retries in a row: then the pod that has waited longest is popped."""

    __slots__ = ("_limit", "_retries", "_waiting")

    def __init__(self, sort_key: Callable[[QueuedPodInfo], Any], limit: int) -> None:
        super().__init__(_key, sort_key)
        self._limit = limit
        self._retries = 0
        """Attempts of pods that were tried before since somebody had his turn."""
        self._waiting: KeyedHeap[QueuedPodInfo] = KeyedHeap(_key, lambda pod: pod.timestamp)

    def add(self, item: QueuedPodInfo) -> bool:
        self._waiting.add(item)
        return super().add(item)

    def delete(self, key: str) -> QueuedPodInfo:
        self._waiting.delete(key)
        return super().delete(key)

    def pop(self) -> QueuedPodInfo:
        head = self.peek()
        if head is not None and head.attempts:
            self._retries += 1
            longest = self._waiting.peek()
            if self._retries > self._limit and longest is not None:
                self._retries = 0
                return self.delete(longest.key)
        popped = super().pop()
        self._waiting.delete(popped.key)
        return popped

    def clear(self) -> None:
        self._waiting.clear()
        super().clear()

    def verify(self) -> list[str]:
        wrong = [*super().verify(), *self._waiting.verify()]
        if {pod.key for pod in self} != {pod.key for pod in self._waiting}:
            wrong.append("the pods in activeQ and those that wait for their turn differ")
        return wrong


def _key(pod: QueuedPodInfo) -> str:
    return pod.key
