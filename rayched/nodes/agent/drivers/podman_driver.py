"""The driver `podman`: a container has the files of an image, and limits that the kernel keeps. Podman's command is all it needs.

Before the start the agent has podman fetch the image and make the container; the shim runs `podman start --attach` and is the
parent of podman's monitor, so a pod is stopped, fenced, logged and recovered as any other.

Source: kubelet's image manager, Kubernetes 1.34, for reasons, messages and pauses.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.containment import CONTROLLERS
from rayched.nodes.agent.drivers.container_driver import (
    DriverCapabilities,
    DriverFault,
    DriverFingerprint,
    DriverHealth,
)
from rayched.nodes.agent.drivers.podman_client import PodmanAnswer, PodmanCancelled, PodmanClient, never
from rayched.nodes.agent.drivers.podman_options import (
    CONTAINER_LABEL,
    OWNER_LABEL,
    UID_LABEL,
    asks_for_no_root,
    check_image,
    check_promises,
    container_environment,
    create_options,
    environment_by_file,
    limit_options,
    program,
)
from rayched.nodes.agent.process_specs import AttemptPlace, RunPolicy
from rayched.nodes.agent.shim.container import write_json
from rayched.nodes.agent.shim.proc_table import engine_name
from rayched.v1.core_pb2 import Container, ContainerImage, Pod

PODMAN: Final = "podman"
CANCELLED: Final = "the pod ended before its container was made"
_INFO: Final = "{{.Version.Version}} {{json .Host.CgroupControllers}}"
_COMMAND_SECONDS: Final = 60.0
_FINGERPRINT_SECONDS: Final = 10.0
_PULL_SECONDS: Final = 3600.0
_REMOVALS_MAX: Final = 3
"""Tries to remove containers, at a time."""
_AT_ONCE_MAX: Final = 4
"""Containers that are prepared at a time."""
_WAIT_SECONDS: Final = 0.1
_FETCHED: Final = "fetched.json"
"""File of the agent's directory: the images that it had podman fetch. Others are somebody else's."""
_IMAGE_IN_USE: Final = 2
"""How podman ends that does not remove an image, as a container has it."""
_REMOVE_IMAGES_SECONDS: Final = 20.0
"""Who is short of disk waits no longer; what is left goes the next time."""
_NO_IMAGE: Final = 1
"""The same, as it is gone already."""
_PULL_PAUSE_SECONDS: Final = (10.0, 300.0)
"""Between two tries to fetch an image: at first, and at most."""


class PodmanDriver:
    """`root`: the agent's directory, by which it knows its containers."""

    name = PODMAN

    def __init__(self, client: PodmanClient, policy: RunPolicy, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.policy = policy
        self._client = client
        self._clock = clock
        self._record = root / _FETCHED
        self._owner = hashlib.sha256(str(root).encode()).hexdigest()[:12]
        self._controllers = CONTROLLERS
        """Of cgroups, that podman can use here; as it said last."""
        self._slots = threading.Semaphore(_AT_ONCE_MAX)
        self._lock = threading.Lock()
        self._not_before: dict[str, tuple[float, float]] = {}
        """By image that could not be fetched: when it is tried again, and the pause before that."""

    @property
    def binary(self) -> str:
        return self._client.binary

    @property
    def capabilities(self) -> DriverCapabilities:
        return DriverCapabilities(images=True, mounts=True, limits="memory" in self._controllers)

    def fingerprint(self) -> DriverFingerprint:
        found = self._client.run("info", "--format", _INFO, seconds=_FINGERPRINT_SECONDS)
        if found.code == 127:
            return DriverFingerprint(DriverHealth.UNDETECTED, text=found.fault)
        if found.code:
            return DriverFingerprint(DriverHealth.UNHEALTHY, text=found.fault or f"podman info ended with {found.code}")
        version, _, controllers = found.text.strip().partition(" ")
        self._controllers = frozenset(json.loads(controllers or "null") or ())
        return DriverFingerprint(DriverHealth.HEALTHY, version)

    def specify(self, pod: Pod, container: Container, place: AttemptPlace) -> dict[str, Any]:
        check_image(container)
        check_promises(pod)
        variables = container_environment(pod, container, place)
        options = create_options(pod, container, place, self.policy, self._owner)
        options += limit_options(container, self._controllers, self.policy.pod_pids)
        command, arguments = program(container, variables)
        binary, name = self._client.binary, engine_name(pod.metadata.uid, container.name, place.attempt)
        return {
            "argv": [binary, "start", "--attach", "--sig-proxy=false", name],
            "env": self._client.environment,
            "cwd": "/",
            "user": None,
            "log": place.log,
            "engine": {
                "name": name,
                "state": [binary, "container", "inspect", "--format", "{{json .State}}", name],
                "remove": [binary, "rm", "--force", "--ignore", "--time", "0", "--volumes", name],
                "exec": [binary, "exec"],
            },
            "create": {
                "uid": pod.metadata.uid,
                "container": container.name,
                "image": container.image,
                "pull_policy": container.image_pull_policy or "IfNotPresent",
                "no_root": asks_for_no_root(pod, container),
                "options": [*options, *command],
                "environment": variables,
                "arguments": arguments,
            },
        }

    # ------------------------------------------------------------------------------------------------------------- prepare

    def prepare(self, spec: dict[str, Any], directory: Path, is_cancelled: Callable[[], bool]) -> list[PodEvent]:
        asked = spec["create"]
        try:
            with self._slot(is_cancelled):
                events = self._fetch(asked["image"], asked["pull_policy"], is_cancelled)
                if asked["no_root"]:
                    self._check_user(asked["image"], is_cancelled)
                self._remove_earlier(asked["uid"], asked["container"], is_cancelled)
                self._create(asked, spec["oom_score_adj"], directory, is_cancelled)
        except PodmanCancelled:
            raise DriverFault("ContainerCreating", CANCELLED) from None
        return events

    @contextmanager
    def _slot(self, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        while not self._slots.acquire(timeout=_WAIT_SECONDS):
            if is_cancelled():
                raise PodmanCancelled
        try:
            yield
        finally:
            self._slots.release()

    def _fetch(self, image: str, policy: str, is_cancelled: Callable[[], bool]) -> list[PodEvent]:
        is_there = not self._client.run("image", "exists", image, seconds=_COMMAND_SECONDS, is_cancelled=is_cancelled).code
        if policy == "Never" and not is_there:
            raise DriverFault("ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never')
        if is_there and policy != "Always":
            return [PodEvent("Normal", "Pulled", f'Container image "{image}" already present on machine')]
        self._check_pause(image)
        began_at = self._clock()
        found = self._client.run("pull", "--quiet", image, seconds=_PULL_SECONDS, is_cancelled=is_cancelled)
        if found.code:
            self._pause(image)
            raise DriverFault("ErrImagePull", f'Failed to pull image "{image}": {found.fault}')
        with self._lock:
            self._not_before.pop(image, None)
            if not is_there:
                self._save_fetched({*self._fetched(), image})
        return [PodEvent("Normal", "Pulled", f'Successfully pulled image "{image}" in {self._clock() - began_at:.3f}s')]

    def _check_pause(self, image: str) -> None:
        with self._lock:
            not_before, _ = self._not_before.get(image, (0.0, 0.0))
        if self._clock() < not_before:
            raise DriverFault("ImagePullBackOff", f'Back-off pulling image "{image}"')

    def _pause(self, image: str) -> None:
        first, most = _PULL_PAUSE_SECONDS
        with self._lock:
            _, before = self._not_before.get(image, (0.0, first / 2))
            pause = min(before * 2, most)
            self._not_before[image] = (self._clock() + pause, pause)

    def _check_user(self, image: str, is_cancelled: Callable[[], bool]) -> None:
        found = self._client.run(
            "image", "inspect", "--format", "{{.Config.User}}", image, seconds=_COMMAND_SECONDS, is_cancelled=is_cancelled
        )
        user = found.text.strip().partition(":")[0]
        if found.code:
            raise DriverFault("CreateContainerError", found.fault)
        if not user.isdigit() and user:
            text = f"container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"
            raise DriverFault("CreateContainerConfigError", text)
        if not user or int(user) == 0:
            raise DriverFault("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")

    def _remove_earlier(self, uid: str, container: str, is_cancelled: Callable[[], bool]) -> None:
        """Attempts that nobody else has removed, as their shim was killed; whatever of them lives dies by that."""
        filters = ("--filter", f"label={UID_LABEL}={uid}", "--filter", f"label={CONTAINER_LABEL}={container}")
        self._remove(self._listed(*filters, is_cancelled=is_cancelled), is_cancelled)

    def _create(self, asked: dict[str, Any], oom_score_adj: int, directory: Path, is_cancelled: Callable[[], bool]) -> None:
        text, options = environment_by_file(asked["environment"])
        path = directory / "environment"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)
            found = self._client.run(
                "create",
                *asked["options"],
                *options,
                *("--oom-score-adj", str(max(oom_score_adj, lowest_score()))),
                *("--env-file", str(path), "--", asked["image"], *asked["arguments"]),
                seconds=_COMMAND_SECONDS,
                is_cancelled=is_cancelled,
            )
        finally:
            path.unlink(missing_ok=True)
        if found.code:
            raise DriverFault("CreateContainerError", found.fault or f"podman create ended with {found.code}")

    # -------------------------------------------------------------------------------------------------------------- images

    def images(self) -> list[ContainerImage]:
        found = _objects(self._client.run("images", "--format", "json", seconds=_COMMAND_SECONDS))
        return [ContainerImage(names=one["Names"], size_bytes=one["Size"]) for one in found if one.get("Names")]

    def remove_unused_images(self) -> int:
        removed, ends_at = 0, time.monotonic() + _REMOVE_IMAGES_SECONDS
        for image in sorted(self._fetched()):
            if time.monotonic() >= ends_at:
                break
            found = self._client.run("image", "rm", image, seconds=_REMOVE_IMAGES_SECONDS)
            if found.code == _IMAGE_IN_USE:
                continue
            if found.code not in (0, _NO_IMAGE):
                raise DriverFault("ImageInspectError", found.fault or f"podman image rm ended with {found.code}")
            removed += not found.code
            with self._lock:
                self._save_fetched(self._fetched() - {image})
        return removed

    def _fetched(self) -> set[str]:
        try:
            return set(json.loads(self._record.read_text(encoding="utf-8"))["images"])
        except FileNotFoundError:
            return set()

    def _save_fetched(self, images: set[str]) -> None:
        """While the lock is held."""
        write_json(str(self._record), {"images": sorted(images)})

    # ------------------------------------------------------------------------------------------------------------- collect

    def collect(self, uids: Collection[str]) -> int:
        found = self._client.run(
            *("ps", "--all", "--format", "json", "--filter", f"label={OWNER_LABEL}={self._owner}"), seconds=_COMMAND_SECONDS
        )
        left = [one["Id"] for one in _objects(found) if one["Labels"].get(UID_LABEL) not in uids]
        self._remove(left)
        return len(left)

    def _listed(self, *filters: str, is_cancelled: Callable[[], bool]) -> list[str]:
        found = self._client.run("ps", "--all", "--format", "json", *filters, seconds=_COMMAND_SECONDS, is_cancelled=is_cancelled)
        return [one["Id"] for one in _objects(found)]

    def _remove(self, ids: list[str], is_cancelled: Callable[[], bool] = never) -> None:
        command = ("rm", "--force", "--ignore", "--time", "0", "--volumes", *ids)
        found = PodmanAnswer(0, "", "")
        for _ in range(_REMOVALS_MAX if ids else 0):
            found = self._client.run(*command, seconds=_COMMAND_SECONDS, is_cancelled=is_cancelled)
            if not found.code:
                return
            # Of one whose processes and monitor were killed podman sees that only when it looks, and then does not go on.
            time.sleep(_WAIT_SECONDS)
        if found.code:
            raise DriverFault("CreateContainerError", found.fault or f"podman rm ended with {found.code}")


def _objects(answer: PodmanAnswer) -> list[dict[str, Any]]:
    if answer.code:
        raise DriverFault("CreateContainerError", answer.fault or f"podman ps ended with {answer.code}")
    found = json.loads(answer.text or "[]")
    return found or []


def lowest_score(status: Path = Path("/proc/self/status"), own: Path = Path("/proc/self/oom_score_adj")) -> int:
    """The lowest oom_score_adj that this process may give others."""
    may_lower = 1 << 24
    """CAP_SYS_RESOURCE."""
    for line in status.read_text(encoding="utf-8").splitlines():
        if line.startswith("CapEff:") and int(line.split()[1], 16) & may_lower:
            return -1000
    return int(own.read_text(encoding="ascii"))
