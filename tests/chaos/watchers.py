"""Watch streams under faults, held against what etcd's history says: S6 and S7.

Each stream is told by the auditor what etcd's history has for it, and compares that with what it reads while it goes on, so that
a stream of any length takes no room. A `Watcher` follows all pods through the client, which resumes broken streams by itself. A
`SlowWatcher` reads next to nothing; the server has to cut it off, and to tell where to go on.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from rayched.audit.auditor import PodChange
from rayched.client.client import Client
from rayched.client.endpoints import is_broken
from rayched.client.errors import ApiError, api_error
from rayched.client.watching import Event, WatchProgress
from rayched.v1.services_pb2 import WatchRequest
from rayched.v1.services_pb2_grpc import WatchStub

Listen = Callable[[Callable[[PodChange], object]], int]
"""Begins to tell of all changes from the revision on that is returned."""
SLOW_SECONDS: Final = 40.0
"""A server cuts a stream off that took nothing for 30 s."""
_AGAIN_SECONDS: Final = 0.2


class Stream:
    """What one stream has seen against what it shall see. The auditor's thread only appends, so that nothing holds it up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._expected: deque[PodChange] = deque()
        self._seen: deque[PodChange] = deque()
        self._compared = 0
        self.wrong: str | None = None
        """The first difference, in words."""
        self.failure: str | None = None
        """Why the stream ended, where it did by itself."""

    def expect(self, change: PodChange) -> None:
        if self.wrong is None:
            self._expected.append(change)

    def saw(self, change: PodChange) -> None:
        with self._lock:
            self._seen.append(change)
            self._compare()

    def verdict(self) -> str | None:
        """What is wrong with the stream when nothing more comes, in words; that it lacks the end of the history is not."""
        with self._lock:
            self._compare()
            if self.wrong is None and self._seen:
                more = len(self._seen)
                return f"the stream has {more} events that the history does not have, first {_words(self._seen[0])}"
            return self.wrong

    @property
    def events(self) -> int:
        """Seen and right."""
        return self._compared

    @property
    def is_ahead(self) -> bool:
        """It has seen what the auditor has not."""
        with self._lock:
            self._compare()
            return bool(self._seen)

    @property
    def has_caught_up(self) -> bool:
        """It has seen what the auditor has seen, and nothing else."""
        with self._lock:
            self._compare()
            return self.wrong is not None or not (self._expected or self._seen)

    def _compare(self) -> None:
        while self.wrong is None and self._expected and self._seen:
            expected, seen = self._expected.popleft(), self._seen.popleft()
            # Within one revision the order is etcd's, and a stream keeps it.
            if expected != seen:
                self.wrong = f"event {self._compared} of the stream is {_words(seen)}, in the history it is {_words(expected)}"
            self._compared += 1
        if self.wrong is not None:
            self._expected.clear()
            self._seen.clear()


class Watcher(Stream):
    """A thread that reads one stream of all pods."""

    def __init__(self, endpoints: Sequence[str], listen: Listen) -> None:
        super().__init__()
        self._client = Client(endpoints, timeout_seconds=30.0)
        self.start_revision = listen(self.expect)
        self._stream = self._client.watch("pods", start_revision=self.start_revision, patience_seconds=120.0)
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self.times: dict[int, float] = {}
        """When each revision was seen first, for those who ask for it by `keep_times`."""
        self.keep_times = False

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
                    self.saw(_change(event))
                    if self.keep_times:
                        self.times.setdefault(event.revision, time.monotonic())
        except ApiError as error:
            self.failure = str(error)


class SlowWatcher(Stream):
    """A thread that opens a stream of all pods, reads a little, and then nothing for longer than the server has patience.

    A stream that the server cut off goes on with the revision that the server named; one whose replica died with the revision
    after the last one seen.
    """

    def __init__(self, endpoints: Sequence[str], listen: Listen, pause_seconds: float = SLOW_SECONDS) -> None:
        super().__init__()
        self._endpoints = list(endpoints)
        self._progress = WatchProgress(WatchRequest(kind="Pod", start_revision=listen(self.expect)), bookmarks=False)
        self._pause_seconds = pause_seconds
        self._named = 0
        """The revision that the server named last, until a stream goes on with it."""
        self._hurried = threading.Event()
        self._stopped = False
        self._call: Any = None
        self._thread = threading.Thread(target=self._run, name="slow watcher", daemon=True)
        self.cut_off = 0
        """Times that the server ended a stream because it was not read."""

    def start(self) -> SlowWatcher:
        self._thread.start()
        return self

    def hurry(self) -> None:
        """Reads without pauses from now on."""
        self._hurried.set()

    def stop(self) -> None:
        self._stopped = True
        self.hurry()
        if self._call is not None:
            self._call.cancel()
        self._thread.join(5.0)

    def _run(self) -> None:
        for endpoint in itertools.cycle(self._endpoints):
            if self._stopped or self.failure is not None:
                return
            # A small window lets the server notice soon; a large one would swallow minutes of events.
            options = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
            with grpc.insecure_channel(endpoint, options=options) as channel:
                stub: Any = WatchStub(channel)  # type: ignore[no-untyped-call]
                request = self._progress.watch_request()
                request.start_revision = self._named or request.start_revision
                self._named = 0
                self._call = stub.Watch(request)
                try:
                    self._read()
                except grpc.RpcError as error:
                    self._ended(api_error(error, endpoint))
            time.sleep(_AGAIN_SECONDS)

    def _read(self) -> None:
        """Until the stream breaks."""
        for response in self._call:
            for event in self._progress.events_of(response):
                if event.object is not None:
                    self.saw(_change(event))
            self._hurried.wait(self._pause_seconds)

    def _ended(self, error: ApiError) -> None:
        if error.code is grpc.StatusCode.ABORTED and error.resume_revision:
            self.cut_off += 1
            if error.resume_revision > self._progress.revision + 1:
                self.failure = f"cut off with revision {error.resume_revision}, and {self._progress.revision} was sent last"
            # A response whose sending the server gave up may have arrived: what it holds comes again, and counts once.
            self._named = error.resume_revision
        elif not is_broken(error):
            self.failure = str(error)


def _change(event: Event) -> PodChange:
    assert event.object is not None
    metadata = event.object.metadata
    return PodChange(event.revision, event.type.name, f"{metadata.namespace}/{metadata.name}")


def _words(change: PodChange) -> str:
    return f"{change.kind} {change.name} at {change.revision}"
