"""activeQ in which namespaces have turns: who had half of a second is behind the others of its priority.

kube-scheduler tries pods strictly in QueueSort's order. So a namespace that submits many pods whose attempts take long holds up
all others of their priority, for as long as its pods last. Here the head of the line gives way while its namespace had its share
(`namespace_shares`): the first pod of the others goes, where it has the same priority. Where nobody else of that priority waits,
the head goes: time that nobody wants is not kept. Order within a namespace, and between priorities, is QueueSort's.

Invariant: `_lines` holds the same pods as the heap, by namespace, and `_firsts` the first of each line. Owner: Places, which uses
another heap where this is not wanted. Cost: two more heaps; 4 µs more a pod.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rayched.queue.fair_active import FairActiveQueue
from rayched.queue.heap import KeyedHeap
from rayched.queue.queued_pod import QueuedPodInfo

_First = tuple[str, Any]
"""A namespace and where its first pod stands in QueueSort's order."""


class NamespaceTurnsQueue(FairActiveQueue):
    """activeQ whose head gives way where its namespace is in `over`."""

    __slots__ = ("_firsts", "_lines", "_order", "n_turns", "over")

    def __init__(self, sort_key: Callable[[QueuedPodInfo], Any], limit: int) -> None:
        """`limit` as of a FairActiveQueue; 0: none."""
        super().__init__(sort_key, limit or sys.maxsize)
        self._order = sort_key
        self._lines: dict[str, KeyedHeap[QueuedPodInfo]] = {}
        self._firsts: KeyedHeap[_First] = KeyedHeap(_namespace_of_first, _place_of_first)
        self.over: frozenset[str] = frozenset()
        """Namespaces that had their share."""
        self.n_turns = 0
        """How often the head of the line gave way."""

    def add(self, item: QueuedPodInfo) -> bool:
        namespace = namespace_of(item)
        line = self._lines.get(namespace)
        if line is None:
            line = self._lines[namespace] = KeyedHeap(_key, self._order)
        line.add(item)
        self._line_changed(namespace, line)
        return super().add(item)

    def delete(self, key: str) -> QueuedPodInfo:
        self._leaves(key)
        return super().delete(key)

    def pop(self) -> QueuedPodInfo:
        head = self.peek() if self.over else None
        if head is not None and namespace_of(head) in self.over:
            other = self._first_of_others()
            if other is not None and other.priority == head.priority:
                self.n_turns += 1
                return self.delete(other.key)
        popped = super().pop()
        self._leaves(popped.key)
        return popped

    def clear(self) -> None:
        self._lines.clear()
        self._firsts.clear()
        super().clear()

    def verify(self) -> list[str]:
        wrong = [*super().verify(), *self._firsts.verify()]
        for line in self._lines.values():
            wrong += line.verify()
        if {pod.key for pod in self} != {pod.key for line in self._lines.values() for pod in line}:
            wrong.append("the pods in activeQ and those in the lines of their namespaces differ")
        firsts = {namespace: self._order(first) for namespace, line in self._lines.items() if (first := line.peek()) is not None}
        if firsts != dict(self._firsts) or len(firsts) < len(self._lines):
            wrong.append("the first pods of the lines of namespaces are others than was kept")
        return wrong

    def _first_of_others(self) -> QueuedPodInfo | None:
        """Of namespaces that have not had their share."""
        passed: list[_First] = []
        found = None
        while (first := self._firsts.peek()) is not None:
            if first[0] not in self.over:
                found = self._lines[first[0]].peek()
                break
            passed.append(self._firsts.pop())
        for first in passed:
            self._firsts.add(first)
        return found

    def _leaves(self, key: str) -> None:
        namespace = key.partition("/")[0]
        line = self._lines.get(namespace)
        if line is not None and key in line:
            line.delete(key)
            self._line_changed(namespace, line)

    def _line_changed(self, namespace: str, line: KeyedHeap[QueuedPodInfo]) -> None:
        first = line.peek()
        if first is not None:
            self._firsts.add((namespace, self._order(first)))
            return
        del self._lines[namespace]
        if namespace in self._firsts:
            self._firsts.delete(namespace)


def namespace_of(pod: QueuedPodInfo) -> str:
    """Of a pod, or of a group."""
    return pod.key.partition("/")[0]


def _key(pod: QueuedPodInfo) -> str:
    return pod.key


def _namespace_of_first(first: _First) -> str:
    return first[0]


def _place_of_first(first: _First) -> Any:
    return first[1]
