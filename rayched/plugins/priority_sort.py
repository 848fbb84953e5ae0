"""PrioritySort: the pod of highest priority first, among equals the one that has waited longest.

Source: pod.spec.priority (core/v1), kube-scheduler 1.34.
Difference: two pods of equal priority and equal timestamp are ordered by namespace/name, so that a run can be replayed.
Cost: one tuple a pod.
"""

from __future__ import annotations

from typing import Final

from rayched.framework import names
from rayched.framework.plugin import QueuedPod, QueueSortPlugin


class PrioritySort(QueueSortPlugin):
    name: Final = names.PRIORITY_SORT

    def sort_key(self, pod: QueuedPod) -> tuple[int, float, str]:
        return -pod.priority, pod.timestamp, pod.key
