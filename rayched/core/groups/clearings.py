"""Room that is being made for a group, and a group that waits for it. Owner: GroupRooms."""

from __future__ import annotations

from dataclasses import dataclass, field

from rayched.core.groups.group_cycle import GroupFailure
from rayched.core.groups.group_preemption import RoomForGroup
from rayched.core.groups.membership import GroupState
from rayched.core.groups.victim_units import VictimUnit


@dataclass(slots=True, eq=False)
class Clearing:
    """Room that is being made for one group."""

    state: GroupState
    uid: str
    began: int
    failure: GroupFailure
    message: str
    """What the members are told meanwhile."""
    room: RoomForGroup
    left: list[VictimUnit]
    """Those that have not been told to end."""
    nominated: dict[str, str] = field(default_factory=dict)
    """Nominations of members as they are written, by uid."""
    victims: dict[str, float] = field(default_factory=dict)
    """Who has been told to end, and the grace of each in seconds."""
    attempt: str = ""
    """Of the write under way."""
    sent: tuple[VictimUnit, ...] = ()
    seen_at: int = 0
    """The cache has to reach this revision before it goes on."""


@dataclass(frozen=True, slots=True)
class GroupWait:
    """A group that waits for its victims to end."""

    nodes: dict[str, str]
    """Nominations of its members, by uid."""
    victims: frozenset[str]
    deadline: float
