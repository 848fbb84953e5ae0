"""How the actors' log records reach the replica's log: one Unix socket, one packet a record.

An actor's own output goes into Ray's files, which end with that Ray. So each actor sends what it logs to the replica that
supervises it, on the same host, and the replica writes it with its own.

A record never waits for the replica: where the socket is full it is dropped, and the next one that gets through says how many
were. Only what is named in FIELDS travels beside the message, so nothing slips into a log by accident.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

FIELDS: Final = ("component", "pod", "node", "attempt", "cycle", "epoch")
"""What a record may carry beside its message, in the order in which it is written."""
MESSAGE_CHARS_MAX: Final = 16_000
_LOGGERS: Final = ("rayched", "leader")

Context = Callable[[], Mapping[str, Any]]
"""Fields that all records have at the moment; empty where there are none."""


@dataclass(frozen=True)
class LogTarget:
    """Where the records go, and from which level on. Crosses a process border."""

    path: str
    level: int


def send_logs(target: LogTarget | None, component: str, context: Context = dict) -> None:
    """From now on this process's records go there. Does nothing if there is no target, or no process listens there."""
    if target is None:
        return
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(target.path)
    except OSError:
        connection.close()
        return
    connection.setblocking(False)
    handler = SendingHandler(connection, component, context)
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(target.level)
        logger.addHandler(handler)


class SendingHandler(logging.Handler):
    """Logging calls it under its own lock."""

    def __init__(self, connection: socket.socket, component: str, context: Context) -> None:
        super().__init__()
        self._connection = connection
        self._component = component
        self._context = context
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            packet = json.dumps(self._packed(record), default=str).encode()
            self._connection.send(packet)
        except OSError:
            # Full, or the replica is gone; then this process is about to end as well.
            self._lost += 1
        except Exception:
            self.handleError(record)
        else:
            self._lost = 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()
        super().close()

    def _packed(self, record: logging.LogRecord) -> dict[str, Any]:
        found: dict[str, Any] = {
            "created": record.created,
            "level": record.levelno,
            "logger": record.name,
            "message": record.getMessage()[:MESSAGE_CHARS_MAX],
            "fields": {"component": self._component} | dict(self._context()) | fields_of(record),
        }
        if record.exc_info:
            found["trace"] = logging.Formatter().formatException(record.exc_info)[-MESSAGE_CHARS_MAX:]
        if self._lost:
            found["lost"] = self._lost
        return found


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the record carries beside its message."""
    return {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
