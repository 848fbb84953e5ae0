"""Carries out what ListWatchCore asks for, over a gRPC channel, on a thread of its own.

All policy is the core's. The handler is called on the watcher's thread, one delivery after the other. While it works, at most
`_INBOX_MAX` messages wait here; then gRPC's flow control holds the rest back in etcd. An exception of the handler is a bug: it
ends the watcher, is logged, kept in `failure` and told to `on_failure`, because a consumer that missed a delivery must not go
on.

Cost: two threads; a third, gRPC's own, for each open stream.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc

from leader.etcd_shim import rpc
from rayched.store.list_watch import (
    CloseStream,
    Delivery,
    Effect,
    Failure,
    FetchPage,
    ListWatchCore,
    OpenStream,
    SendOnStream,
)

_log = logging.getLogger(__name__)

_INBOX_MAX: Final = 64
_WAIT_SECONDS_MAX: Final = 60.0
_PUT_SECONDS: Final = 0.2
_JOIN_SECONDS_MAX: Final = 5.0

Handler = Callable[[Delivery], None]


class _Stream:
    """An open watch stream: what is to be sent, and the call that receives."""

    def __init__(self, number: int, stub: Any, opening: OpenStream) -> None:
        self.number = number
        self.requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.requests.put(opening.request)
        self.call = stub.Watch(iter(self.requests.get, None), metadata=opening.metadata)

    def close(self) -> None:
        self.requests.put(None)
        self.call.cancel()


class Watcher:
    """Follows a prefix until stopped. Owns its threads, not the channel."""

    def __init__(
        self,
        channel: grpc.Channel,
        prefix: bytes,
        handler: Handler,
        *,
        core: ListWatchCore | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.core = core or ListWatchCore(prefix)
        """Its counters may be read from any thread; nothing of it may be called."""
        self.failure: BaseException | None = None
        """What the handler raised."""
        self._kv, self._watch = rpc.KVStub(channel), rpc.WatchStub(channel)
        self._handler = handler
        self._clock = clock
        self._on_failure = on_failure
        self._inbox: queue.Queue[tuple[int, Any]] = queue.Queue(_INBOX_MAX)
        self._stopping = threading.Event()
        self._stream: _Stream | None = None
        self._page_call: Any = None
        self._receiver: threading.Thread | None = None
        """Of the present stream; those before have ended or are about to."""
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Once."""
        self._thread.start()

    def stop(self) -> None:
        """No delivery begins after the return; from within the handler, after the one under way."""
        self._stopping.set()
        stream, page_call = self._stream, self._page_call
        if stream is not None:
            stream.close()
        if page_call is not None:
            page_call.cancel()
        with contextlib.suppress(queue.Full):
            # Wakes a thread that waits; one with a full inbox does not wait. No stream has this number.
            self._inbox.put_nowait((-1, None))
        _join(self._thread)
        # Only now is it known which the last one is.
        _join(self._receiver)

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:
            self.failure = error
            _log.critical("the handler of a watch failed; the watch is over", exc_info=error)
            if self._on_failure is not None:
                self._on_failure(error)
        finally:
            self._stopping.set()
            if self._stream is not None:
                self._stream.close()

    def _follow(self) -> None:
        effects: deque[Effect] = deque(self.core.start(self._clock()))
        while not self._stopping.is_set():
            if effects:
                effects.extend(self._carry_out(effects.popleft()))
            else:
                effects.extend(self._next_input())

    def _next_input(self) -> list[Effect]:
        due_at = self.core.due_at
        wait = _WAIT_SECONDS_MAX if due_at is None else min(max(due_at - self._clock(), 0.0), _WAIT_SECONDS_MAX)
        try:
            number, message = self._inbox.get(timeout=wait)
        except queue.Empty:
            return self.core.tick(self._clock())
        if isinstance(message, Failure):
            return self.core.stream_ended(number, message, self._clock())
        return self.core.stream_message(number, message, self._clock())

    def _carry_out(self, effect: Effect) -> list[Effect]:
        match effect:
            case FetchPage():
                return self._fetch(effect)
            case OpenStream():
                self._stream = _Stream(effect.stream, self._watch, effect)
                self._receiver = threading.Thread(target=self._receive, args=(self._stream,), name="watch-stream", daemon=True)
                self._receiver.start()
                if self._stopping.is_set():
                    self._stream.close()
            case SendOnStream() if self._stream is not None:
                self._stream.requests.put(effect.request)
            case CloseStream() if self._stream is not None:
                self._stream.close()
                self._stream = None
            case SendOnStream() | CloseStream():
                pass
            case _:
                self._handler(effect)
        return []

    def _fetch(self, page: FetchPage) -> list[Effect]:
        self._page_call = self._kv.Range.future(page.request, timeout=page.timeout_seconds)
        if self._stopping.is_set():
            self._page_call.cancel()
        try:
            answer = self._page_call.result()
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            return self.core.page_failed(Failure.of(error), self._clock())
        finally:
            self._page_call = None
        return self.core.page_arrived(answer, self._clock())

    def _receive(self, stream: _Stream) -> None:
        end = Failure("the server closed the stream")
        try:
            for message in stream.call:
                if not self._put(stream, message):
                    return
        except grpc.RpcError as error:
            end = Failure.of(error)
        self._put(stream, end)

    def _put(self, stream: _Stream, message: Any) -> bool:
        """Waits for room; False when nobody wants it any more."""
        while not self._stopping.is_set() and self._stream is stream:
            try:
                self._inbox.put((stream.number, message), timeout=_PUT_SECONDS)
            except queue.Full:
                continue
            return True
        return False


def _join(thread: threading.Thread | None) -> None:
    if thread is not None and thread.is_alive() and thread is not threading.current_thread():
        thread.join(_JOIN_SECONDS_MAX)
