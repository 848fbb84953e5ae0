"""Transport for asyncio: the same calls, retries and deadlines as transport.py, over grpc.aio.

One event loop uses it: the one it was first used in. Nothing here blocks that loop.
Cost: one TCP connection for each endpoint that was ever used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import tenacity
from google.protobuf.message import Message

from rayched.client.endpoints import CHANNEL_OPTIONS, EndpointFailures, Endpoints, Patience, method, retry_rules, serialized
from rayched.client.errors import ClientClosed


class AsyncTransport:
    """Channels to the endpoints."""

    def __init__(self, endpoints: Sequence[str], patience: Patience | None = None) -> None:
        self.endpoints = Endpoints(endpoints)
        self.patience = patience or Patience()
        self._channels: dict[str, Any] = {}
        self._methods: dict[tuple[str, str], Any] = {}
        self._closed = False

    async def call(
        self,
        name: str,
        request: Message | bytes,
        *,
        total_seconds: float | None = None,
    ) -> Any:
        """The response to one unary call; raises ApiError."""
        total = self.patience.total_seconds if total_seconds is None else total_seconds
        clock = asyncio.get_running_loop().time
        ends_at = clock() + total
        failures = EndpointFailures()
        async for attempt in self.attempts(total):
            with attempt:
                endpoint = self.endpoints.current()
                left = max(ends_at - clock(), 0.001)
                try:
                    return await self._method(endpoint, name)(request, timeout=min(left, self.patience.attempt_seconds))
                except grpc.RpcError as error:
                    failure = self.endpoints.failed(endpoint, error)
                raise failures.told_of(failure)
        raise AssertionError("an attempt returns or raises")

    def attempts(self, total_seconds: float, repeat: Callable[[BaseException], bool] | None = None) -> tenacity.AsyncRetrying:
        """Attempts as long as the time lasts and `repeat` says so; the last one's error is raised."""
        return tenacity.AsyncRetrying(**retry_rules(self.patience, total_seconds, repeat))

    def stream(self, name: str, request: Message) -> tuple[str, Any]:
        """Opens a stream at the current endpoint; no deadline."""
        endpoint = self.endpoints.current()
        return endpoint, self._method(endpoint, name)(request)

    def two_way(self, name: str) -> tuple[str, Any]:
        """Opens a stream both ways at the current endpoint; no deadline."""
        endpoint = self.endpoints.current()
        return endpoint, self._method(endpoint, name)()

    async def close(self) -> None:
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        self._methods.clear()
        for channel in channels:
            await channel.close()

    def _method(self, endpoint: str, name: str) -> Any:
        if self._closed:
            raise ClientClosed
        found = self._methods.get((endpoint, name))
        if found is None:
            channel = self._channels.get(endpoint)
            if channel is None:
                channel = self._channels[endpoint] = grpc.aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS)
            target = method(name)
            make = getattr(channel, target.kind)
            found = make(target.path, serialized, target.response.FromString)
            self._methods[endpoint, name] = found
        return found
