"""Limits of local storage: an emptyDir's, a container's, a pod's. Who is above one is evicted at once. Pure.

Source: localStorageEviction of kubelet 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping

from rayched.api.quantity import value
from rayched.api.resources import EPHEMERAL_STORAGE, pod_limits
from rayched.v1.core_pb2 import Pod


def storage_fault(pod: Pod, volumes: Mapping[str, int], containers: Mapping[str, int]) -> str:
    """What the pod is told; empty where it keeps its limits. Bytes by volume, and of each container's log and directory."""
    spec = pod.spec
    for volume in spec.volumes:
        limit = volume.empty_dir.size_limit.string if volume.HasField("empty_dir") else ""
        if limit and value(limit) > 0 and volumes.get(volume.name, 0) > value(limit):
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
    whole = pod_limits(pod).get(EPHEMERAL_STORAGE, 0)
    if whole and sum(volumes.values()) + sum(containers.values()) > whole:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {_shown(whole)}. "
    for container in (*spec.containers, *spec.init_containers):
        if EPHEMERAL_STORAGE in container.resources.limits:
            limit = container.resources.limits[EPHEMERAL_STORAGE].string
            if containers.get(container.name, 0) > value(limit):
                return f'Container {container.name} exceeded its local ephemeral storage limit "{limit}". '
    return ""


def limit_signal(fault: str) -> str:
    """What kubelet's metrics call the limit that a pod is told of."""
    if fault.startswith("Usage of EmptyDir"):
        return "emptydirfs.limit"
    return "ephemeralpodfs.limit" if fault.startswith("Pod ") else "ephemeralcontainerfs.limit"


def _shown(amount: int) -> str:
    for suffix, shift in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if amount % (1 << shift) == 0:
            return f"{amount >> shift}{suffix}"
    return str(amount)
