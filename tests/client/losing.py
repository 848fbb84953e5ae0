"""A relay before a real API that loses answers: a call is passed on and done, and its caller hears that the connection broke."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc


class Relay(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Passes unary calls on as bytes."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.calls: list[str] = []
        """Names of the methods called, in order."""
        self.lose: list[str] = []
        """Methods whose next answer is lost, each once."""
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens between an answer that is lost and the caller's next attempt."""

    def service(self, details: Any) -> Any:
        path = details.method
        pass_on = self._channel.unary_unary(path)

        def handle(request: bytes, context: Any) -> bytes:
            name = path.rpartition("/")[2]
            self.calls.append(name)
            try:
                answer: bytes = pass_on(request, timeout=5)
            except grpc.RpcError as error:
                context.set_trailing_metadata(error.trailing_metadata() or ())
                context.abort(error.code(), error.details())
            if name in self.lose:
                self.lose.remove(name)
                self.meanwhile()
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return answer

        return grpc.unary_unary_rpc_method_handler(handle)

    def close(self) -> None:
        self._channel.close()


@contextlib.contextmanager
def answering(handler: grpc.GenericRpcHandler) -> Iterator[str]:
    """A server of this handler alone; where it listens."""
    server = grpc.server(ThreadPoolExecutor(4), handlers=(handler,), options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def losing(address: str) -> Iterator[tuple[Relay, str]]:
    """The relay and where it listens."""
    relay = Relay(address)
    try:
        with answering(relay) as own:
            yield relay, own
    finally:
        relay.close()
