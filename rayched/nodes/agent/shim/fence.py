"""When the pod of a shim has to be gone because its node is cut off. The agent puts it off with each sign of life that was taken.

Once the time to ask the containers to end has come it is not put off any more, and nothing is started again.
"""

from __future__ import annotations


class ShimFence:
    """Without `put` there is none. `grace`: seconds before `at` at which containers are asked to end."""

    def __init__(self) -> None:
        self._at = float("inf")
        self._grace = 0.0
        self.is_over = False

    def put(self, at: float, grace: float) -> None:
        if not self.is_over:
            self._at, self._grace = at, grace

    def seconds_left(self, now: float) -> float:
        """Until the containers are asked to end."""
        return 0.0 if self.is_over else max(self._at - self._grace - now, 0.0)

    def check(self, now: float) -> bool:
        """Whether its time has come just now."""
        comes = not self.is_over and now >= self._at - self._grace
        self.is_over = self.is_over or comes
        return comes

    def grace_left(self, now: float) -> float:
        """Until nothing of the pod may live."""
        return max(self._at - now, 0.0)
