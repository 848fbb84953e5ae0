"""Looks after the node's drivers while no pod asks for them: how the default one is, which images there are, what is left of pods
that are gone. A node whose default driver is not in order is not ready, and says why. The agent's loop owns it; workers look.
"""

from __future__ import annotations

from collections.abc import Callable

from rayched.nodes.agent.drivers.node_drivers import FINGERPRINT_SECONDS, DriverLook, NodeDrivers
from rayched.nodes.agent.node_report import NodeReport
from rayched.nodes.agent.workers import Workers

_WHAT = "driver"


class DriverWatch:
    """Begin it once; it goes on for as long as the loop does."""

    def __init__(
        self, drivers: NodeDrivers, workers: Workers, later: Callable[[float, Callable[[], None]], None], report: NodeReport
    ) -> None:
        self._drivers = drivers
        self._workers = workers
        self._later = later
        self._report = report

    def begin(self) -> None:
        self._workers.submit("look at the drivers", self._drivers.look, self._looked)

    def _looked(self, found: DriverLook | Exception) -> None:
        # What went wrong with the look itself is in the log, and says nothing of the node.
        if isinstance(found, DriverLook):
            self._report.fault(_WHAT, found.fault)
            self._report.has_images(found.images)
        self._later(FINGERPRINT_SECONDS, self.begin)
