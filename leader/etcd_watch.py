"""Following the record and the epoch in etcd: one stream, two watches, resumed wherever it broke.

`WatchCursor` is the part without I/O: from which revision each key is to be watched, and what an answer means. `KeyWatch` is
the thread that carries it. The keys are read anew at the start, after a compaction, and when the store's revision is lower
than one that was seen (it lost acknowledged writes, or was restored); a broken stream goes on from where it was. An election
stays safe without any of this: a takeover compares revisions, and a leader's writes are guarded.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

import grpc
import tenacity

from leader.effects import Get
from leader.etcd_requests import LockKeys, build, read_outcome, read_watch_events
from leader.etcd_shim import rpc
from leader.events import Event, Found, Listed

_log = logging.getLogger("leader.etcd")

_READ_TIMEOUT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.02
"""Between two streams, so that a server that ends each stream at once is not called in a tight loop."""
_REQUIRE_LEADER: Final = (("hasleader", "true"),)
"""etcd then ends watches on a member that is cut off, in place of silence."""


class WatchCursor:
    """Where a watch of the two keys stands."""

    def __init__(self, keys: LockKeys) -> None:
        self._keys = (keys.record, keys.epoch)
        self._lock_keys = keys
        self._next: dict[int, int] = {}
        self._revision = 0
        self.must_list = True

    def listed(self, found: Found) -> Listed:
        """Both keys were read."""
        view = found.view
        went_back = view.revision < self._revision
        self._revision, self.must_list = view.revision, False
        self._next = dict.fromkeys(range(1, len(self._keys) + 1), view.revision + 1)
        return Listed(view, went_back)

    def requests(self) -> list[Any]:
        """What opens the stream."""
        return [
            rpc.WatchRequest(
                create_request=rpc.WatchCreateRequest(key=key, watch_id=watch_id, start_revision=self._next[watch_id])
            )
            for watch_id, key in enumerate(self._keys, start=1)
        ]

    def receive(self, answer: Any) -> list[Event] | None:
        """What an answer tells; None: this stream is of no more use."""
        if answer.compact_revision or (answer.created and answer.header.revision < self._revision):
            self.must_list = True
            return None
        if answer.canceled:
            return None
        events: list[Event] = list(read_watch_events(answer.events, self._lock_keys))
        for event in answer.events:
            self._next[answer.watch_id] = event.kv.mod_revision + 1
            self._revision = max(self._revision, event.kv.mod_revision)
        return events


class KeyWatch:
    """The thread that watches. `deliver` is called on it."""

    def __init__(self, channel: grpc.Channel, keys: LockKeys, deliver: Callable[[Event], None]) -> None:
        self._kv, self._watch = rpc.KVStub(channel), rpc.WatchStub(channel)
        self._keys = keys
        self._deliver = deliver
        self._cursor = WatchCursor(keys)
        self._stopped = threading.Event()
        self._call: Any = None
        self._thread = threading.Thread(target=self._run, name="leader-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        call = self._call
        if call is not None:
            call.cancel()

    def _run(self) -> None:
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(grpc.RpcError),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
            stop=tenacity.stop_when_event_set(self._stopped),
            sleep=tenacity.sleep_using_event(self._stopped),
        )
        while not self._stopped.wait(_PAUSE_SECONDS):
            try:
                attempts(self._follow)
            except tenacity.RetryError:
                return  # closed while the store was away
            except ValueError as error:  # grpc's word for a channel that was closed
                if not self._stopped.is_set():
                    raise
                _log.debug("the watch ends: %s", error)

    def _follow(self) -> None:
        """Follow one stream to its end. Raises grpc.RpcError only where nothing was received, so that back-off starts anew."""
        if self._cursor.must_list:
            read = Get(0, 0)
            answer = self._kv.Txn(build(read, self._keys, 0), timeout=_READ_TIMEOUT_SECONDS)
            found = read_outcome(read, answer, self._keys)
            if isinstance(found, Found):
                self._deliver(self._cursor.listed(found))
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for request in self._cursor.requests():
            requests.put(request)
        call = self._call = self._watch.Watch(iter(requests.get, None), metadata=_REQUIRE_LEADER)
        received = False
        try:
            if self._stopped.is_set():
                return
            for answer in call:
                received = True
                events = self._cursor.receive(answer)
                if events is None:
                    return
                for event in events:
                    self._deliver(event)
        except grpc.RpcError as error:
            if not received and not self._stopped.is_set():
                raise
            _log.debug("the watch ended with %s", error.code().name)
        finally:
            requests.put(None)
            call.cancel()
