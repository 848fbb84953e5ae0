"""What the node and its pods use: CPU between two looks, memory at the later one. It blocks, and wants a thread of its own.

A node that is smaller than its host counts the agent and its pods alone, as in node-pressure eviction.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rayched.nodes.agent.resource_use import ResourceUse, machine_use, process_use
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.stats import NodeBounds
from rayched.nodes.agent.streams.targets import UsageTarget
from rayched.v1.streams_pb2 import NodeUsage

_WINDOW_SECONDS_MIN: Final = 1.0
_WINDOW_SECONDS_MAX: Final = 60.0


@dataclass(slots=True)
class _Sample:
    at: float
    node: ResourceUse
    containers: dict[tuple[str, str], ResourceUse] = field(default_factory=dict)


class UsageSampler:
    """Owned by one thread at a time."""

    def __init__(self, node: str, bounds: NodeBounds, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._node = node
        self._bounds = bounds
        self._clock = clock
        self._sleep = sleep
        self._earlier: _Sample | None = None
        self._told: NodeUsage | None = None

    def usage(self, pods: Sequence[UsageTarget]) -> NodeUsage:
        """Over at least a second; who asks again within that gets the same."""
        earlier = self._earlier
        age = self._clock() - earlier.at if earlier is not None else _WINDOW_SECONDS_MAX
        if self._told is not None and age < _WINDOW_SECONDS_MIN:
            return self._told
        if earlier is None or age >= _WINDOW_SECONDS_MAX:
            earlier = self._look(pods)
            self._sleep(_WINDOW_SECONDS_MIN)
        later = self._look(pods)
        self._earlier, self._told = later, self._between(earlier, later, pods)
        return self._told

    def _between(self, earlier: _Sample, later: _Sample, pods: Sequence[UsageTarget]) -> NodeUsage:
        seconds = max(later.at - earlier.at, 0.001)

        def cpu(before: ResourceUse | None, after: ResourceUse) -> int:
            # What begins in between has used nothing before; what seems to have become less has lost processes.
            spent = after.cpu_seconds - (before.cpu_seconds if before is not None else 0.0)
            return round(max(spent, 0.0) * 1000 / seconds)

        found = NodeUsage(node=self._node, window_seconds=seconds, memory_bytes=later.node.memory_bytes)
        found.cpu_millis = cpu(earlier.node, later.node)
        for pod in pods:
            told = found.pods.add(namespace=pod.namespace, name=pod.name, uid=pod.uid)
            for name in pod.containers:
                use = later.containers.get((pod.uid, name))
                if use is not None:
                    millis = cpu(earlier.containers.get((pod.uid, name)), use)
                    told.containers.add(name=name, cpu_millis=millis, memory_bytes=use.memory_bytes)
        return found

    def _look(self, pods: Sequence[UsageTarget]) -> _Sample:
        sample = _Sample(self._clock(), ResourceUse())
        own = process_use(os.getpid())
        for pod in pods:
            state = pod.directory.shim_state()
            if state is None:
                continue
            shim, *rest = proc_table.tree_of(int(state["pid"]))
            own.add(process_use(shim))
            for pid in rest:
                use = process_use(pid)
                own.add(use)
                name = proc_table.environment_of(pid).get(proc_table.CONTAINER_VARIABLE, "")
                sample.containers.setdefault((pod.uid, name), ResourceUse()).add(use)
        sample.node = own if self._bounds.memory is not None else machine_use()
        return sample


def usage_sampler(node: str, bounds: NodeBounds) -> UsageSampler:
    """By the clock that nobody sets."""
    return UsageSampler(node, bounds, time.monotonic, time.sleep)
