"""Which pod is evicted first, and what it is told. Pure.

| pressure | order |
|---|---|
| memory | usage above its request first; lower priority; larger usage - request |
| disk, by bytes | the same with ephemeral-storage |
| inodes, process ids | lower priority; more of it |

A pod of which nothing is known comes before those of which something is; equal ones go by the younger start, then by uid, so that
equal runs are equal.

Source: kubelet's eviction helpers, Kubernetes 1.34. Known difference: inodes are compared as they are, not less a request of
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rayched.nodes.agent.eviction.signals import (
    OF_IMAGE_FS,
    OF_INODES,
    OF_MEMORY,
    OF_NODE_FS,
    RESOURCE_OF,
    Signal,
    SignalObservation,
)


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What a pod has on disk: bytes, or inodes."""

    volumes: int = 0
    logs: int = 0
    writable: int = 0


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """Of one container, with its requests."""

    memory: int = 0
    disk: int = 0
    memory_request: int = 0
    disk_request: int = 0


@dataclass(frozen=True, slots=True)
class PodUsage:
    """A pod that could be evicted. `memory` None: nothing is known of it; likewise the others."""

    uid: str
    priority: int = 0
    started_at: float = 0.0
    critical: bool = False
    memory: int | None = None
    memory_request: int = 0
    disk: DiskUsage | None = None
    disk_request: int = 0
    inodes: DiskUsage | None = None
    pids: int | None = None
    containers: Mapping[str, ContainerUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DiskLayout:
    """Which file systems there are: images apart from the rest, and where the containers' own directories are."""

    images_apart: bool = False
    writable_with_images: bool = False


ONE_FILE_SYSTEM: Final = DiskLayout()


def ranked(pods: Iterable[PodUsage], signal: Signal, layout: DiskLayout = ONE_FILE_SYSTEM) -> list[PodUsage]:
    """First is evicted first."""
    return sorted(pods, key=lambda pod: _key(pod, signal, layout))


def _key(pod: PodUsage, signal: Signal, layout: DiskLayout) -> tuple[object, ...]:
    used = usage_of(pod, signal, layout)
    last = (-pod.started_at, pod.uid)
    if signal in OF_INODES or signal is Signal.PID:
        return (used is not None, pod.priority, -(used or 0), *last)
    request = pod.memory_request if signal in OF_MEMORY else pod.disk_request
    if used is None:
        return (False, False, pod.priority, 0, *last)
    return (True, used <= request, pod.priority, request - used, *last)


def usage_of(pod: PodUsage, signal: Signal, layout: DiskLayout) -> int | None:
    """What of it counts for the signal; None: nothing is known."""
    if signal in OF_MEMORY:
        return pod.memory
    if signal is Signal.PID:
        return pod.pids
    disk = pod.inodes if signal in OF_INODES else pod.disk
    if disk is None:
        return None
    whole = disk.volumes + disk.logs + disk.writable
    if not layout.images_apart:
        return whole
    if signal in OF_NODE_FS:
        return disk.volumes + disk.logs + (0 if layout.writable_with_images else disk.writable)
    if signal in OF_IMAGE_FS:
        return disk.writable if layout.writable_with_images else 0
    return disk.writable


def eviction_message(pod: PodUsage, signal: Signal, threshold: int, observation: SignalObservation) -> str:
    """As the evicted pod's status has it."""
    resource = RESOURCE_OF[signal]
    limit, available = _shown(threshold, resource), _shown(observation.available, resource, exact=True)
    text = f"The node was low on resource: {resource}. Threshold quantity: {limit}, available: {available}. "
    if resource not in ("memory", "ephemeral-storage"):
        return text
    for name, one in pod.containers.items():
        used, request = (one.memory, one.memory_request) if resource == "memory" else (one.disk, one.disk_request)
        if used > request:
            amounts = f"was using {_shown(used, resource, exact=True)}, request is {_shown(request, resource)}"
            text += f"Container {name} {amounts}, has larger consumption of {resource}. "
    return text


def _shown(amount: int, resource: str, *, exact: bool = False) -> str:
    """Bytes as a quantity: what was measured in Ki, what somebody wrote as short as it can be."""
    if resource not in ("memory", "ephemeral-storage"):
        return str(amount)
    if exact:
        return f"{amount >> 10}Ki"
    if not amount:
        return "0"
    for suffix, shift in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if amount % (1 << shift) == 0:
            return f"{amount >> shift}{suffix}"
    return str(amount)
