"""The door of an agent for commands on its own host: a unix socket in its directory, a line of JSON each way.

    {"verb": "shutdown"}        → {"ok": true, "shutting_down": true, "over": false, "pods": 3}

Verbs: shutdown, cancel-shutdown, state. Only who may write to the agent's directory reaches it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

_NAME: Final = "control.sock"
_SECONDS: Final = 10.0
_LINE_MAX: Final = 1 << 16

log = logging.getLogger(__name__)

Answer = dict[str, Any]


class ControlFault(Exception):
    """No agent answers there; one line."""


class ControlDoor:
    """Start it once, stop it once. `answer` is called on its thread, one at a time."""

    def __init__(self, root: Path, answer: Callable[[str], Answer]) -> None:
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short_path(root) as path:
            # Whoever holds the directory's lock is the only one to listen in it.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self._listener.bind(path)
            os.chmod(path, 0o600)
        self._listener.listen()
        self._thread = threading.Thread(target=self._run, name="node-control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                try:
                    peer.settimeout(_SECONDS)
                    verb = json.loads(_line(peer))["verb"]
                    peer.sendall(json.dumps(self._answer(str(verb))).encode() + b"\n")
                except (OSError, ValueError, KeyError, TypeError) as error:
                    log.warning("a command at the agent's door was no command: %s", error)


def ask_agent(root: Path, verb: str) -> Answer:
    """What the agent in that directory answers. Raises ControlFault."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(_SECONDS)
    try:
        with peer, _short_path(root) as path:
            peer.connect(path)
            peer.sendall(json.dumps({"verb": verb}).encode() + b"\n")
            found: Answer = json.loads(_line(peer))
    except (OSError, ValueError) as error:
        raise ControlFault(f"{root}: no agent answers there ({error})") from None
    if not found["ok"]:
        raise ControlFault(f"{root}: {found['error']}")
    return found


def _line(peer: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = peer.recv(4096)
        data += part
        if not part or len(data) > _LINE_MAX:
            raise ValueError("the line has no end")
    return data


@contextlib.contextmanager
def _short_path(root: Path) -> Iterator[str]:
    """The path may be longer than a socket's address can be."""
    there = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{there}/{_NAME}"
    finally:
        os.close(there)
