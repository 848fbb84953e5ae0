"""The pods of a node as streams see them. Used in the agent's loop, which owns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rayched.api.defaulting import DEFAULT_NAMESPACE
from rayched.nodes.agent.container_life import CONTAINER_CREATING, ContainerLife, ContainerStep
from rayched.nodes.agent.disk import PodDirectory
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.streams.refusals import forbidden, not_there
from rayched.v1.core_pb2 import ContainerStatus


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """The log of one attempt, and the attempt's own directory, in which its exit will be."""

    attempt: int
    path: Path
    directory: Path

    def is_over(self) -> bool:
        """Nothing more is written to the log. Looks at the disk."""
        return (self.directory / "exit.json").exists() or not self.directory.exists()


@dataclass(frozen=True, slots=True)
class RunningTarget:
    """An attempt that runs, and the directory of its pod."""

    directory: Path
    container: str
    attempt: int


@dataclass(frozen=True, slots=True)
class UsageTarget:
    """A pod of which something may run."""

    namespace: str
    name: str
    uid: str
    containers: Sequence[str]
    directory: PodDirectory


class NotStarted(Exception):
    """The container may have a log later; why it has none now."""

    def __init__(self, why: str, *, is_known: bool = True) -> None:
        """`is_known`: the pod is on the node."""
        super().__init__(why)
        self.is_known = is_known


class StreamTargets:
    """By the uids of pods; the runners are the agent's own."""

    def __init__(self, runners: Mapping[str, PodRunner]) -> None:
        self._runners = runners

    def log(self, uid: str, pod: str, container: str, *, previous: bool) -> AttemptLog:
        """Raises StreamRefusal and NotStarted."""
        runner = self._runners.get(uid)
        if runner is None:
            raise NotStarted(CONTAINER_CREATING, is_known=False)
        one, status = _container(runner, pod, container)
        attempt = _previous_attempt(one, status) if previous else _present_attempt(one, status)
        if attempt is None and previous:
            raise forbidden(f'previous terminated container "{container}" in pod "{pod}" not found')
        if attempt is None and runner.life.has_ended:
            raise forbidden(f'container "{container}" in pod "{pod}" has not started, and will not: the pod has ended')
        if attempt is None:
            raise NotStarted(status.state.waiting.reason or CONTAINER_CREATING)
        return self.log_of_attempt(uid, pod, container, attempt)

    def running(self, uid: str, namespace: str, pod: str, container: str) -> RunningTarget:
        """Raises StreamRefusal."""
        runner = self._named(uid, namespace, pod)
        if runner is None:
            raise forbidden(f'pod "{pod}" does not run on this node')
        one, _ = _container(runner, pod, container)
        if one.step is not ContainerStep.RUNNING or not runner.has_shim:
            raise forbidden(f'container "{container}" in pod "{pod}" does not run')
        return RunningTarget(runner.directory.path, container, one.attempt)

    def with_processes(self) -> list[UsageTarget]:
        """By name."""
        found = []
        for uid, runner in self._runners.items():
            metadata, containers = runner.life.pod.metadata, [one.name for one in runner.life.containers if one.is_present]
            if containers:
                found.append(UsageTarget(metadata.namespace, metadata.name, uid, containers, runner.directory))
        return sorted(found, key=lambda one: (one.namespace, one.name))

    def check_pod(self, uid: str, namespace: str, pod: str) -> None:
        """Raises StreamRefusal where nothing of it runs."""
        runner = self._named(uid, namespace, pod)
        if runner is None or not any(one.step is ContainerStep.RUNNING for one in runner.life.containers):
            raise forbidden(f'pod "{pod}" does not run on this node')

    def _named(self, uid: str, namespace: str, pod: str) -> PodRunner | None:
        """The client has proved that it wants the pod of that name; the uid is what a replica says of it."""
        runner = self._runners.get(uid)
        if runner is None:
            return None
        metadata = runner.life.pod.metadata
        return runner if (metadata.namespace, metadata.name) == (namespace or DEFAULT_NAMESPACE, pod) else None

    def log_of_attempt(self, uid: str, pod: str, container: str, attempt: int) -> AttemptLog:
        """Raises StreamRefusal."""
        runner = self._runners.get(uid)
        if runner is None:
            raise not_there(f'pod "{pod}" is not on this node any more')
        directory = runner.directory
        path = directory.log_directory(runner.life.pod, container) / f"{attempt}.log"
        return AttemptLog(attempt, path, directory.attempt_path(container, attempt))


def _container(runner: PodRunner, pod: str, name: str) -> tuple[ContainerLife, ContainerStatus]:
    status = runner.status()
    for one in (*status.container_statuses, *status.init_container_statuses):
        if one.name == name:
            return runner.life.container(name), one
    raise not_there(f"container {name} is not valid for pod {pod}")


def _last_ended(one: ContainerLife) -> int:
    return one.attempt if one.step in (ContainerStep.WAITING, ContainerStep.ENDED) else one.attempt - 1


def _present_attempt(one: ContainerLife, status: ContainerStatus) -> int | None:
    """Of a container that waits for its next start the last one, as kubelet has it."""
    if not status.state.HasField("waiting"):
        return one.attempt
    return _last_ended(one) if status.last_state.HasField("terminated") else None


def _previous_attempt(one: ContainerLife, status: ContainerStatus) -> int | None:
    if not status.last_state.HasField("terminated"):
        return None
    return _last_ended(one) if status.state.HasField("waiting") else one.attempt - 1
