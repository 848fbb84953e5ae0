"""A log across streams that break: what was received, and where the next stream goes on. Pure; both clients use it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rayched.v1.streams_pb2 import LogsRequest, LogsResponse


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Some of a log."""

    data: bytes
    lost: bool
    """Lines before it were removed by rotation before they could be read."""


class LogProgress:
    """From the first request to the end of the log."""

    def __init__(self, request: LogsRequest) -> None:
        self._request = request
        self.is_done = False

    def request(self) -> LogsRequest:
        """For the next stream."""
        found = LogsRequest()
        found.CopyFrom(self._request)
        return found

    def take(self, response: LogsResponse) -> LogChunk | None:
        """None: it says nothing that is to be given out."""
        request = self._request
        if response.end:
            self.is_done = True
            return None
        if response.HasField("position"):
            request.resume.CopyFrom(response.position)
        if request.HasField("limit_bytes") and response.data:
            left = request.limit_bytes - len(response.data)
            self.is_done = left <= 0
            request.limit_bytes = max(left, 1)
        return LogChunk(response.data, response.lost) if response.data or response.lost else None


def logs_request(
    name: str,
    namespace: str,
    container: str,
    *,
    follow: bool,
    previous: bool,
    tail_lines: int | None,
    since_seconds: float | None,
    since_time: datetime | None,
    timestamps: bool,
    limit_bytes: int | None,
) -> LogsRequest:
    request = LogsRequest(
        namespace=namespace,
        pod=name,
        container=container,
        follow=follow,
        previous=previous,
        tail_lines=tail_lines,
        since_seconds=since_seconds,
        timestamps=timestamps,
        limit_bytes=limit_bytes,
    )
    if since_time is not None:
        request.since_time.FromDatetime(since_time)
    return request
