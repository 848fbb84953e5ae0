"""Which pods the leader removes itself, because nobody else will.

| pod | fate |
|---|---|
| on a node that has not existed for `orphan_quarantine` seconds | Failed, if it has not ended, then removed |
| ending, on a node that is not ready and tainted out-of-service | removed |
| ending, and `termination_margin` seconds past its grace | removed: its agent did not do it in time |
| the same on a node whose agent runs processes | stays: it may run there, until its agent or the end of its node says not |
| the same, and its node stops it when it is cut off (api/disconnection.py) | removed once that must have happened |
| ending without a node | removed |
| ended, and its job has not counted it yet | stays, whatever else is true of it |
| ended, and more than `terminated_pod_gc_threshold` have: first those that were evicted, then the oldest | removed |
| others | stay |

Pure; times are seconds of a monotonic clock (measured_ends.py). Source: the pod garbage collector of Kubernetes 1.34; there it is
the node's agent that ends by force what does not stop, and a pod of a node that is unreachable stays until that comes back or is
declared out of service. Hollow nodes run nothing, so nothing can run twice there.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rayched.controllers.node_settings import NodeSettings

RULE_REAL_NODES_END_THEIR_PODS: bool = True
"""Broken by tests alone."""


class Fate(enum.Enum):
    """What is to be done with a pod."""

    STAY = enum.auto()
    FAIL = "it can have ended only with its node"
    REMOVE = "nobody else will"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a pod's fate depends on. `ends_at`: when its grace is over, None: it is not ending; `node_gone_seconds` None:
    the node exists."""

    bound: bool
    ended: bool
    ends_at: float | None
    node_gone_seconds: float | None = None
    node_out_of_service: bool = False
    node_runs_processes: bool = False
    has_been_stopped: bool = False
    """Its node was cut off for so long that it has stopped the pod itself."""
    too_many: bool = False
    """It is one of those that are too many, if it has ended."""
    tracked: bool = False
    """Its job has yet to count it."""


def fate_of(pod: Circumstances, settings: NodeSettings, now: float) -> Fate:
    if pod.ended and pod.tracked:
        return Fate.STAY
    if pod.bound and pod.node_gone_seconds is not None and pod.node_gone_seconds >= settings.orphan_quarantine:
        return Fate.REMOVE if pod.ended else Fate.FAIL
    if pod.too_many and pod.ended:
        return Fate.REMOVE
    if pod.ends_at is None:
        return Fate.STAY
    if not pod.bound or pod.node_out_of_service:
        return Fate.REMOVE
    if pod.node_runs_processes and RULE_REAL_NODES_END_THEIR_PODS:
        return Fate.REMOVE if pod.has_been_stopped else Fate.STAY
    if now >= pod.ends_at + settings.termination_margin:
        return Fate.REMOVE
    return Fate.STAY
