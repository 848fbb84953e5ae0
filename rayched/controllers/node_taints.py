"""Which taints a node gets from its conditions, and what a lost node's conditions become.

| condition | status | taint | effects |
|---|---|---|---|
| Ready | False | not-ready | NoSchedule at once; NoExecute when the zone's limit allows it |
| Ready | Unknown | unreachable | the same |
| MemoryPressure, DiskPressure, PIDPressure, NetworkUnavailable | True | the one of that name | NoSchedule |
| (spec.unschedulable) | | unschedulable | NoSchedule |

The scheduler looks at taints alone. Taints of other keys are nobody's business here. A node that changes between not-ready and
unreachable swaps its NoExecute taint at once and keeps the time since when it counts.

A lost node, silent for longer than its grace period, gets Ready, MemoryPressure, DiskPressure and PIDPressure Unknown. Only its
agent makes them something else again.

A NoExecute taint that somebody set without a time is given one, so that a change of the leader does not begin its time anew.

Pure. Source: the node lifecycle controller of Kubernetes 1.34, where a swapped taint gets a new time and the timers of its pods
go on; taints without a time stay so there. Cost: some microseconds a node, and only for nodes that changed.
"""

from __future__ import annotations

import enum
from typing import Final

from rayched.api.names import REGION_LABEL, ZONE_LABEL
from rayched.api.tolerations import NO_EXECUTE, NO_SCHEDULE
from rayched.api.well_known_taints import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NOT_READY,
    OUT_OF_SERVICE,
    PID_PRESSURE,
    UNREACHABLE,
    UNSCHEDULABLE,
)
from rayched.v1.core_pb2 import Node, Taint

EXCLUDED_LABEL: Final = "node.kubernetes.io/exclude-disruption"
"""A node with this label does not count for what part of its zone is lost."""

_CONDITION_TAINTS: Final = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): MEMORY_PRESSURE,
    ("DiskPressure", "True"): DISK_PRESSURE,
    ("PIDPressure", "True"): PID_PRESSURE,
    ("NetworkUnavailable", "True"): NETWORK_UNAVAILABLE,
}
_NO_SCHEDULE_KEYS: Final = frozenset((*_CONDITION_TAINTS.values(), UNSCHEDULABLE))
_LOST_KEYS: Final = (NOT_READY, UNREACHABLE)
_LOST_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_NEVER_UPDATED: Final = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
_NOT_UPDATED: Final = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


class NoExecute(enum.Enum):
    """What may happen to the NoExecute taint of a node that is not ready."""

    HOLD = "it keeps what it has"
    ALLOW = "it gets one"
    WITHDRAW = "it has none"


def ready_status(node: Node) -> str:
    """True, False, Unknown; empty where nobody has said anything yet."""
    return next((found.status for found in node.status.conditions if found.type == "Ready"), "")


def zone_of(node: Node) -> str:
    """Names the zone; nodes without labels are one zone as well."""
    labels = node.metadata.labels
    return f"{labels.get(REGION_LABEL, '')}/{labels.get(ZONE_LABEL, '')}"


def lost_taint(node: Node) -> str:
    """The key of the NoExecute taint that the node deserves for its condition Ready; empty for none."""
    return {"False": NOT_READY, "Unknown": UNREACHABLE}.get(ready_status(node), "")


def has_lost_taint(node: Node) -> bool:
    return any(taint.effect == NO_EXECUTE and taint.key in _LOST_KEYS for taint in node.spec.taints)


def is_out_of_service(node: Node) -> bool:
    """An administrator says that it is down, and so does its condition."""
    return ready_status(node) != "True" and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def reconciled(node: Node, no_execute: NoExecute, now_seconds: int, *, lost: bool = False) -> Node | None:
    """The node as it has to be; None: as it is."""
    result = Node()
    result.CopyFrom(node)
    if lost:
        _lose(result, now_seconds)
    _set_taints(result, [*_no_schedule(result), *_no_execute(result, no_execute)], now_seconds)
    return None if result == node else result


def _lose(node: Node, now_seconds: int) -> None:
    by_type = {found.type: found for found in node.status.conditions}
    for name in _LOST_CONDITIONS:
        condition = by_type.get(name)
        if condition is None:
            condition = node.status.conditions.add(type=name)
            condition.reason, condition.message = _NEVER_UPDATED
        elif condition.status != "Unknown":
            condition.reason, condition.message = _NOT_UPDATED
        else:
            continue
        condition.status = "Unknown"
        condition.last_transition_time.seconds = now_seconds
        condition.last_transition_time.nanos = 0


def _no_schedule(node: Node) -> list[Taint]:
    keys = [
        _CONDITION_TAINTS[found.type, found.status]
        for found in node.status.conditions
        if (found.type, found.status) in _CONDITION_TAINTS
    ]
    if node.spec.unschedulable:
        keys.append(UNSCHEDULABLE)
    return [Taint(key=key, effect=NO_SCHEDULE) for key in dict.fromkeys(keys)]


def _no_execute(node: Node, allowed: NoExecute) -> list[Taint]:
    key = lost_taint(node)
    present = [taint for taint in node.spec.taints if taint.effect == NO_EXECUTE and taint.key in _LOST_KEYS]
    if not key or allowed is NoExecute.WITHDRAW or not (present or allowed is NoExecute.ALLOW):
        return []
    taint = Taint(key=key, effect=NO_EXECUTE)
    since = [found.time_added.seconds for found in present if found.HasField("time_added")]
    if since:
        taint.time_added.seconds = min(since)
    return [taint]


def _set_taints(node: Node, wanted: list[Taint], now_seconds: int) -> None:
    """Those of ours become these; what is there already stays where and as it is."""
    by_name = {(taint.key, taint.effect): taint for taint in wanted}
    result: list[Taint] = []
    for taint in node.spec.taints:
        ours = taint.key in (
            _NO_SCHEDULE_KEYS if taint.effect == NO_SCHEDULE else _LOST_KEYS if taint.effect == NO_EXECUTE else ()
        )
        if not ours or by_name.pop((taint.key, taint.effect), None) is not None:
            result.append(Taint.FromString(taint.SerializeToString()))
            if taint.effect == NO_EXECUTE and not taint.HasField("time_added"):
                result[-1].time_added.seconds = now_seconds
    for taint in by_name.values():
        if not taint.HasField("time_added"):
            taint.time_added.seconds = now_seconds
        result.append(taint)
    if list(node.spec.taints) != result:
        del node.spec.taints[:]
        node.spec.taints.extend(result)
