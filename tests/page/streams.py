"""The page's stream, read by a client without a browser."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from tests.gateway.requests import TIMEOUT_SECONDS

Frame = tuple[str, dict[str, Any]]


class PageFrames:
    """Messages by name, as they come. Use it in a `with`."""

    def __init__(self, url: str, topics: str = "usage,status,leader,events") -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_SECONDS)
        self._connection.request("GET", f"/ui/stream?topics={topics}")
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.headers = dict(self._answer.getheaders())

    def __enter__(self) -> PageFrames:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[Frame]:
        name = ""
        while line := self._answer.readline().decode():
            if line.startswith("event: "):
                name = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))

    def until(self, holds: Callable[[str, dict[str, Any]], bool], frames: int = 2_000) -> Frame:
        """The first message of which it holds."""
        for number, (name, content) in enumerate(self):
            if holds(name, content):
                return name, content
            assert number < frames, "no such message came"
        raise AssertionError("the stream ended")


class SeenColumns:
    """Columns as a reader keeps them: the whole, and rows that changed."""

    def __init__(self) -> None:
        self.rows: dict[str, list[int]] = {}
        """By node: cpu, memory, pods, state, extended resources."""
        self.extended: list[str] = []
        self.zone: dict[str, str] = {}
        self.revision = 0
        self._names: list[str] = []

    def take(self, message: dict[str, Any]) -> None:
        self.revision = message["revision"]
        if message.get("full"):
            self._names = message["names"]
            self.extended = list(message["extended"])
            others = message["extended"].values()
            columns = zip(message["cpu"], message["memory"], message["pods"], message["state"], *others, strict=True)
            self.rows = dict(zip(self._names, map(list, columns), strict=True))
            self.zone = {name: message["zones"][at] for name, at in zip(self._names, message["zone"], strict=True)}
            return
        for row, *values in message["rows"]:
            self.rows[self._names[row]] = values
