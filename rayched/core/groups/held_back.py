"""Groups that are held back, and how their members are told why: not at once, as many come one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rayched.core.groups.group_writes import GroupConditions
from rayched.core.groups.membership import GroupState
from rayched.core.parts import CoreParts
from rayched.core.writes.pod_patches import GATED

HELD_SECONDS: Final = 1.0
"""A group is held back so long before anybody is told."""


class HeldGroups:
    """Owner: PodGroups."""

    def __init__(self, parts: CoreParts, conditions: GroupConditions) -> None:
        self._statuses, self._nominations = parts.statuses, parts.scheduler.nominations
        self._conditions = conditions
        self._held: dict[str, tuple[GroupState, float]] = {}
        """By name, and when they are to be told: the first ones first."""

    def clear(self) -> None:
        self._held.clear()

    def next_due(self) -> float | None:
        return next((due for _, due in self._held.values()), None)

    def hold(self, state: GroupState, now: float) -> None:
        state.is_held = True
        # Nothing keeps room for its members any more. Hardly ever is one nominated: it is held anew with each that comes.
        for uid in sorted(self._nominations.of.keys() & state.waiting.keys()):
            self._nominations.forget(uid)
        if state.waiting:
            self._held.setdefault(state.name, (state, now + HELD_SECONDS))

    def say(self, now: float) -> None:
        """Tell members, and their groups, why they are held back."""
        while (first := next(iter(self._held.items()), None)) is not None:
            name, (state, due) = first
            if due > now:
                return
            del self._held[name]
            hold = None if state.is_told or state.in_flight else state.hold()
            if hold is None:
                continue
            for uid in state.waiting:
                self._statuses.want(uid, GATED if uid in state.gated else replace(hold, nominated_node_name=""), now)
            counts = f"{state.n_present} of {state.min_count} members run or wait"
            self._conditions.want(state, hold.reason, f"{counts}: {hold.message}", now)
