"""A stream both ways, to whichever replica has a stream to the agent: what exec and port-forward are made of. Synchronous.

Opening is tried again, at the next replica, only where nothing can have been done: no replica was reached, or one said that it
has no stream to the agent now.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from rayched.client.errors import ApiError, ClientClosed, api_error
from rayched.client.proving import StreamProof
from rayched.client.transport import Transport

_WAITING_MAX: Final = 4
"""Messages that the network has not taken; who sends more waits."""
FRAME_BYTES: Final = 64 << 10


class TwoWayStream:
    """Messages to and from one call. Opened by `open`; `close` ends it. One thread reads, others may send."""

    def __init__(self, call: Any, sending: _Sending, endpoints: str) -> None:
        self._call = call
        self._sending = sending
        self._endpoints = endpoints

    @staticmethod
    def open(transport: Transport, name: str, proof: StreamProof) -> TwoWayStream:
        """When the first message has come that is no challenge. Raises ApiError."""
        for attempt in transport.attempts(transport.patience.total_seconds, nothing_was_done):
            with attempt:
                sending = _Sending(proof.first_request)
                endpoint, call = transport.stream(name, sending)
                stream = TwoWayStream(call, sending, ", ".join(transport.endpoints.all))
                try:
                    stream._begin(proof)
                except StopIteration:
                    stream.close()
                    raise ApiError(grpc.StatusCode.ABORTED, f"{endpoint} ended the stream without a word") from None
                except grpc.RpcError as error:
                    stream.close()
                    raise proof.explained(transport.endpoints.failed(endpoint, error)) from None
                except ApiError:
                    stream.close()
                    raise
                return stream
        raise AssertionError("an attempt returns or raises")

    def _begin(self, proof: StreamProof) -> None:
        answer = proof.answer(next(self._call))
        if answer is not None:
            self.send(answer)
            next(self._call)

    def send(self, message: Message) -> None:
        """Waits while the network takes no more; nothing is sent any more once the stream has ended."""
        self._sending.put(message, lambda: not self._call.is_active())

    def read(self) -> Any:
        """The next message; None: the stream has ended. Raises ApiError."""
        try:
            return next(self._call)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            raise api_error(error, self._endpoints) from None
        finally:
            if not self._call.is_active():
                self._sending.end()

    def close(self) -> None:
        """Idempotent; from any thread."""
        self._sending.end()
        self._call.cancel()


class _Sending:
    """What gRPC takes to send, in a thread of its own."""

    def __init__(self, start: Message) -> None:
        self._waiting: queue.Queue[Message | None] = queue.Queue(_WAITING_MAX)
        self._waiting.put(start)
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        while not self._ended.is_set():
            try:
                message = self._waiting.get(timeout=0.5)
            except queue.Empty:
                continue
            if message is not None:
                return message
        raise StopIteration

    def put(self, message: Message, is_over: Callable[[], bool]) -> None:
        while not self._ended.is_set() and not is_over():
            try:
                self._waiting.put(message, timeout=0.5)
            except queue.Full:
                continue
            return

    def end(self) -> None:
        self._ended.set()
        # A queue that is full wakes as well.
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)


def nothing_was_done(error: BaseException) -> bool:
    """Opening may be tried again."""
    if not isinstance(error, ApiError) or isinstance(error, ClientClosed):
        return False
    return error.never_sent or (error.code is grpc.StatusCode.UNAVAILABLE and error.retry_after_seconds is not None)
