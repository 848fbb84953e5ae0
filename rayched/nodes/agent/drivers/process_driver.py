"""The driver `process`: a container is a process of the host, and needs nothing that has to be installed."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.cgroup_limits import container_limits, pod_limits
from rayched.nodes.agent.containment import ContainmentTier, tier_of
from rayched.nodes.agent.drivers.container_driver import DriverCapabilities, DriverFingerprint, DriverHealth
from rayched.nodes.agent.process_specs import AttemptPlace, RunPolicy, process_spec
from rayched.v1.core_pb2 import Container, ContainerImage, Pod

PROCESS: Final = "process"


class ProcessDriver:
    """`cgroups`: where containers have theirs; None: they have none."""

    name = PROCESS

    def __init__(self, policy: RunPolicy, cgroups: Path | None) -> None:
        self.policy = policy
        self._cgroups = cgroups
        self._has_limits = tier_of(cgroups) is ContainmentTier.CGROUP
        self.capabilities = DriverCapabilities(images=False, mounts=False, limits=self._has_limits)

    def fingerprint(self) -> DriverFingerprint:
        return DriverFingerprint(DriverHealth.HEALTHY, platform.release())

    def specify(self, pod: Pod, container: Container, place: AttemptPlace) -> dict[str, Any]:
        spec = process_spec(pod, container, place, self.policy)
        if self._cgroups is not None:
            spec["cgroup"] = str(self._cgroups / pod.metadata.uid / f"{container.name}-{place.attempt}")
        if self._has_limits:
            spec |= {"limits": container_limits(container), "pod_limits": pod_limits(pod, self.policy.pod_pids)}
        return spec

    def prepare(
        self,
        spec: dict[str, Any],  # noqa: ARG002
        directory: Path,  # noqa: ARG002
        is_cancelled: Callable[[], bool],  # noqa: ARG002
    ) -> list[PodEvent]:
        return []

    def collect(self, uids: Collection[str]) -> int:  # noqa: ARG002
        return 0

    def images(self) -> list[ContainerImage]:
        return []

    def remove_unused_images(self) -> int:
        return 0
