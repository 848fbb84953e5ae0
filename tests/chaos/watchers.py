"""Watch streams under faults, held against what etcd's history says: S6 and S7.

A `Watcher` follows all pods through the client, which resumes broken streams by itself. A `NeverReading` stream is opened and
left alone; the server shall cut it off and tell where to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc

from rayched.audit.auditor import PodChange
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import WatchRequest
from rayched.v1.services_pb2_grpc import WatchStub


class Watcher:
    """A thread that reads one stream from `start_revision` on."""

    def __init__(self, endpoints: Sequence[str], start_revision: int) -> None:
        self._client = Client(endpoints, timeout_seconds=30.0)
        self.start_revision = start_revision
        self._stream = self._client.watch("pods", start_revision=start_revision, patience_seconds=120.0)
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self.seen: list[PodChange] = []
        self.times: list[float] = []
        self.failure: str | None = None

    def start(self) -> Watcher:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stream.close()
        self._thread.join(5.0)
        self._client.close()

    def _run(self) -> None:
        try:
            for event in self._stream:
                if event.object is not None:
                    metadata = event.object.metadata
                    self.seen.append(PodChange(event.revision, event.type.name, f"{metadata.namespace}/{metadata.name}"))
                    self.times.append(time.monotonic())
        except ApiError as error:
            self.failure = str(error)


class NeverReading:
    """A stream whose reader does not read."""

    def __init__(self, endpoint: str, start_revision: int) -> None:
        # A small window lets the server notice soon; a large one would swallow minutes of events.
        options = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
        self._channel = grpc.insecure_channel(endpoint, options=options)
        stub: Any = WatchStub(self._channel)  # type: ignore[no-untyped-call]
        self._call = stub.Watch(WatchRequest(kind="Pod", start_revision=start_revision))

    def close(self) -> None:
        self._call.cancel()
        self._channel.close()


def wrong_in(seen: Sequence[PodChange], history: Sequence[PodChange], start_revision: int) -> list[str]:
    """What a stream lacks, has twice, or has out of order; it may end anywhere in the history. At most a few lines."""
    expected = [change for change in history if change.revision >= start_revision]
    for place, (one, other) in enumerate(zip(seen, expected, strict=False)):
        # Within one revision the order is etcd's, and a stream keeps it.
        if one != other:
            return [f"event {place} of the stream is {_words(one)}, in the history it is {_words(other)}"]
    if len(seen) > len(expected):
        more = len(seen) - len(expected)
        return [f"the stream has {more} events that the history does not have, first {_words(seen[len(expected)])}"]
    return []


def _words(change: PodChange) -> str:
    return f"{change.kind} {change.name} at {change.revision}"
