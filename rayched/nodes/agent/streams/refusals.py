"""Why an agent ends a stream: with a code of gRPC and a line for the client."""

from __future__ import annotations

from typing import Any, Final

import grpc

Code: Final = grpc.StatusCode


class StreamRefusal(Exception):
    """What the client is told instead of an answer."""

    def __init__(self, code: Any, message: str) -> None:
        super().__init__(message)
        self.code: int = code.value[0]
        self.message = message


def forbidden(message: str) -> StreamRefusal:
    """The state of the container forbids it."""
    return StreamRefusal(Code.FAILED_PRECONDITION, message)


def not_there(message: str) -> StreamRefusal:
    return StreamRefusal(Code.NOT_FOUND, message)


def refused(message: str) -> StreamRefusal:
    """The caller may not."""
    return StreamRefusal(Code.PERMISSION_DENIED, message)
