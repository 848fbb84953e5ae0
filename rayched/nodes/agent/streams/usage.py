"""What the node and its pods use: CPU between two looks, memory at the later one. It blocks, and wants a thread of its own.

CPU of a process counts that of its children that have ended and were waited for. What ended in between is missed as far as nobody
waited for it. A node that is smaller than its host counts the agent and its pods alone, as in node-pressure eviction.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rayched.nodes.agent.eviction.machine_figures import meminfo
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.stats import NodeBounds, resident_memory
from rayched.nodes.agent.streams.targets import UsageTarget
from rayched.v1.streams_pb2 import NodeUsage

_WINDOW_SECONDS_MIN: Final = 1.0
_WINDOW_SECONDS_MAX: Final = 60.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = (3, 4)
"""Of /proc/stat: idle, and waiting for disks."""


@dataclass(slots=True)
class _Use:
    cpu_seconds: float = 0.0
    memory_bytes: int = 0

    def add(self, other: _Use) -> None:
        self.cpu_seconds += other.cpu_seconds
        self.memory_bytes += other.memory_bytes


@dataclass(slots=True)
class _Sample:
    at: float
    node: _Use
    containers: dict[tuple[str, str], _Use] = field(default_factory=dict)


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

        def cpu(before: _Use | None, after: _Use) -> int:
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
        sample = _Sample(self._clock(), _Use())
        own = _use_of(os.getpid())
        for pod in pods:
            state = pod.directory.shim_state()
            if state is None:
                continue
            shim, *rest = proc_table.tree_of(int(state["pid"]))
            own.add(_use_of(shim))
            for pid in rest:
                use = _use_of(pid)
                own.add(use)
                name = proc_table.environment_of(pid).get(proc_table.CONTAINER_VARIABLE, "")
                sample.containers.setdefault((pod.uid, name), _Use()).add(use)
        sample.node = own if self._bounds.memory is not None else _machine()
        return sample


def _use_of(pid: int) -> _Use:
    """Of a process that has ended meanwhile none."""
    return _Use(proc_table.cpu_ticks(pid) / _TICKS, resident_memory(pid))


def _machine() -> _Use:
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(text) for text in file.readline().split()[1:9]]
    with open("/proc/meminfo", encoding="ascii") as file:
        _, working_set = meminfo(file.read())
    busy = sum(value for place, value in enumerate(ticks) if place not in _IDLE)
    return _Use(busy / _TICKS, working_set)


def usage_sampler(node: str, bounds: NodeBounds) -> UsageSampler:
    """By the clock that nobody sets."""
    return UsageSampler(node, bounds, time.monotonic, time.sleep)
