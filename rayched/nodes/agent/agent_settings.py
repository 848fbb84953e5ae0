"""What an agent is told, and the clock that it goes by."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rayched.client.client import Client
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.containment import ContainmentTier, tier_of
from rayched.nodes.agent.drivers.container_driver import ContainerDriver
from rayched.nodes.agent.drivers.node_drivers import NodeDrivers, runtime_classes
from rayched.nodes.agent.drivers.podman_client import PodmanClient
from rayched.nodes.agent.drivers.podman_driver import PodmanDriver
from rayched.nodes.agent.drivers.process_driver import PROCESS, ProcessDriver
from rayched.nodes.agent.eviction.manager import EvictionSettings
from rayched.nodes.agent.machine import Machine
from rayched.nodes.agent.node_object import NodeSize
from rayched.nodes.agent.process_specs import RunPolicy
from rayched.nodes.agent.shutdown import ShutdownBand
from rayched.nodes.agent.stats import NodeBounds, NodeStats


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is told."""

    node: str
    root: Path
    address: str
    machine: Machine
    size: NodeSize
    version: str
    policy: RunPolicy
    labels: dict[str, str] = field(default_factory=dict)
    heartbeat_seconds: float = 10.0
    restart_cap: float = 300.0
    take_over: bool = False
    stream_token: str = ""
    """Who executes programs in pods, or reaches their ports, has to know it; empty: nobody may."""
    cgroups: Path | None = None
    """Where containers have cgroups (containment.py); None: they have none."""
    http_address: str = ""
    """Of its endpoint; empty: it has none."""
    shutdown: tuple[ShutdownBand, ...] = ()
    eviction: EvictionSettings = field(default_factory=lambda: EvictionSettings(()))
    bounds: NodeBounds = field(default_factory=NodeBounds)

    default_driver: str = PROCESS
    podman: str = ""
    """The path of its program; empty: this node has none."""

    @property
    def tier(self) -> ContainmentTier:
        return tier_of(self.cgroups)

    def node_stats(self) -> NodeStats:
        counting = self.cgroups if self.tier is ContainmentTier.CGROUP else None
        return NodeStats(self.root, self.bounds, self.size.for_pods("memory"), counting)

    def node_drivers(self, client: Client, metrics: AgentMetrics) -> NodeDrivers:
        drivers: list[ContainerDriver] = [ProcessDriver(self.policy, self.cgroups)]
        if self.podman:
            drivers.append(PodmanDriver(PodmanClient(self.podman), self.policy, self.root))
        return NodeDrivers(drivers, self.default_driver, self.root / "pods", runtime_classes(client), metrics)


def steady_clock() -> float:
    """Seconds since 1970 as of the agent's start, and from then on by a clock that nobody sets."""
    return _BASE + time.clock_gettime(time.CLOCK_BOOTTIME)


def boottime_of(at: float) -> float:
    """A time of the steady clock as CLOCK_BOOTTIME has it, which all processes of the host share."""
    return at - _BASE


_BASE: Final = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
