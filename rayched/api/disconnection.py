"""Pods that their node stops when it is cut off: an annotation says after how long. Pure.

    metadata:
      annotations:
        rayched.dev/stop-after-disconnect: 60s

The node stops such a pod itself when no sign of life of it was acknowledged for so long, whatever becomes of its agent. Only when
that must have happened, by clocks whose rates differ, does the leader remove a pod that is ending there.

    the node, by its clock:    stopped by  (a heartbeat that was acknowledged was sent) + S
    the leader, by its clock:  removed from  (it first saw the newest heartbeat) + S * RATES + MARGIN_SECONDS

That it must have happened is known only of a pod whose shim has taken its fence: an older agent or shim does not stop it, and one
that has not begun with it does not either. So the agent says it with a condition of the pod, and names the incarnation under
which it does; the leader believes the one of the agent that the node has.

A heartbeat is seen after it was sent. If each clock goes wrong by up to 1 %, S on the node's takes at most S / 0.99 of true time,
for which the leader's counts at most S * 1.01 / 0.99. The margin is for what it takes to kill.

Source: stop_on_client_after of Nomad.
"""

from __future__ import annotations

import re
from typing import Final

from rayched.api.agents import INCARNATION_ANNOTATION
from rayched.v1.core_pb2 import Node, Pod, PodCondition

STOP_AFTER_ANNOTATION: Final = "rayched.dev/stop-after-disconnect"
FENCE_ARMED: Final = "rayched.dev/FenceArmed"
"""The condition; its message names the incarnation."""
STOP_AFTER_SECONDS_MIN: Final = 30.0
STOP_AFTER_SECONDS_MAX: Final = 7 * 86_400.0
CLOCK_ERROR: Final = 0.01
RATES: Final = (1 + CLOCK_ERROR) / (1 - CLOCK_ERROR)
MARGIN_SECONDS: Final = 5.0
_DURATION: Final = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")

RULE_FENCE_MARGIN: bool = True
RULE_FENCE_IS_ARMED: bool = True
"""Broken by tests alone."""


def stop_after_seconds(pod: Pod) -> float | None:
    """After how long without a connection its node stops it; None: it does not."""
    annotations = pod.metadata.annotations
    return _seconds(annotations[STOP_AFTER_ANNOTATION]) if STOP_AFTER_ANNOTATION in annotations else None


def stop_after_fault(text: str) -> str:
    """What is wrong with the annotation's value; empty: nothing."""
    return "" if _seconds(text) is not None else "want a duration such as 60s or 1m30s, from 30s to 168h"


def has_stopped_after(seconds: float) -> float:
    """The leader has seen no new heartbeat for so long: then what stops after `seconds` has been stopped."""
    return seconds * RATES + MARGIN_SECONDS if RULE_FENCE_MARGIN else 0.0


def grace_before_stop(seconds: float, grace: float) -> float:
    """How long before it has to be gone a pod is asked to end: its own grace, but it has half of the time to itself."""
    return min(grace, seconds / 2)


def fence_condition(incarnation: int) -> PodCondition:
    """What the agent of that incarnation says of a pod once its shim has taken the fence; 0: it has not."""
    if incarnation:
        return PodCondition(type=FENCE_ARMED, status="True", message=_armed_under(incarnation))
    return PodCondition(type=FENCE_ARMED, status="False", reason="NotArmed")


def fence_is_armed(pod: Pod, node: Node) -> bool:
    """Whether the agent that the node has says that something will stop the pod, whatever becomes of the agent."""
    wanted = _armed_under(node.metadata.annotations.get(INCARNATION_ANNOTATION, ""))
    said = (one for one in pod.status.conditions if one.type == FENCE_ARMED)
    return any(one.status == "True" and one.message == wanted for one in said) or not RULE_FENCE_IS_ARMED


def _armed_under(incarnation: int | str) -> str:
    return f"by the agent of incarnation {incarnation}"


def _seconds(text: str) -> float | None:
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = float(hours * 3600 + minutes * 60 + seconds)
    return total if STOP_AFTER_SECONDS_MIN <= total <= STOP_AFTER_SECONDS_MAX else None
