"""One attack: what it did before there were walls, what is demanded of it now, and what it has shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.probe.world import ProbeWorld

Shown: TypeAlias = tuple[str, bool]
"""In words, and whether that is what is demanded."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`finding`: its number in the probe that began it."""

    finding: str
    what: str
    then: str
    demanded: str
    run: Callable[[ProbeWorld], Shown]


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of one."""

    attack: Attack
    shown: str
    met: bool
    grown_bytes: int
    """Of the replica and what it started."""
    cpu_seconds: float
    """Spent by these."""
    seconds: float
