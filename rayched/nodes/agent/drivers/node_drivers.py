"""The drivers of one node, and which of them a pod has: the handler of its RuntimeClass names it, else it is the node's default.

What a pod was given first it keeps, over restarts of the agent and whatever becomes of its RuntimeClass. A driver that is not
there, or not in order, makes its pods wait; the node takes others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from rayched.api.kinds import RUNTIME_CLASS
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.disk import PodDirectory
from rayched.nodes.agent.drivers.container_driver import (
    DRIVER_LABEL_PREFIX,
    ContainerDriver,
    DriverFault,
    DriverFingerprint,
    DriverHealth,
)
from rayched.nodes.agent.drivers.podman_driver import PODMAN
from rayched.nodes.agent.drivers.process_driver import PROCESS
from rayched.nodes.agent.process_specs import ConfigurationFault, RunPolicy
from rayched.v1.core_pb2 import ContainerImage, Pod
from rayched.v1.workloads_pb2 import RuntimeClass

DRIVER_NAMES: Final = (PROCESS, PODMAN)
FINGERPRINT_SECONDS: Final = 30.0
"""So long a driver is taken for what it was found to be, and what is left of pods is not looked for again."""
_RECORD: Final = "driver"
"""File of a pod's directory."""

log = logging.getLogger(__name__)


def driver_labels(there: Mapping[str, DriverFingerprint]) -> dict[str, str]:
    """Of the node: what RuntimeClasses place their pods by."""
    healthy = {name for name, found in there.items() if found.health is DriverHealth.HEALTHY}
    return {f"{DRIVER_LABEL_PREFIX}{name}": str(name in healthy).lower() for name in DRIVER_NAMES}


def runtime_classes(client: Client) -> Callable[[str], RuntimeClass | None]:
    """By name, asked of the cluster; None: there is none. Raises ApiError."""

    def look_up(name: str) -> RuntimeClass | None:
        try:
            found = client.get(RUNTIME_CLASS, name)
        except ApiError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        return found if isinstance(found, RuntimeClass) else None

    return look_up


@dataclass(frozen=True, slots=True)
class DriverLook:
    """What was found of all of them. `fault`: why the node is not ready; empty: its default driver is in order."""

    fault: str
    images: list[ContainerImage]


class NodeDrivers:
    """Used by the agent's loop and its workers."""

    def __init__(
        self,
        drivers: Sequence[ContainerDriver],
        default: str,
        pods: Path,
        runtime_class: Callable[[str], RuntimeClass | None],
        metrics: AgentMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`default` is one of them. `pods`: the directories of the node's pods."""
        self._drivers = {driver.name: driver for driver in drivers}
        self._default = self._drivers[default]
        self._pods = pods
        self._runtime_class = runtime_class
        self._metrics = metrics
        self._clock = clock
        self._locks = {driver.name: threading.Lock() for driver in drivers}
        self._found: dict[str, tuple[float, DriverFingerprint]] = {}
        self._collected_at = self._cleared_at = float("-inf")
        self._in_use = {default}
        """Names of those that are looked after though no pod asks for them now."""

    @property
    def policy(self) -> RunPolicy:
        """What this node allows pods, whatever their driver."""
        return self._default.policy

    def recorded(self, directory: PodDirectory) -> str:
        """The driver that a pod was given; empty: none yet."""
        found = directory.load(_RECORD)
        if found is None:
            return ""
        self._in_use.add(found["name"])
        return str(found["name"])

    def at_once(self, pod: Pod) -> ContainerDriver | None:
        """Its driver, where nobody has to be asked for it."""
        is_plain = not pod.spec.runtime_class_name and not self._default.capabilities.images
        return self._default if is_plain else None

    def choose(self, pod: Pod, directory: PodDirectory) -> ContainerDriver:
        """Blocks. Raises ConfigurationFault, DiskFault and OSError."""
        recorded = self.recorded(directory)
        name, why = (recorded, "") if recorded else self._wanted(pod, directory)
        driver = self._drivers.get(name)
        if driver is None:
            raise ConfigurationFault(f'{why}no runtime for "{name}" is configured; this node has {", ".join(self._drivers)}')
        found = self._fingerprint(driver)
        if found.health is not DriverHealth.HEALTHY:
            raise ConfigurationFault(f'{why}runtime "{name}" is {found.health}: {found.text}')
        if not recorded:
            directory.save(_RECORD, {"name": name})
        self._in_use.add(name)
        self._collect(driver)
        return driver

    def look(self) -> DriverLook:
        """At the default driver, and at those that pods have had. Removes what is left of pods that are gone. Blocks."""
        images: list[ContainerImage] = []
        for driver in self._with_images():
            self._collect(driver)
            try:
                images += driver.images()
            except DriverFault as fault:
                log.warning("the images of %s are not known for now: %s", driver.name, fault)
        found = self._fingerprint(self._default)
        text = "" if found.health is DriverHealth.HEALTHY else f"driver {self._default.name} is {found.health}: {found.text}"
        return DriverLook(text, images)

    def remove_unused_images(self) -> int:
        """How many. Blocks; asked again soon, it does nothing."""
        removed = 0
        if self._clock() - self._cleared_at < FINGERPRINT_SECONDS:
            return 0
        self._cleared_at = self._clock()
        for driver in self._with_images():
            try:
                removed += driver.remove_unused_images()
            except (DriverFault, OSError) as fault:
                log.warning("images of %s stay for now: %s", driver.name, fault)
        return removed

    def _with_images(self) -> list[ContainerDriver]:
        """Of those in use, if they are in order."""
        there = [driver for name, driver in self._drivers.items() if name in self._in_use and driver.capabilities.images]
        return [driver for driver in there if self._fingerprint(driver).health is DriverHealth.HEALTHY]

    def _wanted(self, pod: Pod, directory: PodDirectory) -> tuple[str, str]:
        """The driver's name, and how a message about it begins."""
        name = pod.spec.runtime_class_name
        if not name:
            # What began under another default is of a driver that was never asked about.
            return (PROCESS if directory.has_attempts() else self._default.name), ""
        try:
            found = self._runtime_class(name)
        except ApiError as error:
            raise ConfigurationFault(f'failed to look up RuntimeClass "{name}": {error}') from None
        if found is None:
            raise ConfigurationFault(f'failed to look up RuntimeClass "{name}": runtimeclass.node.k8s.io "{name}" not found')
        return found.handler, f'RuntimeClass "{name}": '

    def _fingerprint(self, driver: ContainerDriver) -> DriverFingerprint:
        with self._locks[driver.name]:
            at, found = self._found.get(driver.name, (float("-inf"), None))
            if found is None or self._clock() - at >= FINGERPRINT_SECONDS:
                found = driver.fingerprint()
                self._found[driver.name] = (self._clock(), found)
                self._metrics.drivers.labels(driver.name).set(found.health is DriverHealth.HEALTHY)
            return found

    def _collect(self, driver: ContainerDriver) -> None:
        """What is left of pods that are not on this node any more."""
        with self._locks[driver.name]:
            if not driver.capabilities.images or self._clock() - self._collected_at < FINGERPRINT_SECONDS:
                return
            self._collected_at = self._clock()
        try:
            uids = {entry.name for entry in self._pods.iterdir()}
            if number := driver.collect(uids):
                log.info("%d containers of pods that are gone were removed from %s", number, driver.name)
        except (DriverFault, OSError) as fault:
            log.warning("what is left in %s of pods that are gone stays for now: %s", driver.name, fault)
