"""A port of this host that is one of a pod, as the synchronous client has it: each connection is a stream of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final

from rayched.client.errors import ApiError
from rayched.client.proving import StreamProof
from rayched.client.transport import Transport
from rayched.client.two_way import FRAME_BYTES, TwoWayStream
from rayched.v1.streams_pb2 import PortForwardRequest, PortForwardStart

CONNECTIONS_MAX: Final = 32
"""At a time; further ones wait to be accepted."""
_ACCEPT_SECONDS: Final = 0.5


class PortForwarder:
    """Listens from the start on; `close` ends it and what is open. Use it in a `with`."""

    def __init__(
        self,
        transport: Transport,
        start: PortForwardStart,
        token: str,
        address: str,
        port: int,
        *,
        failed: Callable[[ApiError], None],
        accepted: Callable[[int], None],
    ) -> None:
        """`port` 0: one that is free. In its thread, `failed` is told of each connection that fails, `accepted` of each one.

        Raises OSError.
        """
        self._transport = transport
        self._proof = StreamProof(token, start)
        self._failed = failed
        self._accepted = accepted
        self._listener = socket.create_server((address, port))
        self._listener.settimeout(_ACCEPT_SECONDS)
        self._turns = threading.Semaphore(CONNECTIONS_MAX)
        self._lock = threading.Lock()
        self._open: set[TwoWayStream] = set()
        self._closed = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        """Of this host."""
        self._thread = threading.Thread(target=self._accept, name="port-forward", daemon=True)
        self._thread.start()

    def __enter__(self) -> PortForwarder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait(self) -> None:
        """Until it is closed."""
        self._closed.wait()

    def close(self) -> None:
        """Idempotent; from any thread."""
        self._closed.set()
        with self._lock:
            streams = list(self._open)
        for stream in streams:
            stream.close()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            if not self._turns.acquire(timeout=_ACCEPT_SECONDS):
                continue
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                self._turns.release()
                continue
            except OSError:
                return
            threading.Thread(target=self._carry, args=(connection,), name="port-forwarded", daemon=True).start()

    def _carry(self, connection: socket.socket) -> None:
        """One connection, to its end."""
        self._accepted(self.port)
        try:
            with connection:
                connection.settimeout(None)
                self._carry_streamed(connection)
        except ApiError as error:
            if not self._closed.is_set():
                self._failed(error)
        except OSError:
            # The program on this side has left.
            return
        finally:
            self._turns.release()

    def _carry_streamed(self, connection: socket.socket) -> None:
        stream = TwoWayStream.open(self._transport, "PortForward.Stream", self._proof)
        with self._lock:
            self._open.add(stream)
            is_closed = self._closed.is_set()
        if is_closed:
            # `close` has not seen it.
            stream.close()
        sending = threading.Thread(target=self._send, args=(connection, stream), name="port-sending", daemon=True)
        sending.start()
        try:
            while (response := stream.read()) is not None:
                if response.WhichOneof("frame") == "data":
                    connection.sendall(response.data)
                elif response.end:
                    connection.shutdown(socket.SHUT_WR)
        finally:
            stream.close()
            with self._lock:
                self._open.discard(stream)
            # Wakes the thread that reads from it.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            sending.join()

    def _send(self, connection: socket.socket, stream: TwoWayStream) -> None:
        try:
            while data := connection.recv(FRAME_BYTES):
                stream.send(PortForwardRequest(data=data))
            stream.send(PortForwardRequest(end=True))
        except OSError:
            # Reset by the program on this side: so is the other end.
            stream.close()
