"""Pods that end when the node is cut off: how long they may go on, from the last sign of life that the cluster acknowledged.

A sign of life counts from when it was sent: the cluster saw it later, so what it concludes from it comes later too. The agent
ends such a pod itself; its shim does where the agent does not, and starts nothing of it any more. While signs of life are taken a
shim is told now and then only, and the moment one is not: so where an agent is gone at once its pods may end a tenth sooner. The
agent's loop owns this.
"""

from __future__ import annotations

from collections.abc import Iterable

from rayched.api.disconnection import stop_after_seconds
from rayched.nodes.agent.pod_runner import PodRunner

RULE_FENCE_FROM_SEND_TIME: bool = True
"""Broken by tests alone."""


class Fences:
    """Times are the agent's clock's, which counts while the host sleeps."""

    def __init__(self) -> None:
        self._heard_at = float("-inf")

    def acknowledged(self, sent_at: float, now: float, runners: Iterable[PodRunner]) -> None:
        """A sign of life that was sent then was taken."""
        self._heard_at = max(self._heard_at, sent_at if RULE_FENCE_FROM_SEND_TIME else now)
        for runner in runners:
            self.set_for(runner)

    def unanswered(self, runners: Iterable[PodRunner]) -> None:
        """A sign of life was not taken: the agent may be gone next."""
        for runner in runners:
            runner.tell_fence()

    def silent_seconds(self, now: float) -> float | None:
        """Since the last sign of life that was taken; None: there was none."""
        return None if self._heard_at == float("-inf") else now - self._heard_at

    def set_for(self, runner: PodRunner) -> None:
        """Before anything of it is started."""
        seconds = stop_after_seconds(runner.life.pod)
        if seconds is not None and self._heard_at > float("-inf"):
            runner.fence(self._heard_at + seconds, seconds)
