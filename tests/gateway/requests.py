"""Requests over HTTP as clients without a library make them."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def connection_to(url: str, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
    place = urlsplit(url).netloc
    if tls is not None:
        return http.client.HTTPSConnection(place, timeout=TIMEOUT_SECONDS, context=tls)
    return http.client.HTTPConnection(place, timeout=TIMEOUT_SECONDS)


def ask(
    url: str,
    path: str,
    method: str = "GET",
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """One request; a body that is no bytes is sent as JSON."""
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection = connection_to(url, tls)
    try:
        connection.request(method, path, raw, dict(headers or {}))
        answer = connection.getresponse()
        return HttpAnswer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


class WatchLines:
    """A watch, line by line. Use it in a `with`."""

    def __init__(self, url: str, path: str, tls: ssl.SSLContext | None = None, headers: Mapping[str, str] | None = None) -> None:
        self._connection = connection_to(url, tls)
        self._connection.request("GET", path, headers=dict(headers or {}))
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def __enter__(self) -> WatchLines:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while line := self._answer.readline():
            yield json.loads(line)

    def take(self, count: int) -> list[dict[str, Any]]:
        lines = iter(self)
        return [next(lines) for _ in range(count)]
