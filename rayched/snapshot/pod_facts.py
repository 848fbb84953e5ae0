"""What is read of a bound pod besides its template: its name, since when it runs, and for what it ends."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from rayched.api.termination import DELETION_BY_TAINT_MANAGER, PREEMPTION_BY_SCHEDULER, is_disrupted
from rayched.v1.core_pb2 import Pod


class PodFacts(NamedTuple):
    name: str = ""
    """namespace/name."""
    started: float = math.inf
    """status.startTime, Unix seconds; without one it counts as starting just now, later than all others."""
    preempted: bool = False
    """It is being deleted to make room for another."""
    evicted: bool = False
    """It is being deleted for a taint of its node."""


NO_FACTS: Final = PodFacts()


def facts_of(pod: Pod) -> PodFacts:
    metadata, started = pod.metadata, pod.status.start_time
    ends = metadata.HasField("deletion_timestamp")
    return PodFacts(
        name=f"{metadata.namespace or 'default'}/{metadata.name}",
        started=started.seconds + started.nanos / 1e9 if pod.status.HasField("start_time") else math.inf,
        preempted=ends and is_disrupted(pod, PREEMPTION_BY_SCHEDULER),
        evicted=ends and is_disrupted(pod, DELETION_BY_TAINT_MANAGER),
    )
