"""When a pod has to leave a node for the node's NoExecute taints.

* A taint that no toleration of the pod covers: at once.
* Else each taint counts with the first toleration of the pod, in its order, that covers it: for `tolerationSeconds` where that
  has them, else for ever. The taint whose time is over first decides.
* Time counts from when both taint and pod were there (measured_taints.py).
* Without the taint there is no time: whoever asks again after its removal is told "never".

Pure; times are seconds of a monotonic clock. Source: the taint eviction controller of Kubernetes 1.34, which begins to count when
it first sees pod and taint together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from rayched.api.tolerations import NO_EXECUTE, tolerates
from rayched.v1.core_pb2 import Node, Taint, Toleration

NEVER: Final = math.inf
AT_ONCE: Final = -math.inf


def no_execute_taints(node: Node) -> list[Taint]:
    """The node's taints that evict."""
    return [taint for taint in node.spec.taints if taint.effect == NO_EXECUTE]


def leaves_at(taints: Iterable[tuple[Taint, float]], tolerations: Sequence[Toleration]) -> float:
    """When the pod has to leave: a time, NEVER or AT_ONCE. Each taint comes with the time since when it and the pod are there."""
    earliest = NEVER
    for taint, since in taints:
        covering = next((toleration for toleration in tolerations if tolerates(toleration, taint)), None)
        if covering is None:
            return AT_ONCE
        if covering.HasField("toleration_seconds"):
            seconds = covering.toleration_seconds
            earliest = min(earliest, AT_ONCE if seconds <= 0 else since + seconds)
    return earliest
