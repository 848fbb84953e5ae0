"""What the runners of one node share: its clock, its loop, its workers."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.drivers.node_drivers import NodeDrivers
from rayched.nodes.agent.fence_guard import FenceGuard
from rayched.nodes.agent.leftovers import Leftovers
from rayched.nodes.agent.shim_link import ShimLink
from rayched.nodes.agent.workers import Workers
from rayched.v1.core_pb2 import Pod


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """What all pods of a node share."""

    node: str
    address: str
    memory_capacity: int
    drivers: NodeDrivers
    restart_cap: float
    clock: Callable[[], float]
    boottime_of: Callable[[float], float]
    """A time of the clock as shims have it."""
    random: random.Random
    post: Callable[[Callable[[], None]], None]
    """Runs it in the loop thread."""
    post_later: Callable[[float, Callable[[], None]], None]
    """The same, so many seconds from now."""
    workers: Workers
    leftovers: Leftovers
    guard: FenceGuard
    incarnation: Callable[[], int]
    """Of the agent; 0: not registered."""
    probers: Executor
    """For probes and hooks over the network alone, which servers of pods can hold up."""
    watch_link: Callable[[ShimLink, bool], None]
    """Looks after the link's input from now on, or (False) no longer."""
    event: Callable[[Pod, PodEvent], None]
    metrics: AgentMetrics
    cgroups: Path | None
    """Where containers have cgroups; None: they have none."""
