"""Calls to whichever replica answers: one channel an endpoint, retries with jitter, one deadline over all attempts.

Which replica is asked, and what is repeated: see endpoints.py. Thread-safe.
Cost: one TCP connection for each endpoint that was ever used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import grpc
import tenacity
from google.protobuf.message import Message
from grpc.experimental import ChannelOptions

from rayched.api.identity import IDENTITY_METADATA
from rayched.client.endpoints import CHANNEL_OPTIONS, EndpointFailures, Endpoints, Patience, method, retry_rules, serialized
from rayched.client.errors import ClientClosed

# The thread that reads a stream takes its messages from the connection by itself.
_OPTIONS: Final = (*CHANNEL_OPTIONS, (ChannelOptions.SingleThreadedUnaryStream, 1))


class Transport:
    """Channels to the endpoints."""

    def __init__(self, endpoints: Sequence[str], patience: Patience | None = None) -> None:
        self.endpoints = Endpoints(endpoints)
        self.patience = patience or Patience()
        self._lock = threading.Lock()
        self._channels: dict[str, Any] = {}
        self._methods: dict[tuple[str, str], Any] = {}
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
        total = self.patience.total_seconds if total_seconds is None else total_seconds
        ends_at = time.monotonic() + total
        failures = EndpointFailures()
        for attempt in self.attempts(total):
            with attempt:
                endpoint = self.endpoints.current()
                left = max(ends_at - time.monotonic(), 0.001)
                try:
                    call = self._method(endpoint, name)
                    return call(request, timeout=min(left, self.patience.attempt_seconds), metadata=self._metadata())
                except grpc.RpcError as error:
                    failure = self.endpoints.failed(endpoint, error)
                raise failures.told_of(failure)
        raise AssertionError("an attempt returns or raises")

    def attempts(self, total_seconds: float, repeat: Callable[[BaseException], bool] | None = None) -> tenacity.Retrying:
        """Attempts as long as the time lasts and `repeat` says so; the last one's error is raised."""
        return tenacity.Retrying(**retry_rules(self.patience, total_seconds, repeat))

    def stream(self, name: str, request: Message | Iterator[Message], timeout_seconds: float | None = None) -> tuple[str, Any]:
        """Opens a stream at the current endpoint; `request`: of messages where the caller streams as well."""
        endpoint = self.endpoints.current()
        return endpoint, self._method(endpoint, name)(request, timeout=timeout_seconds, metadata=self._metadata())

    def _metadata(self) -> tuple[tuple[str, str], ...] | None:
        return ((IDENTITY_METADATA, self.identity),) if self.identity else None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
            self._channels.clear()
            self._methods.clear()
        for channel in channels:
            channel.close()

    def _method(self, endpoint: str, name: str) -> Any:
        with self._lock:
            if self._closed:
                raise ClientClosed
            found = self._methods.get((endpoint, name))
            if found is None:
                channel = self._channels.get(endpoint)
                if channel is None:
                    channel = self._channels[endpoint] = grpc.insecure_channel(endpoint, options=_OPTIONS)
                target = method(name)
                make = getattr(channel, target.kind)
                found = make(target.path, serialized, target.response.FromString)
                self._methods[endpoint, name] = found
            return found
