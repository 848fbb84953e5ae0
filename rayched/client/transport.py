"""Calls to whichever replica answers: one channel an endpoint, retries with jitter, one deadline over all attempts.

A call goes to the replica that answered last. When that one is unreachable, hangs or is shutting down, the next attempt goes to
the next; other failures are the caller's and are raised at once. Every call of the API may be repeated: submissions carry a uid,
the others describe an end state. Keepalive finds a replica that hangs under an open stream after about eight seconds.

Thread-safe. Cost: one TCP connection for each endpoint that was ever used.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
import tenacity
from google.protobuf import message_factory
from google.protobuf.message import Message

from rayched.client.errors import ApiError, api_error
from rayched.v1 import services_pb2

ENVIRONMENT_VARIABLE: Final = "RAYCHED_SERVER"
DEFAULT_ENDPOINTS: Final = ("127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422")

_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_RETRIED: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call may take in all, and how its attempts are spaced; seconds."""

    total_seconds: float = 10.0
    attempt_seconds: float = 4.0
    """A replica that has no etcd says so within three."""
    pause_seconds_min: float = 0.02
    pause_seconds_max: float = 1.0


def endpoints_of(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The endpoints given, else those of $RAYCHED_SERVER, else the default ones. Each is host:port."""
    text = given if given is not None else os.environ.get(ENVIRONMENT_VARIABLE, "")
    parts: Iterable[str] = text.split(",") if isinstance(text, str) else text
    found = tuple(part.strip() for part in parts if part.strip())
    for endpoint in found:
        host, _, port = endpoint.rpartition(":")
        if not host or "/" in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"server {endpoint!r}: want host:port, for example {DEFAULT_ENDPOINTS[0]}")
    return found or DEFAULT_ENDPOINTS


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC, from its descriptor."""

    path: str
    response: type[Message]
    streaming: bool


def method(name: str) -> Method:
    """The method of a name such as "Submission.Submit"."""
    service_name, _, method_name = name.partition(".")
    found = services_pb2.DESCRIPTOR.services_by_name[service_name].methods_by_name[method_name]
    path = f"/{found.containing_service.full_name}/{found.name}"
    return Method(path, message_factory.GetMessageClass(found.output_type), found.server_streaming)


class Transport:
    """Channels to the endpoints, and which of them to use next."""

    def __init__(self, endpoints: Sequence[str], patience: Patience | None = None) -> None:
        self.endpoints = tuple(endpoints)
        self.patience = patience or Patience()
        self._lock = threading.Lock()
        self._channels: dict[str, Any] = {}
        self._calls: dict[tuple[str, str], Any] = {}
        # Clients spread over the replicas; a single client stays where it was answered.
        self._current = random.randrange(len(self.endpoints))
        self._closed = False

    def call(
        self,
        name: str,
        request: Message,
        *,
        total_seconds: float | None = None,
        again: Callable[[ApiError], Message | None] | None = None,
    ) -> Any:
        """The response to one unary call; raises ApiError.

        `again` may turn the failure of a repeated attempt into a response: the attempt before may have done it already.
        """
        total = self.patience.total_seconds if total_seconds is None else total_seconds
        ends_at = time.monotonic() + total
        told: ApiError | None = None
        for attempt in self.attempts(total):
            with attempt:
                endpoint = self.endpoint()
                left = max(ends_at - time.monotonic(), 0.001)
                try:
                    return self._method(endpoint, name)(request, timeout=min(left, self.patience.attempt_seconds))
                except grpc.RpcError as error:
                    failure = self.failed(endpoint, error)
                if again is not None and attempt.retry_state.attempt_number > 1:
                    response = again(failure)
                    if response is not None:
                        return response
                if failure.code is grpc.StatusCode.UNAVAILABLE:
                    told = failure
                # An attempt cut off by the end of the time says less than the one before.
                raise told if told is not None and worth_repeating(failure) else failure
        raise AssertionError("an attempt returns or raises")

    def attempts(self, total_seconds: float, repeat: Callable[[BaseException], bool] | None = None) -> tenacity.Retrying:
        """Attempts as long as the time lasts and `repeat` says so; the last one's error is raised."""
        return tenacity.Retrying(
            stop=tenacity.stop_after_delay(total_seconds),
            wait=tenacity.wait_random_exponential(self.patience.pause_seconds_min, self.patience.pause_seconds_max),
            retry=tenacity.retry_if_exception(repeat or worth_repeating),
            reraise=True,
        )

    def stream(self, name: str, request: Message) -> tuple[str, Any]:
        """Opens a stream at the current endpoint; no deadline."""
        endpoint = self.endpoint()
        return endpoint, self._method(endpoint, name)(request)

    def endpoint(self) -> str:
        with self._lock:
            return self.endpoints[self._current]

    def failed(self, endpoint: str, error: Any) -> ApiError:
        """Notes a failure at an endpoint and gives it as ApiError."""
        failure = api_error(error, ", ".join(self.endpoints))
        if worth_repeating(failure):
            with self._lock:
                if self.endpoints[self._current] == endpoint:
                    self._current = (self._current + 1) % len(self.endpoints)
        return failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
            self._channels.clear()
            self._calls.clear()
        for channel in channels:
            channel.close()

    def _method(self, endpoint: str, name: str) -> Any:
        with self._lock:
            if self._closed:
                raise ApiError(grpc.StatusCode.CANCELLED, "the client is closed")
            found = self._calls.get((endpoint, name))
            if found is None:
                channel = self._channels.get(endpoint)
                if channel is None:
                    channel = self._channels[endpoint] = grpc.insecure_channel(endpoint, options=_OPTIONS)
                target = method(name)
                make = channel.unary_stream if target.streaming else channel.unary_unary
                found = make(target.path, lambda message: message.SerializeToString(), target.response.FromString)
                self._calls[endpoint, name] = found
            return found


def worth_repeating(error: BaseException) -> bool:
    """Whether another attempt, at another replica, may go better."""
    return isinstance(error, ApiError) and error.code in _RETRIED
