"""The condition Ready of a pod. Its node's agent sets it; of a node that is not ready the leader takes it away.

Source: core/v1 PodCondition, and what the node lifecycle controller of Kubernetes 1.34 writes there.
"""

from __future__ import annotations

from typing import Final

from rayched.v1.core_pb2 import Pod

NODE_NOT_READY: Final = "NodeNotReady"
"""Reason of the condition where the node is why, and of the Event that tells so."""
_READY: Final = "Ready"


def is_ready(pod: Pod) -> bool:
    """Whether the pod counts as healthy."""
    return any(condition.type == _READY and condition.status == "True" for condition in pod.status.conditions)


def ready_since(pod: Pod) -> float | None:
    """Since when the pod counts as healthy, in Unix seconds by the clock of whoever said so; None: it does not."""
    for condition in pod.status.conditions:
        if condition.type == _READY and condition.status == "True":
            return float(condition.last_transition_time.seconds)
    return None


def is_cut_off(pod: Pod) -> bool:
    """Whether the pod is not ready because its node is not."""
    return any(
        (condition.type, condition.status, condition.reason) == (_READY, "False", NODE_NOT_READY)
        for condition in pod.status.conditions
    )


def cut_off(pod: Pod, now_seconds: int) -> None:
    """Takes the condition away in place, where the pod has one."""
    for condition in pod.status.conditions:
        if condition.type == _READY:
            condition.status, condition.reason, condition.message = "False", NODE_NOT_READY, ""
            condition.last_transition_time.seconds = now_seconds
            condition.last_transition_time.nanos = 0
