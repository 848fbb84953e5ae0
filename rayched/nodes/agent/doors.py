"""How an agent is looked at and told what to do on its own host: its HTTP endpoint, and its control socket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import Metric

from rayched.nodes.agent.agent_metrics import AgentMetrics, AgentState, state_families
from rayched.nodes.agent.agent_settings import AgentSettings
from rayched.nodes.agent.control import Answer, ControlDoor
from rayched.nodes.agent.endpoint import AgentEndpoint, health_page, metrics_page
from rayched.nodes.agent.loop import AgentLoop
from rayched.nodes.agent.observation import agent_state, measured_pods
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.pressure import PressureMonitor
from rayched.nodes.agent.reports import Reporter
from rayched.nodes.agent.shutdown_manager import ShutdownManager
from rayched.nodes.agent.usage_metrics import resource_families

_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentView:
    """What can be seen of an agent, in its loop."""

    runners: Mapping[str, PodRunner]
    reporter: Reporter
    pressure: PressureMonitor
    heartbeat_age: Callable[[], float | None]


class AgentDoors:
    """`open` once the agent's directory is its own; `close` once."""

    def __init__(
        self, settings: AgentSettings, loop: AgentLoop, shutdown: ShutdownManager, view: AgentView, metrics: AgentMetrics
    ) -> None:
        """Raises EndpointFault."""
        self._settings = settings
        self._loop = loop
        self._shutdown = shutdown
        self._view = view
        self._control: ControlDoor | None = None
        self._endpoint: AgentEndpoint | None = None
        if settings.http_address:
            pages = {
                "/metrics": metrics_page(self._families, metrics.registry),
                "/metrics/resource": metrics_page(self._resources),
                "/livez": health_page(lambda: loop.ask(lambda: "", _SECONDS)),
                "/readyz": health_page(self._not_ready),
            }
            self._endpoint = AgentEndpoint(settings.http_address, pages)

    @property
    def http_address(self) -> str:
        """With the real port; empty: there is none."""
        return "" if self._endpoint is None else self._endpoint.address

    def open(self) -> None:
        try:
            self._control = ControlDoor(self._settings.root, self._answer)
        except OSError as error:
            # On a disk that is full pods go on; only commands find no agent.
            log.warning("%s: commands of this host are not taken: %s", self._settings.root, error)
        else:
            self._control.start()
        if self._endpoint is not None:
            self._endpoint.start()

    def close(self) -> None:
        if self._control is not None:
            self._control.stop()
        if self._endpoint is not None:
            self._endpoint.stop()

    def _answer(self, verb: str) -> Answer:
        verbs: dict[str, Callable[[], str]] = {
            "shutdown": self._shutdown.begin,
            "cancel-shutdown": self._shutdown.cancel,
            "state": lambda: "",
        }
        if verb not in verbs:
            return {"ok": False, "error": f"verb {verb[:80]!r}: allowed are {', '.join(verbs)}"}

        def work() -> Answer:
            fault = verbs[verb]()
            return {"ok": not fault, "error": fault, **self._shutdown.state()}

        try:
            return self._loop.ask(work, _SECONDS)
        except TimeoutError as error:
            return {"ok": False, "busy": True, "error": str(error)}

    def _state(self) -> AgentState:
        view = self._view
        return agent_state(
            view.runners.values(),
            view.pressure.seen,
            self._settings.eviction,
            incarnation=view.reporter.incarnation,
            reports=view.reporter.waiting,
            heartbeat_age=view.heartbeat_age(),
        )

    def _families(self) -> list[Metric]:
        return list(state_families(self._loop.ask(self._state, _SECONDS)))

    def _resources(self) -> list[Metric]:
        return resource_families(self._loop.ask(lambda: measured_pods(self._view.runners.values()), _SECONDS))

    def _not_ready(self) -> str:
        state = self._loop.ask(self._state, _SECONDS)
        return "" if state.incarnation else "the node is not registered yet"
