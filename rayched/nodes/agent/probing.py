"""Probes of a container: when one is due, and what its results make of it. Pure.

| kind | at first | gated by | when it fails |
|---|---|---|---|
| startup | not passed | - | the container is killed |
| liveness | alive | startup | the container is killed |
| readiness | not ready | startup | not ready |

So many successes or failures in a row as its thresholds say turn a result. A probe that could not be made turns nothing.

Source: kubelet's prober worker, Kubernetes 1.34; defaults period 10, timeout 1, success 1, failure 3.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rayched.v1.core_pb2 import Container, Probe


class ProbeKind(enum.StrEnum):
    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"


@dataclass(slots=True)
class ProbeState:
    """One probe of one attempt of a container."""

    kind: ProbeKind
    spec: Probe
    passed: bool
    next_at: float
    in_flight: bool = False
    streak: int = 0
    last: bool | None = None

    @property
    def period(self) -> float:
        return float(self.spec.period_seconds or 10)

    @property
    def timeout(self) -> float:
        return float(self.spec.timeout_seconds or 1)

    def is_due(self, now: float) -> bool:
        return not self.in_flight and now >= self.next_at

    def begin(self, now: float) -> None:
        self.in_flight = True
        self.next_at = max(self.next_at + self.period, now)

    def result(self, success: bool | None) -> bool:
        """Takes a result (None: it could not be made); whether the threshold is reached by it."""
        self.in_flight = False
        if success is None:
            return False
        self.streak = self.streak + 1 if success == self.last else 1
        self.last = success
        needed = (self.spec.success_threshold or 1) if success else (self.spec.failure_threshold or 3)
        if self.streak < needed:
            return False
        self.passed = success
        return True


def probes_of(container: Container, started_at: float, first_delay: float = 0.0) -> dict[ProbeKind, ProbeState]:
    """The probes of an attempt that began then. `first_delay`: so that those of many do not come at once."""
    found = {}
    for kind, field in (
        (ProbeKind.STARTUP, "startup_probe"),
        (ProbeKind.LIVENESS, "liveness_probe"),
        (ProbeKind.READINESS, "readiness_probe"),
    ):
        if container.HasField(field):
            spec = getattr(container, field)
            first = started_at + spec.initial_delay_seconds + first_delay
            found[kind] = ProbeState(kind, spec, kind is ProbeKind.LIVENESS, first)
    return found
