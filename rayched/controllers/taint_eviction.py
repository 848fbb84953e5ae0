"""When a pod has to leave a node for the node's NoExecute taints.

* A taint that no toleration of the pod covers: at once.
* Else each taint counts with the first toleration of the pod, in its order, that covers it: for `tolerationSeconds` where that
  has them, else for ever. The taint whose time is over first decides.
* Time counts from when the taint was set (its timeAdded), or from when the pod came to the node, whichever is later. Both stand
  in etcd, so a new leader goes on where the last one was. A taint without a time begins now; it gets one (node_taints.py).
* Without the taint there is no time: whoever asks again after its removal is told "never".

Pure; times are seconds of the wall clock, as in the objects. Source: the taint eviction controller of Kubernetes 1.34, which
begins to count when it first sees pod and taint together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from rayched.api.tolerations import NO_EXECUTE, tolerates
from rayched.v1.core_pb2 import Node, Taint, Toleration

NEVER: Final = math.inf
AT_ONCE: Final = -math.inf
_CUT_OFF_SECONDS: Final = 1.0
"""Times in objects are cut off to whole seconds. Counted from the end of that second, nobody leaves before the time."""


def no_execute_taints(node: Node, now: float) -> list[tuple[Taint, float]]:
    """The node's taints that evict, each with the time since when it counts."""
    return [
        (taint, float(taint.time_added.seconds) if taint.HasField("time_added") else now)
        for taint in node.spec.taints
        if taint.effect == NO_EXECUTE
    ]


def leaves_at(taints: Iterable[tuple[Taint, float]], tolerations: Sequence[Toleration], on_node_since: float) -> float:
    """When the pod has to leave: a time, NEVER or AT_ONCE."""
    earliest = NEVER
    for taint, since in taints:
        covering = next((toleration for toleration in tolerations if tolerates(toleration, taint)), None)
        if covering is None:
            return AT_ONCE
        if covering.HasField("toleration_seconds"):
            seconds = covering.toleration_seconds
            earliest = min(earliest, AT_ONCE if seconds <= 0 else max(since, on_node_since) + _CUT_OFF_SECONDS + seconds)
    return earliest
