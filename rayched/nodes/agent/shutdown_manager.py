"""Carries out the shutdown of a node: not ready at once, nothing new, then band after band. The agent's loop owns it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rayched.api.agents import SHUT_DOWN_MESSAGE
from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.intake import PodIntake
from rayched.nodes.agent.node_report import NodeReport
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.shutdown import ShutdownBand, ShutdownPlan

SHUTTING_DOWN: Final = "node is shutting down"
_REFUSAL: Final = "Pod was rejected as the node is shutting down."
_WHAT: Final = "shutdown"


class ShutdownManager:
    """`bands` none: a shutdown is refused."""

    def __init__(
        self,
        bands: Sequence[ShutdownBand],
        runners: Mapping[str, PodRunner],
        intake: PodIntake,
        report: NodeReport,
        event: Callable[[PodEvent], None],
        metrics: AgentMetrics,
    ) -> None:
        self._bands = bands
        self._runners = runners
        self._intake = intake
        self._report = report
        self._event = event
        self._metrics = metrics
        self._plan: ShutdownPlan | None = None

    def begin(self) -> str:
        """Why not; empty: it has begun, or had."""
        if not self._bands:
            return "this agent does not look after shutdowns: it has no --shutdown-grace-period"
        if self._plan is None:
            self._plan = ShutdownPlan(self._bands)
            self._report.fault(_WHAT, SHUTTING_DOWN)
            self._intake.shut(_REFUSAL)
            self._event(PodEvent("Normal", "NodeShutdown", "Shutdown manager detected shutdown event"))
            self._metrics.shutdown_began.set_to_current_time()
            self._metrics.shutdown_ended.set(0)
        return ""

    def cancel(self) -> str:
        """Who has been asked to end ends; others stay."""
        if self._plan is not None:
            self._plan = None
            self._report.fault(_WHAT, "")
            self._intake.open()
            self._event(PodEvent("Normal", "NodeShutdown", "Shutdown manager detected shutdown cancellation"))
        return ""

    def state(self) -> dict[str, Any]:
        """For whoever waits for it."""
        left = sum(not runner.life.has_ended for runner in self._runners.values())
        return {"shutting_down": self._plan is not None, "over": self._plan is not None and self._plan.is_over, "pods": left}

    def wakes_at(self) -> float:
        return float("inf") if self._plan is None else self._plan.wakes_at()

    def turn(self, now: float) -> None:
        plan = self._plan
        if plan is None:
            return
        was_over = plan.is_over
        for uid, ending in plan.advance(now, [runner.life for runner in self._runners.values()]):
            runner = self._runners[uid]
            runner.life.tell(PodEvent("Normal", "Killing", ending.message))
            runner.life.end(ending)
            runner.step()
        if not plan.is_over:
            return
        if not was_over:
            self._metrics.shutdown_ended.set_to_current_time()
        if all(runner.has_ended for runner in self._runners.values()):
            # Not at the end of the time that they have: a process that hangs is one that runs.
            self._report.fault(_WHAT, SHUT_DOWN_MESSAGE)
