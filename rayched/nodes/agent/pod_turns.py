"""Goes through the pods of a node, in turns of the agent's loop, which owns this.

A turn is for the pods of which something has happened, and whose time has come. Once a second it is for all: what changes a pod's
status by a way that says nothing of it is told then. So a loop that is woken often costs by what happens, not by how many pods
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rayched.nodes.agent.pod_runner import PodRunner

_ALL_SECONDS: Final = 1.0


class PodTurns:
    """`after`: called with each pod whose turn it was."""

    def __init__(self, runners: Mapping[str, PodRunner], after: Callable[[PodRunner], None]) -> None:
        self._runners = runners
        self._after = after
        self._all_due = float("-inf")

    def wakes_at(self) -> float:
        return min((self._all_due, *(runner.wakes_at() for runner in self._runners.values()))) if self._runners else float("inf")

    def turn(self, now: float) -> None:
        is_for_all = now >= self._all_due
        for runner in list(self._runners.values()):
            if is_for_all or runner.has_moved or runner.wakes_at() <= now:
                runner.step()
                runner.has_moved = False
                self._after(runner)
        if is_for_all:
            self._all_due = now + _ALL_SECONDS
