"""How likely the kernel's out-of-memory killer is to choose a container: its oom_score_adj. Pure.

| container | score |
|---|---|
| of a Guaranteed or node-critical pod | -997 |
| of a BestEffort pod | 1000 |
| of a Burstable pod | 1000 - 1000 · request / capacity, from 3 to 999; a sidecar takes the lowest of the regular ones |

Source: kubelet's qos policy, Kubernetes 1.34. Its documentation says 2 where its code has 3.
"""

from __future__ import annotations

from typing import Final

from rayched.api.admission import BEST_EFFORT, GUARANTEED, qos_class
from rayched.api.quantity import value
from rayched.api.resources import MEMORY, is_sidecar
from rayched.v1.core_pb2 import Container, Pod

GUARANTEED_SCORE: Final = -997
BEST_EFFORT_SCORE: Final = 1000
CRITICAL_PRIORITY: Final = 2_000_000_000
_NODE_CRITICAL_PRIORITY: Final = 2_000_001_000


def oom_score_adj(pod: Pod, container: Container, memory_capacity: int) -> int:
    """`memory_capacity` in bytes."""
    quality = qos_class(pod)
    if quality == GUARANTEED or pod.spec.priority >= _NODE_CRITICAL_PRIORITY:
        return GUARANTEED_SCORE
    if quality == BEST_EFFORT:
        return BEST_EFFORT_SCORE
    score = _burstable(container, memory_capacity)
    if is_sidecar(container):
        score = min([score, *(_burstable(one, memory_capacity) for one in pod.spec.containers)])
    return score


def _burstable(container: Container, memory_capacity: int) -> int:
    request = value(container.resources.requests[MEMORY].string) if MEMORY in container.resources.requests else 0
    return min(max(1000 - 1000 * request // memory_capacity, 3), 999)
