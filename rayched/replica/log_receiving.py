"""The replica's end of its actors' logs: see actors/log_sending.py. One daemon thread; whoever logs never waits for it."""

from __future__ import annotations

import contextlib
import json
import logging
import selectors
import socket
import threading
from pathlib import Path
from typing import Any, Final

from rayched.actors.log_sending import FIELDS, LogTarget

_PACKET_BYTES_MAX: Final = 1 << 18
_ACTORS_MAX: Final = 64

log = logging.getLogger("rayched.replica")


class LogReceiver:
    """Writes what the actors log as if it had been logged here. A context manager."""

    def __init__(self, path: Path, level: int) -> None:
        """`path` lies in a directory that nobody else can reach."""
        self.target = LogTarget(str(path), level)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(_ACTORS_MAX)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)

    def __enter__(self) -> LogReceiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Takes what is there, and no more."""
        self._stopping.set()
        self._thread.join(1.0)
        if not self._thread.is_alive():
            for key in list(self._selector.get_map().values()):
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
            self._selector.close()

    def _run(self) -> None:
        while True:
            ready = self._selector.select(0.1)
            if not ready and self._stopping.is_set():
                return
            for key, _ in ready:
                connection = key.fileobj
                if connection is self._listener:
                    accepted, _ = self._listener.accept()
                    self._selector.register(accepted, selectors.EVENT_READ)
                elif isinstance(connection, socket.socket):
                    self._read(connection)

    def _read(self, connection: socket.socket) -> None:
        packet = b""
        with contextlib.suppress(OSError):
            packet = connection.recv(_PACKET_BYTES_MAX)
        if not packet:
            self._selector.unregister(connection)
            connection.close()
            return
        try:
            found = json.loads(packet)
            _write(found)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("an actor sent a log record that cannot be read: %s", error)


def _write(found: dict[str, Any]) -> None:
    fields = {name: value for name, value in found["fields"].items() if name in FIELDS}
    level, name = int(found["level"]), str(found["logger"])
    logger = logging.getLogger(name)
    if lost := found.get("lost"):
        logger.warning("%d log records were lost here", lost, extra=fields)
    if not logger.isEnabledFor(level):
        return
    message = str(found["message"])
    record = logger.makeRecord(name, level, "", 0, message, (), None, extra=fields)
    record.created = float(found["created"])
    record.msecs = record.created % 1 * 1000
    record.exc_text = found.get("trace")
    logger.handle(record)
