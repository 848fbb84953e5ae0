"""Conditions in the statuses of objects. Pure."""

from __future__ import annotations

from typing import Any


def set_condition(conditions: Any, kind: str, status: str, reason: str, message: str, now_unix: float) -> Any:
    """Sets the condition of a type in place, in a list of any object's conditions; gives it.

    The time of its last transition moves with the status alone, not with the reason. `now_unix`: seconds.
    """
    condition = next((one for one in conditions if one.type == kind), None)
    if condition is None:
        condition = conditions.add(type=kind)
    if condition.status != status:
        condition.last_transition_time.seconds = int(now_unix)
        condition.last_transition_time.nanos = 0
    condition.status, condition.reason, condition.message = status, reason, message
    return condition
