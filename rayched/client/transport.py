"""Calls to whichever replica answers: one channel an endpoint, retries with jitter, one deadline over all attempts.

Which replica is asked, and what is repeated: see endpoints.py. Thread-safe.
Cost: one TCP connection for each endpoint that was ever used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import grpc
import tenacity
from google.protobuf.message import Message
from grpc.experimental import ChannelOptions

from rayched.api.identity import IDENTITY_METADATA
from rayched.client.calls import UnaryCall
from rayched.client.channels import CallUse, EndpointChannels
from rayched.client.endpoints import CHANNEL_OPTIONS, EndpointFailures, Endpoints, Patience, retry_rules
from rayched.client.errors import ApiError, ClientClosed
from rayched.pki.client_token import ShownByCaller

# The thread that reads a stream takes its messages from the connection by itself.
_OPTIONS: Final = (*CHANNEL_OPTIONS, (ChannelOptions.SingleThreadedUnaryStream, 1))
_UNCONNECTED_MAX: Final = 2
"""Attempts of one call without TLS that came to no connection."""
_HANDSHAKE_SECONDS_MAX: Final = 0.5

R = TypeVar("R")


class Transport:
    """Channels to the endpoints."""

    def __init__(
        self, endpoints: Sequence[str], patience: Patience | None = None, certificate: ShownByCaller | None = None
    ) -> None:
        """Without a certificate there is no TLS."""
        self.certificate: Final = certificate
        self.endpoints = Endpoints(endpoints, certificate)
        self.patience = patience or Patience()
        self._lock = threading.Lock()
        self._channels = EndpointChannels(grpc.insecure_channel, grpc.secure_channel, _OPTIONS, certificate)
        self._closed = False
        self.identity = ""
        """Who the calls are from (api/identity.py); empty: nobody in particular."""

    def call(
        self,
        name: str,
        request: Message | bytes,
        *,
        total_seconds: float | None = None,
    ) -> Any:
        """The response to one unary call; raises ApiError."""
        return self.call_until(name, lambda: request, lambda answer: answer, total_seconds)

    def call_until(
        self,
        name: str,
        request: Callable[[], Message | bytes],
        take: Callable[[Any], R],
        total_seconds: float | None = None,
    ) -> R:
        """What `take` makes of the response to a call whose request is made anew for each attempt. Raises ApiError; `take` does
        where another attempt, at another replica, may go better."""
        total = self.patience.total_seconds if total_seconds is None else total_seconds
        ends_at = time.monotonic() + total
        failures, unconnected = EndpointFailures(), 0
        for attempt in self.attempts(total):
            with attempt:
                endpoint = self.endpoints.current()
                left = max(ends_at - time.monotonic(), 0.001)
                try:
                    with self._use(endpoint, name) as call:
                        answer = call(request(), timeout=min(left, self.patience.attempt_seconds), metadata=self._metadata())
                except grpc.RpcError as error:
                    failure = self.endpoints.failed(endpoint, error)
                else:
                    try:
                        return take(answer)
                    except ApiError as error:
                        failure = error
                    self.endpoints.leave(endpoint, failure)
                if self.certificate is None and failure.no_connection:
                    unconnected += 1
                    if unconnected == _UNCONNECTED_MAX:
                        self._ask_for_tls()
                raise failures.told_of(failure)
        raise AssertionError("an attempt returns or raises")

    def do(self, call: UnaryCall[R], total_seconds: float | None = None) -> R:
        """What the response means; raises ApiError."""
        return call.result(self.call(call.name, call.request, total_seconds=total_seconds))

    def _ask_for_tls(self) -> None:
        """Raises ApiError where a certificate is wanted at all endpoints: gRPC does not say so, and patience is of no use."""
        # Not at the top: whoever is answered needs none of it.
        from rayched.pki.diagnosis import server_fault

        told = ""
        for endpoint in self.endpoints.all:
            if not (why := server_fault(endpoint, None, _HANDSHAKE_SECONDS_MAX)):
                return
            told = told or f"{endpoint}: {why}"
        raise ApiError(grpc.StatusCode.UNAUTHENTICATED, told)

    def attempts(self, total_seconds: float, repeat: Callable[[BaseException], bool] | None = None) -> tenacity.Retrying:
        """Attempts as long as the time lasts and `repeat` says so; the last one's error is raised."""
        return tenacity.Retrying(**retry_rules(self.patience, total_seconds, repeat))

    def stream(self, name: str, request: Message | Iterator[Message], timeout_seconds: float | None = None) -> tuple[str, Any]:
        """Opens a stream at the current endpoint; `request`: of messages where the caller streams as well."""
        endpoint = self.endpoints.current()
        use = self._use(endpoint, name)
        return endpoint, use.stream(request, timeout=timeout_seconds, metadata=self._metadata())

    def _metadata(self) -> tuple[tuple[str, str], ...] | None:
        return ((IDENTITY_METADATA, self.identity),) if self.identity else None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels = self._channels.take_all()
        for channel in channels:
            channel.close()

    def _use(self, endpoint: str, name: str) -> CallUse:
        with self._lock:
            if self._closed:
                raise ClientClosed
            found = self._channels.channel(endpoint).use(name)
            idle = self._channels.take_idle()
        for channel in idle:
            channel.close()
        return found
