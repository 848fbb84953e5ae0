"""How much whoever has a role binding may have, where that is not what everybody may. Pure.

A zero says nothing: what counts then is what the replica gives every identity. Who has several bindings has the most of each that
one of them says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

from rayched.access.policy import AccessRole
from rayched.api.errors import FieldError
from rayched.v1 import access_pb2

RATE_MAX: Final = 100_000.0
WATCHES_MAX: Final = 10_000
POD_POINTS_MAX: Final = 10_000
_RATES: Final = ("writes", "reads", "watch_starts", "heartbeats")
_COUNTS: Final = (("watches", WATCHES_MAX), ("pod_points", POD_POINTS_MAX))


@dataclass(frozen=True, slots=True)
class BindingLimits:
    """The fields are those of access.proto."""

    writes: float = 0.0
    reads: float = 0.0
    watch_starts: float = 0.0
    heartbeats: float = 0.0
    watches: int = 0
    pod_points: int = 0

    def to_message(self) -> access_pb2.BindingLimits | None:
        """None: they say nothing."""
        if self == NO_LIMITS:
            return None
        return access_pb2.BindingLimits(
            writes=self.writes,
            reads=self.reads,
            watch_starts=self.watch_starts,
            heartbeats=self.heartbeats,
            watches=self.watches,
            pod_points=self.pod_points,
        )


NO_LIMITS: Final = BindingLimits()


def read_limits(message: access_pb2.BindingLimits) -> BindingLimits:
    return BindingLimits(
        message.writes, message.reads, message.watch_starts, message.heartbeats, message.watches, message.pod_points
    )


def limit_faults(role: AccessRole, message: access_pb2.BindingLimits) -> list[FieldError]:
    """What is wrong with the limits of a binding to this role."""
    faults = []
    for name in _RATES:
        rate = getattr(message, name)
        if not (math.isfinite(rate) and 0.0 <= rate <= RATE_MAX):
            faults.append(FieldError(f"limits.{name}", f"found {rate:g}; allowed are 0 to {RATE_MAX:g} calls a second"))
    for name, most in _COUNTS:
        if getattr(message, name) > most:
            faults.append(FieldError(f"limits.{name}", f"found {getattr(message, name)}; allowed are 0 to {most}"))
    if message.pod_points and role is not AccessRole.SUBMITTER:
        text = f"is for the role {AccessRole.SUBMITTER.value}, found with {role.value}"
        faults.append(FieldError("limits.pod_points", text))
    return faults


def highest(limits: Iterable[BindingLimits]) -> BindingLimits:
    """The most of each."""
    given = [one for one in limits if one != NO_LIMITS]
    return BindingLimits(*map(max, zip(*map(astuple, given), strict=True))) if given else NO_LIMITS
