"""The door of an agent for commands on its own host: a unix socket in its directory, a line of JSON each way.

    {"verb": "shutdown"}        → {"ok": true, "shutting_down": true, "over": false, "pods": 3}

Verbs: shutdown, cancel-shutdown, state. Each may be asked twice, and an agent that does not answer for now is asked again: who
waits for a shutdown waits for pods, which a host that goes down too early would end. Only who may write to the agent's directory
reaches it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

_NAME: Final = "control.sock"
_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 60.0
"""So long an agent that is there and does not answer is asked again."""
_AGAIN_SECONDS: Final = 1.0
_FAULT_SECONDS: Final = 0.1
_LINE_MAX: Final = 1 << 16

log = logging.getLogger(__name__)

Answer = dict[str, Any]


class ControlFault(Exception):
    """No agent answers there; one line."""


class ControlDoor:
    """Start it once, stop it once. `answer` is called on threads of its own, one for each connection."""

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
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(peer,), name="node-command", daemon=True).start()
            except (OSError, RuntimeError) as error:
                # Out of descriptors or threads, for example: the next command may come when there are some again.
                if not self._stopped.wait(_FAULT_SECONDS):
                    log.warning("a command at the agent's door is not taken: %s", error)

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            try:
                peer.settimeout(_SECONDS)
                verb = json.loads(_line(peer))["verb"]
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                log.warning("a command at the agent's door was no command: %s", error)
                return
            try:
                answer = self._answer(str(verb))
            except Exception as error:
                log.exception("a command at the agent's door has failed")
                answer = {"ok": False, "error": f"the agent has failed ({type(error).__name__}); its log says why"}
            try:
                peer.sendall(json.dumps(answer).encode() + b"\n")
            except OSError as error:
                log.warning("who gave a command at the agent's door has gone: %s", error)


def ask_agent(
    root: Path,
    verb: str,
    *,
    is_there: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """What the agent in that directory answers; one that is busy is asked again for a minute. `is_there`: it has answered before,
    so that nobody answers is for now as well. Raises ControlFault."""
    ends_at = clock() + _PATIENCE_SECONDS
    while True:
        try:
            found = _asked(root, verb)
        except (OSError, ValueError) as error:
            fault = f"{root}: no agent answers there ({error})"
            if not is_there and not isinstance(error, TimeoutError):
                raise ControlFault(fault) from None
        else:
            if found["ok"]:
                return found
            fault = f"{root}: {found['error']}"
            if not found.get("busy", False):
                raise ControlFault(fault)
        if clock() >= ends_at:
            raise ControlFault(fault)
        sleep(_AGAIN_SECONDS)


def _asked(root: Path, verb: str) -> Answer:
    """Raises OSError and ValueError."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(_SECONDS)
    with peer, _short_path(root) as path:
        peer.connect(path)
        peer.sendall(json.dumps({"verb": verb}).encode() + b"\n")
        found: Answer = json.loads(_line(peer))
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
