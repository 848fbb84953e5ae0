"""Carries out what ListWatchCore asks for, over a gRPC channel, on a thread of its own.

All policy is the core's. One thread, the watcher's, reads lists and streams and calls the handler, one delivery after the other:
a message wakes nobody else on its way. While the handler works, gRPC's flow control holds further messages back in etcd. A second
thread looks at the clock while a stream is read, asks etcd for a sign of life, and closes what is silent.

An exception of the handler is a bug: it ends the watcher, is logged, kept in `failure` and told to `on_failure`, because a
consumer that missed a delivery must not go on.

Cost: two threads, of which one hardly ever wakes; and two of gRPC's own.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc

from leader.etcd_shim import rpc
from rayched.store.list_watch import ListWatchCore
from rayched.store.list_watch_effects import CallFailure, CloseStream, Delivery, Effect, FetchPage, OpenStream, SendOnStream

_log = logging.getLogger(__name__)

_LOOK_SECONDS_MIN: Final = 0.01
_LOOK_SECONDS_MAX: Final = 0.5
"""Between two looks at the clock."""
_JOIN_SECONDS_MAX: Final = 5.0

Handler = Callable[[Delivery], None]


class _OpenStream:
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
        self._lock = threading.Lock()
        """Whoever holds it owns the core."""
        self._effects: deque[Effect] = deque()
        self._stopping = threading.Event()
        self._look_now = threading.Event()
        """The clock is to be looked at before its time."""
        self._stream: _OpenStream | None = None
        self._page_call: Any = None
        self._reads = False
        """The watcher waits for the next message: everything that has arrived was handed in."""
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._clock_thread = threading.Thread(target=self._look_at_clock, name="watch-clock", daemon=True)

    def start(self) -> None:
        """Once."""
        self._thread.start()
        self._clock_thread.start()

    def stop(self) -> None:
        """No delivery begins after the return; from within the handler, after the one under way."""
        self._stopping.set()
        self._look_now.set()
        stream, page_call = self._stream, self._page_call
        if stream is not None:
            stream.close()
        if page_call is not None:
            page_call.cancel()
        _join(self._thread)
        _join(self._clock_thread)

    def hurry(self) -> None:
        """See ListWatchCore. From any thread; does not wait."""
        with self._lock:
            self.core.hurry(self._clock())
        self._look_now.set()

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
            self._look_now.set()
            if self._stream is not None:
                self._stream.close()

    def _follow(self) -> None:
        self._effects.extend(self._asked(self.core.start))
        while not self._stopping.is_set():
            effect = self._next_effect()
            self._effects.extend(self._next_input() if effect is None else self._carry_out(effect))

    def _next_effect(self) -> Effect | None:
        try:
            return self._effects.popleft()
        except IndexError:
            return None

    def _asked(self, ask: Callable[..., list[Effect]], *arguments: Any) -> list[Effect]:
        """What the core says to an input as of now."""
        with self._lock:
            return ask(*arguments, self._clock())

    def _next_input(self) -> list[Effect]:
        stream = self._stream
        if stream is None or not self.core.reads:
            due_at = self.core.due_at
            self._stopping.wait(_LOOK_SECONDS_MAX if due_at is None else max(due_at - self._clock(), 0.0))
            return self._asked(self.core.tick)
        self._reads = True
        try:
            message = next(stream.call)
        except StopIteration:
            message = CallFailure("the server closed the stream")
        except grpc.RpcError as error:
            message = CallFailure.of(error)
        finally:
            self._reads = False
        if isinstance(message, CallFailure):
            return self._asked(self.core.stream_ended, stream.number, message)
        return self._asked(self.core.stream_message, stream.number, message)

    def _look_at_clock(self) -> None:
        """What cannot wait for the next message of the stream; all else is left to the watcher."""
        wait = 0.0
        while True:
            self._look_now.wait(wait)
            self._look_now.clear()
            if self._stopping.is_set():
                return
            with self._lock:
                now, due_at = self._clock(), self.core.due_at
                # While the watcher has something in hand, not all that has arrived was handed in.
                if self._reads and due_at is not None and due_at <= now:
                    self._effects.extend(self._at_once(self.core.tick(now)))
            wait = _LOOK_SECONDS_MAX if due_at is None else min(max(due_at - now, _LOOK_SECONDS_MIN), _LOOK_SECONDS_MAX)

    def _at_once(self, effects: list[Effect]) -> list[Effect]:
        """Does what has to do with the open stream, which the watcher is reading."""
        left: list[Effect] = []
        stream = self._stream
        for effect in effects:
            if isinstance(effect, SendOnStream) and stream is not None:
                stream.requests.put(effect.request)
            else:
                left.append(effect)
        if left and stream is not None:
            stream.close()
        return left

    def _carry_out(self, effect: Effect) -> list[Effect]:
        match effect:
            case FetchPage():
                return self._fetch(effect)
            case OpenStream():
                self._stream = _OpenStream(effect.stream, self._watch, effect)
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
            answer = CallFailure.of(error)
        finally:
            self._page_call = None
        stream = self._stream
        if stream is not None and not stream.call.is_active():
            return self._asked(self.core.stream_ended, stream.number, CallFailure("the stream ended while a list was read"))
        return self._asked(self.core.page_failed if isinstance(answer, CallFailure) else self.core.page_arrived, answer)


def _join(thread: threading.Thread | None) -> None:
    if thread is not None and thread.is_alive() and thread is not threading.current_thread():
        thread.join(_JOIN_SECONDS_MAX)
