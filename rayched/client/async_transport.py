"""Transport for asyncio: the same calls, retries and deadlines as transport.py, over grpc.aio.

One event loop uses it: the one it was first used in. Nothing here blocks that loop.
Cost: one TCP connection for each endpoint that was ever used.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
import tenacity
from google.protobuf.message import Message

from rayched.api.identity import FOR_BEARER_METADATA, FOR_METADATA, FOR_SERIAL_METADATA
from rayched.client.calls import UnaryCall
from rayched.client.channels import CallUse, EndpointChannels
from rayched.client.endpoints import CHANNEL_OPTIONS, EndpointFailures, Endpoints, Patience, retry_rules
from rayched.client.errors import ApiError, ClientClosed
from rayched.pki.client_token import ShownByCaller

R = TypeVar("R")


class AsyncTransport:
    """Channels to the endpoints."""

    def __init__(
        self, endpoints: Sequence[str], patience: Patience | None = None, certificate: ShownByCaller | None = None
    ) -> None:
        """Without a certificate there is no TLS."""
        self.endpoints = Endpoints(endpoints, certificate)
        self.patience = patience or Patience()
        self._channels = EndpointChannels(grpc.aio.insecure_channel, grpc.aio.secure_channel, CHANNEL_OPTIONS, certificate)
        self._closing: set[asyncio.Task[None]] = set()
        self._metadata: tuple[tuple[str, str], ...] | None = None

    def asking_for(self, uri: str, serial: str) -> AsyncTransport:
        """The same connections for calls in the name of an identity, which has shown the certificate of this serial number.
        Replicas believe it of those who may ask for others."""
        found = copy.copy(self)
        found._metadata = ((FOR_METADATA, uri), (FOR_SERIAL_METADATA, serial))
        return found

    def asking_with(self, token: str) -> AsyncTransport:
        """The same connections for calls in the name of whoever a bearer token stands for, which replicas find out themselves."""
        found = copy.copy(self)
        found._metadata = ((FOR_BEARER_METADATA, token),)
        return found

    async def call(
        self,
        name: str,
        request: Message | bytes,
        *,
        total_seconds: float | None = None,
    ) -> Any:
        """The response to one unary call; raises ApiError."""
        return await self.call_until(name, lambda: request, lambda answer: answer, total_seconds)

    async def call_until(
        self,
        name: str,
        request: Callable[[], Message | bytes],
        take: Callable[[Any], R],
        total_seconds: float | None = None,
    ) -> R:
        """As Transport.call_until."""
        total = self.patience.total_seconds if total_seconds is None else total_seconds
        clock = asyncio.get_running_loop().time
        ends_at = clock() + total
        failures = EndpointFailures()
        async for attempt in self.attempts(total):
            with attempt:
                endpoint = self.endpoints.current()
                left = max(ends_at - clock(), 0.001)
                timeout = min(left, self.patience.attempt_seconds)
                try:
                    with self._use(endpoint, name) as call:
                        answer = await call(request(), timeout=timeout, metadata=self._metadata)
                except grpc.RpcError as error:
                    failure = self.endpoints.failed(endpoint, error)
                else:
                    try:
                        return take(answer)
                    except ApiError as error:
                        failure = error
                    self.endpoints.leave(endpoint, failure)
                raise failures.told_of(failure)
        raise AssertionError("an attempt returns or raises")

    async def do(self, call: UnaryCall[R], total_seconds: float | None = None) -> R:
        """What the response means; raises ApiError."""
        return call.result(await self.call(call.name, call.request, total_seconds=total_seconds))

    def attempts(self, total_seconds: float, repeat: Callable[[BaseException], bool] | None = None) -> tenacity.AsyncRetrying:
        """Attempts as long as the time lasts and `repeat` says so; the last one's error is raised."""
        return tenacity.AsyncRetrying(**retry_rules(self.patience, total_seconds, repeat))

    def stream(self, name: str, request: Message) -> tuple[str, Any]:
        """Opens a stream at the current endpoint; no deadline."""
        endpoint = self.endpoints.current()
        return endpoint, self._use(endpoint, name).stream(request, metadata=self._metadata)

    def two_way(self, name: str) -> tuple[str, Any]:
        """Opens a stream both ways at the current endpoint; no deadline."""
        endpoint = self.endpoints.current()
        return endpoint, self._use(endpoint, name).stream(metadata=self._metadata)

    async def close(self) -> None:
        for channel in self._channels.take_all():
            await channel.close()

    def _use(self, endpoint: str, name: str) -> CallUse:
        if self._channels.is_closed:
            raise ClientClosed
        found = self._channels.channel(endpoint).use(name)
        for channel in self._channels.take_idle():
            closing = asyncio.create_task(channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return found
