"""A pod by a driver and its shim alone: what the contract of drivers is about, without an agent, a replica or etcd."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rayched.nodes.agent.containment import ContainmentTier, tier_of, tracking_root
from rayched.nodes.agent.disk import NodeDirectory
from rayched.nodes.agent.drivers.container_driver import ContainerDriver
from rayched.nodes.agent.drivers.podman_client import PodmanClient
from rayched.nodes.agent.drivers.podman_driver import PodmanDriver
from rayched.nodes.agent.drivers.process_driver import ProcessDriver
from rayched.nodes.agent.process_specs import AttemptPlace, RunPolicy
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim_link import Answer, ShimLink, start_shim
from rayched.nodes.agent.stats import NodeBounds, NodeStats, PodFigures, PodPlace
from rayched.v1.core_pb2 import Pod
from tests.nodes.fake_podman import add_image, installed

PATIENCE_SECONDS = 60.0
IMAGE = "rayched-test:1"
BACKENDS = ("process-tree", "process-tracking", "process-cgroup", "podman-fake", "podman-real")


def a_policy() -> RunPolicy:
    own = os.geteuid()
    return RunPolicy(own, os.getegid(), own, os.getegid(), allow_root=True)


@dataclass
class Backend:
    """A driver on this host. `root`: the directory of its node."""

    name: str
    root: Path
    driver: ContainerDriver
    cgroups: Path | None = None
    tells_why: bool = True
    """Whether it always knows that a container was killed for want of memory."""

    @property
    def image(self) -> str:
        return IMAGE if self.driver.capabilities.images else ""


@contextmanager
def backend_of(name: str, directory: Path) -> Iterator[Backend]:
    """Skips the test where this host does not have it."""
    root = directory / "node"
    root.mkdir()
    kind, _, which = name.partition("-")
    if kind == "process":
        cgroups = _cgroups(root, which)
        yield Backend(name, root, ProcessDriver(a_policy(), cgroups), cgroups)
        if cgroups is not None:
            _remove_cgroups(cgroups)
        return
    program = str(_fake(directory) if which == "fake" else _real(directory))
    environ = {**os.environ, "CONTAINERS_CONF": str(directory / "containers.conf")}
    found = Backend(name, root, PodmanDriver(PodmanClient(program, environ), a_policy(), root))
    found.driver.fingerprint()
    if which == "real":
        version = [program, "info", "--format", "{{.Host.CgroupsVersion}}"]
        found.tells_why = subprocess.run(version, check=True, env=environ, capture_output=True, text=True).stdout.strip() == "v2"
    yield found
    found.driver.collect(())


def _cgroups(root: Path, tier: str) -> Path | None:
    if tier == ContainmentTier.TREE:
        return None
    found = tracking_root(root)
    if found is None:
        pytest.skip("this host has no cgroup of the second version that may be written to")
    if tier == ContainmentTier.CGROUP and tier_of(found) is not ContainmentTier.CGROUP:
        found.rmdir()
        pytest.skip("the cgroup of the second version has no controllers of cpu, memory and pids on this host")
    return found


def _remove_cgroups(root: Path) -> None:
    for below in sorted((entry for entry in root.rglob("*") if entry.is_dir()), reverse=True):
        below.rmdir()
    root.rmdir()


def _fake(directory: Path) -> Path:
    program = installed(directory / "fake")
    add_image(program, IMAGE)
    return program


def _real(directory: Path) -> str:
    program, busybox = shutil.which("podman"), shutil.which("busybox")
    if program is None:
        pytest.skip("podman is not installed on this host")
    if busybox is None:
        pytest.skip("an image for podman is made of busybox, which is not installed on this host")
    runtime = 'runtime = "runc"\n' if shutil.which("runc") else ""
    (directory / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
        f'[engine]\n{runtime}cgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
    )
    archive = directory / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(busybox, "bin/busybox")
        for applet in ("sh", "sleep", "env", "head", "tr", "cat", "setsid", "seq", "echo", "pwd", "id", "touch"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    environ = {**os.environ, "CONTAINERS_CONF": str(directory / "containers.conf")}
    subprocess.run([program, "import", "--quiet", str(archive), IMAGE], check=True, env=environ, capture_output=True)
    return program


@dataclass
class DrivenPod:
    """One pod by `backend`."""

    backend: Backend
    pod: Pod
    events: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node = NodeDirectory(self.backend.root, traversable=True)
        self.node.open("n")
        self.node.close()
        self.directory = self.node.pod(self.pod.metadata.uid)
        self.directory.make()
        self.open()

    def open(self) -> None:
        """A shim of its own, and a link to it."""
        start_shim(self.directory.path)
        self.link = self.linked()

    def linked(self) -> ShimLink:
        return ShimLink(self.directory.path, self.events.append, lambda: None)

    @property
    def shim(self) -> int:
        state = self.directory.shim_state()
        assert state is not None
        return int(state["pid"])

    # -------------------------------------------------------------------------------------------------------------- verbs

    def ask(self, verb: str, link: ShimLink | None = None, **fields: Any) -> Answer:
        link, found = link or self.link, list[Answer]()
        link.ask(verb, found.append, **fields)
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while not found:
            assert time.monotonic() < ends_at, f"no answer to {verb}"
            link.wait(PATIENCE_SECONDS)
        return found[0]

    def prepare(self, name: str = "main", attempt: int = 0) -> None:
        container = next(one for one in self.pod.spec.containers if one.name == name)
        path = self.directory.attempt_path(name, attempt)
        log = str(self.directory.log_path(self.pod, name, attempt))
        place = AttemptPlace("n", "127.0.0.1", attempt, str(path / "work"), log, self._volumes())
        spec = {**self.backend.driver.specify(self.pod, container, place), "oom_score_adj": 500}
        self.directory.begin_attempt(name, attempt)
        self.directory.write_spec(name, attempt, spec)
        self.backend.driver.prepare(spec, path, lambda: False)

    def _volumes(self) -> dict[str, str]:
        return {volume.name: self.directory.volume(volume.name, None, None) for volume in self.pod.spec.volumes}

    def start(self, name: str = "main", attempt: int = 0) -> Answer:
        self.prepare(name, attempt)
        return self.ask("start", container=name, attempt=attempt)

    def end(self, name: str = "main", attempt: int = 0) -> dict[str, Any]:
        """Its exit, once it is told."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            for event in self.events:
                if event.get("event") == "ended" and (event["container"], event["attempt"]) == (name, attempt):
                    assert self.directory.exit_of(name, attempt) == event["exit"], "it is told before it is written"
                    exit_values: dict[str, Any] = event["exit"]
                    return exit_values
            assert time.monotonic() < ends_at, f"{name} has not ended; heard was {self.events}"
            self.link.wait(PATIENCE_SECONDS)

    def quit(self) -> None:
        self.link.tell("quit")
        until(lambda: not self.directory.shim_lives(), "its shim has ended")
        self.link.close()

    # --------------------------------------------------------------------------------------------------------------- views

    def log(self, name: str = "main", attempt: int = 0) -> list[tuple[str, str]]:
        """(stream, text) of each line."""
        path = self.directory.log_path(self.pod, name, attempt)
        return [(line.split(" ", 3)[1], line.split(" ", 3)[3]) for line in path.read_text().splitlines()]

    def said(self, *texts: str, name: str = "main", attempt: int = 0) -> None:
        """Waits for that in its log."""
        until(lambda: set(texts) <= {text for _, text in self.log(name, attempt)}, f"{name} says {texts}")

    def processes(self) -> set[int]:
        """Living ones of its containers."""
        return set(proc_table.processes_of_pod(self.pod.metadata.uid))

    def figures(self) -> PodFigures:
        stats = NodeStats(self.backend.root, NodeBounds(), 1 << 30)
        place = PodPlace(self.pod.metadata.uid, self.directory.path, self.directory.path / "no-logs", self.shim)
        return stats.look([place], 0.0).pods[self.pod.metadata.uid]


def until(holds: Callable[[], Any], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < ends_at, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.02)
