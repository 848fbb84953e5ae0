"""The agent's state as its endpoint shows it: gathered in the agent's loop, at each scrape."""

from __future__ import annotations

from collections.abc import Collection

from rayched.nodes.agent.agent_metrics import AgentState
from rayched.nodes.agent.container_life import ContainerStep
from rayched.nodes.agent.eviction.manager import EvictionSettings, Observations
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.usage_metrics import MeasuredPod

_STATES = {ContainerStep.RUNNING: "running", ContainerStep.ENDED: "exited", ContainerStep.STARTING: "created"}


def agent_state(
    runners: Collection[PodRunner],
    seen: Observations,
    eviction: EvictionSettings,
    *,
    incarnation: int,
    reports: int,
    heartbeat_age: float | None,
) -> AgentState:
    """`seen`: the last look at the node's signals."""
    found = AgentState(incarnation=incarnation, reports=reports, heartbeat_age=heartbeat_age)
    for runner in runners:
        found.pods += any(one.is_present for one in runner.life.containers)
        found.shims += runner.has_shim
        for one in runner.life.containers:
            state = _STATES.get(one.step)
            if state is not None:
                found.containers[state] = found.containers.get(state, 0) + 1
    found.available = {signal.value: observation.available for signal, observation in seen.items()}
    found.capacity = {signal.value: observation.capacity for signal, observation in seen.items()}
    found.thresholds = {
        (one.signal.value, "soft" if one.grace else "hard"): one.value.of(seen[one.signal].capacity)
        for one in eviction.thresholds
        if one.signal in seen
    }
    return found


def measured_pods(runners: Collection[PodRunner]) -> list[MeasuredPod]:
    return [MeasuredPod(runner.life.pod, runner.shim_pid) for runner in runners]
