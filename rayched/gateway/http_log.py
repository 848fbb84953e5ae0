"""What the HTTP server logs: failures of this program, not what anybody who reaches the port can cause as often as they like.

aiohttp logs a traceback for each request that it cannot read, and for each answer whose reader has gone.
"""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError

_log = logging.getLogger(__name__)


def _is_told(record: logging.LogRecord) -> bool:
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, HttpProcessingError):
        # The answer tells whoever sent it.
        _log.debug("%s, which is no HTTP: %s", record.getMessage(), problem.message)
        return False
    if isinstance(problem, ConnectionResetError):
        _log.debug("%s, which has gone", record.getMessage())
        return False
    return True


HTTP_LOG: Final = logging.getLogger("rayched.gateway.http")
HTTP_LOG.addFilter(_is_told)
