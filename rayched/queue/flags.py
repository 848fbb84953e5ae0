"""What flags say about the queue. They travel as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class QueueFlags:
    """What flags say about the queue; a KubeSchedulerConfiguration has no fields for it."""

    unschedulable_seconds_max: float = 300.0
    """--pod-max-in-unschedulable-pods-duration: a pod that no event woke for longer is tried again."""
    retries_in_a_row_max: int = 0
    """--head-of-line-limit: attempts of pods tried before, after which the pod that waits longest has its turn; 0: never."""
    fair_namespaces: bool = False
    """--fair-namespaces: a namespace has half of a second's attempts at most while others of the same priority wait."""


DEFAULT_FLAGS: Final = QueueFlags()
