"""The taints that the cluster itself sets on nodes, and the tolerations of them that admission gives to new pods.

| taint | when |
|---|---|
| node.kubernetes.io/not-ready | condition Ready is False |
| node.kubernetes.io/unreachable | condition Ready is Unknown: the agent was not heard of for too long |
| node.kubernetes.io/memory-pressure, disk-pressure, pid-pressure, network-unavailable | that condition is True |
| node.kubernetes.io/unschedulable | spec.unschedulable |

All of them keep new pods off (NoSchedule); the first two also evict (NoExecute).

| pod | tolerates from its admission on |
|---|---|
| of a DaemonSet (its controlling owner) | not-ready, unreachable for ever; pressures; unschedulable; network-unavailable |
| not BestEffort | memory-pressure |
| any that says nothing of it | not-ready and unreachable for 300 s |

A pod of a DaemonSet tolerates network-unavailable only with hostNetwork.

Pure. Source: the node lifecycle and DaemonSet controllers and the admission plugins DefaultTolerationSeconds and
PodTolerationRestriction of Kubernetes 1.34.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rayched.api.tolerations import EXISTS, NO_EXECUTE, NO_SCHEDULE
from rayched.v1.core_pb2 import Pod

_PREFIX: Final = "node.kubernetes.io/"
NOT_READY: Final = f"{_PREFIX}not-ready"
UNREACHABLE: Final = f"{_PREFIX}unreachable"
MEMORY_PRESSURE: Final = f"{_PREFIX}memory-pressure"
DISK_PRESSURE: Final = f"{_PREFIX}disk-pressure"
PID_PRESSURE: Final = f"{_PREFIX}pid-pressure"
NETWORK_UNAVAILABLE: Final = f"{_PREFIX}network-unavailable"
UNSCHEDULABLE: Final = f"{_PREFIX}unschedulable"
OUT_OF_SERVICE: Final = f"{_PREFIX}out-of-service"
"""Set by an administrator on a node that is known to be down: what is ending there need not be waited for."""

SET_BY_LEADER: Final = frozenset(
    (NOT_READY, UNREACHABLE, MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE, NETWORK_UNAVAILABLE, UNSCHEDULABLE)
)
TOLERATED_BY_ADMISSION: Final = SET_BY_LEADER
DAEMON_SET: Final = "DaemonSet"
_DAEMONS_TOLERATE: Final = (
    (NOT_READY, NO_EXECUTE),
    (UNREACHABLE, NO_EXECUTE),
    (DISK_PRESSURE, NO_SCHEDULE),
    (MEMORY_PRESSURE, NO_SCHEDULE),
    (PID_PRESSURE, NO_SCHEDULE),
    (UNSCHEDULABLE, NO_SCHEDULE),
)
_BEST_EFFORT: Final = "BestEffort"


@dataclass(frozen=True, slots=True)
class DefaultTolerations:
    """For how long a pod that says nothing of it stays on a node that is not ready, or unreachable."""

    not_ready_seconds: int = 300
    unreachable_seconds: int = 300


def add_tolerations(pod: Pod, qos_class: str, defaults: DefaultTolerations) -> None:
    """Gives a new pod, in place, the tolerations that the cluster gives."""
    if any(owner.controller and owner.kind == DAEMON_SET for owner in pod.metadata.owner_references):
        for key, effect in _DAEMONS_TOLERATE:
            _for_ever(pod, key, effect)
        if pod.spec.host_network:
            _for_ever(pod, NETWORK_UNAVAILABLE, NO_SCHEDULE)
    if qos_class != _BEST_EFFORT:
        _for_ever(pod, MEMORY_PRESSURE, NO_SCHEDULE)
    _unless_said(pod, NOT_READY, defaults.not_ready_seconds)
    _unless_said(pod, UNREACHABLE, defaults.unreachable_seconds)


def _for_ever(pod: Pod, key: str, effect: str) -> None:
    """What the pod tolerates for a time becomes for ever."""
    for found in pod.spec.tolerations:
        if found.operator == EXISTS and not found.value and found.key in ("", key) and found.effect in ("", effect):
            if not found.HasField("toleration_seconds"):
                return
            if found.key == key and found.effect == effect:
                found.ClearField("toleration_seconds")
                return
    pod.spec.tolerations.add(key=key, operator=EXISTS, effect=effect)


def _unless_said(pod: Pod, key: str, seconds: int) -> None:
    """Any word of the pod on this key and effect counts, whatever its operator and its seconds."""
    if not any(found.key in ("", key) and found.effect in ("", NO_EXECUTE) for found in pod.spec.tolerations):
        pod.spec.tolerations.add(key=key, operator=EXISTS, effect=NO_EXECUTE, toleration_seconds=seconds)
