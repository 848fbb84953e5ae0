"""What an agent asks of a driver: what it is able to do, and what it makes of a container.

Everything else of a container's life is the shim's, whatever the driver, so that stops, fences, logs and recovery are the same.
A driver's specification tells the shim what to run:

| of a container | who does it | with `process` | with an engine |
|---|---|---|---|
| prepare the pod | the agent starts its shim | | |
| prepare an attempt | `ContainerDriver.prepare`, before the start | nothing | its image is there, its container is made |
| start | the shim's verb `start` | forks | runs the engine's client, attached; answers once the program runs |
| wait | the shim's event `ended`, and exit.json | | the engine tells code and OOMKilled |
| stop, signal, kill | the shim's verbs | to the main process | to the main process |
| exec | the shim's verbs `exec` and `run` | forks | runs the engine's client |
| stats | /proc below the shim, by the mark in the environment | | the engine's monitor is below the shim, too |
| recover | the shim's verb `hello`; without a shim a sweep | by mark and cgroup | and by the engine's monitors |
| destroy | the shim's verb `quit`, and the pod's directory | | `collect` removes what the engine has left |
| images | `images`, `remove_unused_images` | none | those of the engine |

All calls may be repeated: an attempt is told by the pod's uid, the container's name and its number.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.process_specs import AttemptPlace, RunPolicy
from rayched.v1.core_pb2 import Container, ContainerImage, Pod

DRIVER_LABEL_PREFIX: Final = "rayched.dev/driver."
"""Of a node's labels, followed by the driver's name: true, or false where it is not there."""


class DriverHealth(enum.StrEnum):
    UNDETECTED = "undetected"
    UNHEALTHY = "unhealthy"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class DriverFingerprint:
    """What was found of a driver on this host. `text`: why it is not healthy; empty: it is."""

    health: DriverHealth
    version: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class DriverCapabilities:
    """What containers have by it."""

    images: bool
    """Their files are those of an image; else of the host."""
    mounts: bool
    """Volumes are where their mountPath says."""
    limits: bool
    """The kernel keeps their limits."""


class DriverFault(Exception):
    """An attempt cannot be prepared for now; it waits with `reason` and the message, and is tried again."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ContainerDriver(Protocol):
    """Its calls may be made by any thread; those that block say so."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> DriverCapabilities: ...

    @property
    def policy(self) -> RunPolicy: ...

    def fingerprint(self) -> DriverFingerprint:
        """Blocks."""

    def specify(self, pod: Pod, container: Container, place: AttemptPlace) -> dict[str, Any]:
        """What the shim reads of an attempt, and `prepare`. Raises ConfigurationFault."""

    def prepare(self, spec: dict[str, Any], directory: Path, is_cancelled: Callable[[], bool]) -> list[PodEvent]:
        """Makes what the attempt needs before its start; what is to be told. `directory` is the attempt's.

        Blocks, while images come for minutes; ends soon once it is cancelled. Raises DriverFault.
        """

    def collect(self, uids: Collection[str]) -> int:
        """Removes what is left of pods of this node other than these; how many containers. Blocks. Raises DriverFault."""

    def images(self) -> list[ContainerImage]:
        """Those that are there. Blocks. Raises DriverFault."""

    def remove_unused_images(self) -> int:
        """Of those that it has fetched for this agent; how many. Blocks. Raises DriverFault."""
