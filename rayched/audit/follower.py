"""Follows etcd from its first revision and replays every one of them to an Auditor, on a thread of its own.

It has its own connection and its own watch. Where it falls behind a compaction the run is void, not passed: `error` says so.
A watch that breaks resumes behind the last whole revision. An etcd that has fewer revisions than were read from it has lost what
it had acknowledged; that is an `error` too.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.audit.auditor import Auditor, KeyChange

_RECONNECT_SECONDS = 0.1
_READ_SECONDS_MAX = 5.0
_DELETE = 1
"""mvccpb.Event.DELETE."""
Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class AuditFollower:
    """Owns the auditor while it runs; ask it questions through `ask`, or after `stop`."""

    def __init__(self, endpoints: Sequence[str], auditor: Auditor, root: str = "/rayched", start_revision: int = 1) -> None:
        self._endpoints = endpoints
        self._auditor = auditor
        self._prefix = f"{root}/cluster/".encode()
        self._next = start_revision
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._turned = False
        """There are other endpoints than those that are read from."""
        self._call: Any = None
        self.error: str | None = None
        self._thread = threading.Thread(target=self._run, name="auditor", daemon=True)

    def start(self) -> AuditFollower:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopped.set()
        if self._call is not None:
            self._call.cancel()
        self._thread.join(5.0)

    def turn_to(self, endpoints: Sequence[str]) -> None:
        """Reads on from these members of the same etcd, where others are about to fall silent; nothing is missed."""
        self._endpoints, self._turned = endpoints, True
        if self._call is not None:
            self._call.cancel()

    def ask(self, question: Callable[[Auditor], Answer]) -> Answer:
        """The answer to a question to the auditor between two revisions."""
        with self._lock:
            return question(self._auditor)

    def wait_for(self, condition: Callable[[Auditor], bool], seconds: float) -> bool:
        """Whether the condition came to hold within the time."""
        deadline = time.monotonic() + seconds
        while not self.ask(condition):
            if self.error is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _run(self) -> None:
        while not self._stopped.is_set() and self.error is None:
            self._turned = False
            self._follow_at(self._endpoints)

    def _follow_at(self, endpoints: Sequence[str]) -> None:
        with open_channel(endpoints) as channel:
            while not (self._stopped.is_set() or self._turned) and self.error is None:
                try:
                    self._follow(channel)
                except grpc.RpcError:
                    self._stopped.wait(_RECONNECT_SECONDS)
                except Exception as error:
                    # A judge that stumbles has judged nothing: the run is void.
                    _log.critical("the auditor failed", exc_info=True)
                    self.error = f"the auditor failed: {type(error).__name__}: {error}"

    def _follow(self, channel: grpc.Channel) -> None:
        end = self._prefix[:-1] + bytes([self._prefix[-1] + 1])
        create = rpc.WatchCreateRequest(key=self._prefix, range_end=end, start_revision=self._next)
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests.put(rpc.WatchRequest(create_request=create))
        self._call = rpc.WatchStub(channel).Watch(iter(requests.get, None), metadata=(("hasleader", "true"),))
        try:
            if self._turned:
                return
            for answer in self._call:
                if answer.compact_revision:
                    self.error = (
                        f"etcd was compacted to revision {answer.compact_revision}, and {self._next} was still to be read"
                    )
                    return
                if answer.canceled:
                    return
                if answer.created and answer.header.revision < self._next - 1 and self._has_gone_back(channel):
                    return
                seconds = time.monotonic()
                for revision, changes in _by_revision(answer.events):
                    with self._lock:
                        self._auditor.replay(revision, changes, seconds)
                    self._next = revision + 1
        finally:
            requests.put(None)
            self._call.cancel()

    def _has_gone_back(self, channel: grpc.Channel) -> bool:
        """A member that lags behind shows an older revision too; a linearizable read tells which it is."""
        answer = rpc.KVStub(channel).Range(rpc.RangeRequest(key=self._prefix, keys_only=True), timeout=_READ_SECONDS_MAX)
        if answer.header.revision >= self._next - 1:
            return False
        self.error = f"etcd went back to revision {answer.header.revision}, and {self._next - 1} had been read from it"
        return True


def _by_revision(events: Sequence[Any]) -> Iterator[tuple[int, list[KeyChange]]]:
    """The events of an answer in whole revisions; etcd never splits one over two answers unless it was asked to."""
    revision, changes = 0, list[KeyChange]()
    for event in events:
        if event.kv.mod_revision != revision and changes:
            yield revision, changes
            changes = []
        revision = event.kv.mod_revision
        changes.append(KeyChange(event.kv.key, None if event.type == _DELETE else event.kv.value))
    if changes:
        yield revision, changes
