"""What the life of a pod asks its carrier to do. Each is told back as an event of PodLife, but for PodEvent and StopContainer."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rayched.nodes.agent.probing import ProbeKind


class LifecycleHook(enum.StrEnum):
    POST_START = "postStart"
    PRE_STOP = "preStop"


@dataclass(frozen=True, slots=True)
class PreparePod:
    """Make the pod's directories and its shim. Told back by `prepared` or `not_prepared`."""


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Begin an attempt. Told back by `started`, `not_begun` or `not_configured`, and later by `ended`."""

    container: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StopContainer:
    """Signal a container, and kill what is left of it after `grace` seconds. Its end is told by `ended`."""

    container: str
    attempt: int
    grace: float


@dataclass(frozen=True, slots=True)
class RunProbe:
    """Told back by `probed`."""

    container: str
    attempt: int
    kind: ProbeKind


@dataclass(frozen=True, slots=True)
class RunHook:
    """Told back by `hook_done`. `seconds`: it is given up then."""

    container: str
    attempt: int
    hook: LifecycleHook
    seconds: float


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An Event about the pod. `kind`: Normal or Warning."""

    kind: str
    reason: str
    message: str


Action = PreparePod | StartContainer | StopContainer | RunProbe | RunHook | PodEvent
