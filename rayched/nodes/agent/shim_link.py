"""The agent's end of a shim: starts one, connects to it, asks it, hears what happens. Used by the thread that owns the pod alone.

`start_shim` takes some 50 ms and may be called by any thread. The shim gets an empty environment: nothing of the agent's can
reach a pod through it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_PACKAGE_ROOT: Final = Path(__file__).parents[3]
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from rayched.nodes.agent.shim.main import main; main(sys.argv[2])"
_START_SECONDS: Final = 30.0
_SEND_SECONDS: Final = 2.0
_READ_BYTES: Final = 1 << 16

Answer = dict[str, Any]


class ShimFault(Exception):
    """A shim cannot be started or reached; one line."""


def start_shim(directory: Path) -> None:
    """Returns when it listens. Raises ShimFault."""
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_PACKAGE_ROOT), str(directory)]
    try:
        done = subprocess.run(
            command,
            # By that shims are told from other processes as well (leftovers.py).
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=_START_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ShimFault(f"the shim in {directory} does not start: {error}") from None
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip().splitlines()
        raise ShimFault(f"the shim in {directory} does not start: {text[-1] if text else done.returncode}")


class ShimLink:
    """One connection. `heard` gets each event; `closed` is called once when the shim is gone."""

    def __init__(self, directory: Path, heard: Callable[[Answer], None], closed: Callable[[], None]) -> None:
        self._heard = heard
        self._closed = closed
        self._waiting: dict[int, Callable[[Answer], None]] = {}
        self._number = 0
        self._buffer = b""
        self._is_closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_SEND_SECONDS)
        try:
            connect_to_shim(self._socket, directory)
        except OSError as error:
            self._socket.close()
            raise ShimFault(f"the shim in {directory} cannot be reached: {error.strerror}") from None

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def ask(self, verb: str, answered: Callable[[Answer], None], **fields: Any) -> None:
        """`answered` gets the answer later, or one with `ok` false when the shim is gone before."""
        self._number += 1
        self._waiting[self._number] = answered
        line = json.dumps({"id": self._number, "verb": verb, **fields}).encode() + b"\n"
        try:
            self._socket.sendall(line)
        except OSError:
            self.close()

    def tell(self, verb: str, **fields: Any) -> None:
        """For what needs no answer, or tells its outcome by an event."""
        self.ask(verb, lambda _: None, **fields)

    def answer(self, verb: str, seconds: float) -> Answer:
        """What it answers, one with `ok` false where it does not for so long. For who has nothing else to look after."""
        found: list[Answer] = []
        self.ask(verb, found.append)
        while not found:
            self.wait(seconds)
        return found[0]

    def wait(self, seconds: float) -> None:
        """Reads what comes, and closes a link on which nothing comes. For who has nothing else to look after."""
        if select.select([self._socket], [], [], seconds)[0]:
            self.ready()
        else:
            self.close()

    def ready(self) -> None:
        """Reads what there is. Not to be called when there is nothing."""
        try:
            data = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            number = message.get("id")
            if number is None:
                self._heard(message)
            else:
                answered = self._waiting.pop(number, None)
                if answered is not None:
                    answered(message)

    def close(self) -> None:
        """Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            answered({"ok": False, "kind": "gone", "error": "the shim is gone"})
        self._closed()
        # The next connection may have the same number, and shall not before the end of this one is told.
        self._socket.close()


def connect_to_shim(connection: socket.socket, directory: Path) -> None:
    """The path may be longer than a socket's address can be. Raises OSError."""
    there = os.open(directory / "shim", os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{there}/sock")
    finally:
        os.close(there)
