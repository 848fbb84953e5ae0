"""The lines of a replica's log, on standard error: text for people, or one JSON object a line for machines.

    {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "rayched.replica", "message": "...",
     "component": "replica", "epoch": 17}

Whatever a message holds, a record is one line and printable (api/printable.py); in text, a traceback follows in lines that begin
with blanks, so that no line that begins with a time is anybody's but the log's.

pod, node, attempt (the how-manieth of the pod), cycle (the decision's number in the scheduler's life), epoch (of a leader) and
error (with its story) are there where they are known.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

from rayched.actors.log_sending import FIELDS, Context, fields_of
from rayched.api import printable

JSON: Final = "json"


def log_to_stderr(log_format: str, level: str, context: Context = dict) -> None:
    """`context` gives fields that this process's own records have at the moment."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine(context) if log_format == JSON else TextLine())
    logging.basicConfig(level=level_of(level), handlers=[handler], force=True)
    # Below their warnings these tell about themselves, not about us.
    for name in ("asyncio", "grpc", "ray", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)


def level_of(name: str) -> int:
    return logging.getLevelNamesMapping()[name.upper()]


_INDENT: Final = "    "


class TextLine(logging.Formatter):
    """Time, level, who says it where that is an actor, message."""

    def __init__(self, line_format: str = "%(asctime)s %(levelname)s %(message)s") -> None:
        super().__init__(line_format)

    def format(self, record: logging.LogRecord) -> str:
        first, *story = super().format(record).split("\n")
        return "\n".join([first, *(_INDENT + printable.one_line(line) for line in story)])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        component = getattr(record, "component", "")
        if component:
            record.message = f"{component}: {record.message}"
        return printable.one_line(super().formatMessage(record))


class JsonLine(logging.Formatter):
    """One object; whatever the message holds, it is one line."""

    def __init__(self, context: Context = dict) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        found: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = fields_of(record)
        if "component" not in fields:
            fields = {"component": "replica"} | dict(self._context()) | fields
        found |= {name: fields[name] for name in FIELDS if name in fields}
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            found["error"] = record.exc_text
        return printable.json_text(json.dumps(found, ensure_ascii=False, default=str))
