"""Prepares attempts of containers: chooses the pod's driver, writes down what an attempt is to be, has the driver prepare it.

Written by the pod's runner in the agent's loop. What blocks, which only drivers with images do, has a thread of its own: an image
that comes slowly holds up neither other pods nor the end of the agent.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.container_life import CONTAINER_CREATING, ContainerLife
from rayched.nodes.agent.disk import DiskFault, PodDirectory
from rayched.nodes.agent.drivers.container_driver import ContainerDriver, DriverFault
from rayched.nodes.agent.oom_scores import oom_score_adj
from rayched.nodes.agent.pod_life import PodLife
from rayched.nodes.agent.process_specs import AttemptPlace, ConfigurationFault, host_path
from rayched.nodes.agent.runner_context import RunnerContext

_CONFIG_ERROR: Final = "CreateContainerConfigError"
_CREATE_ERROR: Final = "CreateContainerError"

log = logging.getLogger(__name__)


class AttemptPreparer:
    """Of one pod. `ready` gets a container whose attempt can be started, in the loop; `step` follows what was not prepared."""

    def __init__(
        self,
        context: RunnerContext,
        directory: PodDirectory,
        life: PodLife,
        ready: Callable[[ContainerLife, int], None],
        step: Callable[[], None],
    ) -> None:
        self._context = context
        self._directory = directory
        self._life = life
        self._ready = ready
        self._step = step
        self._driver: ContainerDriver | None = None
        self._under_way: set[str] = set()

    def recover(self) -> None:
        """What the pod was given before."""
        self._life.runtime = self._context.drivers.recorded(self._directory) or self._life.runtime

    def is_preparing(self, container: str) -> bool:
        """Its attempt cannot be started yet; `ready` or its waiting reason will tell."""
        return container in self._under_way

    def prepare(self, one: ContainerLife, attempt: int) -> None:
        """Told back by `ready`, or by the container's waiting reason."""
        if self._driver is None:
            self._driver = self._context.drivers.at_once(self._life.pod)
        if self._driver is not None:
            self._write(self._driver, one, attempt)
            return
        self._apart(one, attempt, self._choose, lambda driver: self._chosen(driver, one, attempt))

    def _choose(self) -> ContainerDriver:
        return self._context.drivers.choose(self._life.pod, self._directory)

    def _chosen(self, driver: ContainerDriver, one: ContainerLife, attempt: int) -> None:
        self._driver, self._life.runtime = driver, driver.name
        self._write(driver, one, attempt)

    def _write(self, driver: ContainerDriver, one: ContainerLife, attempt: int) -> None:
        if self._has_ended(one, attempt):
            return
        directory = self._directory
        path = directory.attempt_path(one.name, attempt)
        try:
            spec = self._spec(driver, one, attempt)
            directory.begin_attempt(one.name, attempt)
            if spec["user"] is not None:
                os.chown(path / "work", spec["user"], spec["group"])
            directory.write_spec(one.name, attempt, {**spec, "failures": one.failures, "at": self._context.clock()})
        except (ConfigurationFault, OSError) as fault:
            self._not_prepared(one, fault)
            return
        if not driver.capabilities.images:
            self._ready(one, attempt)
            return
        # Whose pod ends is not prepared any further.
        prepare = lambda: driver.prepare(spec, path, lambda: self._life.ending is not None)  # noqa: E731
        self._apart(one, attempt, prepare, lambda events: self._prepared(events, one, attempt))

    def _prepared(self, events: list[PodEvent], one: ContainerLife, attempt: int) -> None:
        if self._has_ended(one, attempt):
            return
        for event in events:
            self._context.event(self._life.pod, event)
        self._ready(one, attempt)

    def _has_ended(self, one: ContainerLife, attempt: int) -> bool:
        """Nobody wants the attempt any more, which is then none."""
        if one.attempt != attempt or not one.is_present:
            return True
        if self._life.ending is not None:
            self._life.not_begun(one.name, self._context.clock())
        return self._life.ending is not None

    def _apart(self, one: ContainerLife, attempt: int, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """`done` gets what `work` gives, in the loop."""
        post = self._context.post
        self._under_way.add(one.name)

        def not_prepared(fault: Exception) -> None:
            self._under_way.discard(one.name)
            if not self._has_ended(one, attempt):
                self._not_prepared(one, fault)
            self._step()

        def finish(found: Any) -> None:
            self._under_way.discard(one.name)
            done(found)
            self._step()

        def run() -> None:
            try:
                found = work()
            except Exception as fault:
                # Whatever it is, who waits for the attempt is told.
                problem = fault
                post(lambda: not_prepared(problem))
            else:
                post(lambda: finish(found))

        threading.Thread(target=run, name="node-attempt", daemon=True).start()

    def _not_prepared(self, one: ContainerLife, fault: Exception) -> None:
        now, reason, text = self._context.clock(), _CREATE_ERROR, str(fault)
        if isinstance(fault, ConfigurationFault):
            reason = _CONFIG_ERROR
        elif isinstance(fault, DriverFault):
            reason = fault.reason
        elif isinstance(fault, OSError):
            text = f"{fault.strerror}: {fault.filename}"
        elif not isinstance(fault, DiskFault):
            log.error("pod %s: container %s is not prepared", self._life.full_name(), one.name, exc_info=fault)
            text = f"{type(fault).__name__}: {fault}"
        self._life.not_configured(one.name, reason or CONTAINER_CREATING, text, now)

    # ---------------------------------------------------------------------------------------------------------------- spec

    def _spec(self, driver: ContainerDriver, one: ContainerLife, attempt: int) -> dict[str, Any]:
        """Raises ConfigurationFault and OSError."""
        pod, context = self._life.pod, self._context
        place = AttemptPlace(
            node=context.node,
            address=context.address,
            attempt=attempt,
            work=str(self._directory.attempt_path(one.name, attempt) / "work"),
            log=str(self._directory.log_path(pod, one.name, attempt)),
            volumes=self._volumes(),
            memory_capacity=context.memory_capacity,
        )
        spec = driver.specify(pod, one.spec, place)
        return {**spec, "oom_score_adj": oom_score_adj(pod, one.spec, context.memory_capacity)}

    def _volumes(self) -> dict[str, str]:
        spec = self._life.pod.spec
        context = spec.security_context
        group = context.fs_group if context.HasField("fs_group") else None
        found = {}
        for volume in spec.volumes:
            if volume.HasField("host_path"):
                found[volume.name] = host_path(volume.host_path.path, self._context.drivers.policy)
            else:
                found[volume.name] = self._directory.volume(volume.name, None, group)
        return found
