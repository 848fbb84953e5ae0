"""A real shim without an agent, for tests: its directory, its containers, and a connection to it."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim_link import Answer, ShimLink, start_shim

PATIENCE_SECONDS = 30.0


class BareShim:
    """Of one pod. `heard`: the events that came so far."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.heard: list[Answer] = []
        (directory / "shim").mkdir(parents=True)
        start_shim(directory)
        self.link = self.connected()
        self.pid = int(self.asked("hello")["pid"])

    def connected(self) -> ShimLink:
        return ShimLink(self.directory, self.heard.append, lambda: None)

    def attempt(self, name: str, script: str, number: int = 0, **spec: Any) -> Path:
        """Written down, not started yet; its directory."""
        directory = self.directory / "containers" / name / str(number)
        directory.mkdir(parents=True)
        own = {"RAYCHED_CONTAINER": name, "RAYCHED_ATTEMPT": str(number), "RAYCHED_POD_UID": self.directory.name}
        values = {
            "argv": ["sh", "-c", script],
            "env": {"PATH": "/usr/bin:/bin", **own},
            "cwd": str(self.directory),
            "log": str(directory / "log"),
        }
        (directory / "spec.json").write_text(json.dumps({**values, **spec}))
        return directory

    def asked(self, verb: str, **fields: Any) -> Answer:
        found: list[Answer] = []
        self.link.ask(verb, found.append, **fields)
        while not found:
            self.link.wait(PATIENCE_SECONDS)
        return found[0]

    def below(self) -> list[int]:
        """What lives below the shim."""
        return [pid for pid in proc_table.tree_of(self.pid)[1:] if proc_table.is_alive(pid)]

    def end(self) -> None:
        """Of it all; what is frozen ends later."""
        pids = proc_table.tree_of(self.pid)
        for pid in reversed(pids):
            proc_table.kill(pid)
        until(lambda: all(proc_table.state_of(pid) in (None, "Z", "X", "D") for pid in pids), "the shim ends")


def own_uid() -> str:
    """Nobody else's on this host: by it a shim finds what is left of its pod, and would end another test's of the same uid."""
    return f"pod-{uuid.uuid4().hex[:12]}"


@contextmanager
def bare_shim(directory: Path) -> Iterator[BareShim]:
    """One that is killed at the end, whatever it does then, with all that runs below it."""
    shim = BareShim(directory)
    try:
        yield shim
    finally:
        shim.end()


@contextmanager
def unread_log(directory: Path) -> Iterator[Path]:
    """A log whose disk does not answer once it has taken what a pipe holds; it does again from the end on."""
    path = directory / "unread"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield path
    finally:
        os.close(reading)


def until(holds: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    ends_at = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends_at, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
