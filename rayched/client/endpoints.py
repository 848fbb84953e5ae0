"""Where replicas are, which of them is asked next, and how often: what the synchronous and the asynchronous transport share.

A call goes to the replica that answered last. When that one is unreachable, hangs or is shutting down, the next attempt goes to
the next; other failures are the caller's and are raised at once. Every call that is made here may be repeated: submissions carry
their object's uid, deletions, evictions and statuses of pods that of the object they are about (pinned.py); the others describe
an end state of what has the name. A replica that refuses a call because too much is under way says when to try again; who is
refused again waits longer, with jitter. Keepalive finds a replica that hangs under an open stream after about eight seconds.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import grpc
import tenacity
from google.protobuf import message_factory
from google.protobuf.message import Message

from rayched.api.services import DESCRIPTORS
from rayched.client.errors import ApiError, ClientClosed, api_error
from rayched.pki.client_token import ShownByCaller

ENVIRONMENT_VARIABLE: Final = "RAYCHED_SERVER"
API_PORT: Final = 7420
TOKEN_PORT: Final = 7421
"""Where replicas take calls and tokens, as a rule."""
DEFAULT_ENDPOINTS: Final = ("127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422")

CHANNEL_OPTIONS: Final = (
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
_RETRIED: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
)
"""How a call may end that is made again. No replica answers the last two: a connection that is torn down shows as any of them."""
_OVERLOAD_GROWTH_MAX: Final = 4.0
"""Who is refused again and again waits at most so many times as long as the replica says."""
_OVERLOAD_JITTER: Final = (0.5, 1.5)
_BROKEN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)
"""How a stream may end that is opened again. A connection that is torn down shows as any of them; ABORTED: read too slowly."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call may take in all, and how its attempts are spaced; seconds."""

    total_seconds: float = 10.0
    attempt_seconds: float = 4.0
    """A replica that has no etcd says so within three."""
    pause_seconds_min: float = 0.02
    pause_seconds_max: float = 1.0


def endpoints_of(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The endpoints given, else those of $RAYCHED_SERVER, else the default ones. Each is host:port. Raises ValueError."""
    return named_endpoints(given) or DEFAULT_ENDPOINTS


def named_endpoints(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The same without the default ones: empty where nobody named any."""
    text = given if given is not None else os.environ.get(ENVIRONMENT_VARIABLE, "")
    parts: Iterable[str] = text.split(",") if isinstance(text, str) else text
    found = tuple(part.strip() for part in parts if part.strip())
    for endpoint in found:
        host, _, port = endpoint.rpartition(":")
        if not host or "/" in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"server {endpoint!r}: want host:port, for example {DEFAULT_ENDPOINTS[0]}")
    return found


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC, from its descriptor."""

    path: str
    response: type[Message]
    kind: str
    """As gRPC's channels name the makers of calls: unary_unary, unary_stream or stream_stream."""


def serialized(request: Message | bytes) -> bytes:
    """Requests may be given as bytes already encoded."""
    return request if isinstance(request, bytes) else request.SerializeToString()


def method(name: str) -> Method:
    """The method of a name such as "Submission.Submit"."""
    service_name, _, method_name = name.partition(".")
    found = DESCRIPTORS[service_name].methods_by_name[method_name]
    path = f"/{found.containing_service.full_name}/{found.name}"
    kind = "_".join("stream" if streams else "unary" for streams in (found.client_streaming, found.server_streaming))
    return Method(path, message_factory.GetMessageClass(found.output_type), kind)


class Endpoints:
    """The endpoints of a client and the one to use next. Thread-safe."""

    def __init__(self, endpoints: Sequence[str], certificate: ShownByCaller | None = None) -> None:
        self.all = tuple(endpoints)
        self._certificate = certificate
        self._lock = threading.Lock()
        # Clients spread over the replicas; a single client stays where it was answered.
        self._next = random.randrange(len(self.all))

    def current(self) -> str:
        with self._lock:
            return self.all[self._next]

    def prefer(self, endpoint: str) -> None:
        """Ask this one next. Raises ValueError where it is none of them."""
        with self._lock:
            self._next = self.all.index(endpoint)

    def failed(self, endpoint: str, error: Any) -> ApiError:
        """Notes a failure at an endpoint and gives it as ApiError."""
        failure = api_error(error, ", ".join(self.all))
        if self._certificate is not None and failure.certificate_serial:
            failure.has_newer_certificate = self._certificate.is_newer_than(failure.certificate_serial)
        if self._certificate is not None and failure.no_connection and (why := self._certificate.fault()):
            # With it nobody will let us in, however often it is tried; gRPC does not say so.
            return ApiError(grpc.StatusCode.UNAUTHENTICATED, why)
        self.leave(endpoint, failure)
        return failure

    def leave(self, endpoint: str, failure: ApiError) -> None:
        """Another one is asked next, if another attempt may go better there."""
        if worth_repeating(failure):
            with self._lock:
                if self.all[self._next] == endpoint:
                    self._next = (self._next + 1) % len(self.all)


@dataclass(slots=True)
class EndpointFailures:
    """What the attempts of one call failed with, and what the caller is told of it."""

    _may_have_been_done: bool = False
    _told: ApiError | None = None

    def told_of(self, failure: ApiError) -> ApiError:
        """The error to raise after an attempt failed so."""
        failure.may_have_been_done = self._may_have_been_done
        if worth_repeating(failure) and not failure.never_sent and not is_overload(failure):
            self._may_have_been_done = True
        if failure.code is grpc.StatusCode.UNAVAILABLE or is_overload(failure):
            self._told = failure
        # An attempt cut off by the end of the time says less than the one before.
        return self._told if self._told is not None and worth_repeating(failure) else failure


def retry_rules(
    patience: Patience, total_seconds: float, repeat: Callable[[BaseException], bool] | None = None
) -> dict[str, Any]:
    """Tenacity's arguments: attempts as long as the time lasts and `repeat` says so; the last one's error is raised."""
    pause = tenacity.wait_random_exponential(patience.pause_seconds_min, patience.pause_seconds_max)

    def wait(state: tenacity.RetryCallState) -> float:
        error = _raised(state)
        if not is_overload(error) or error.retry_after_seconds is None:
            return pause(state)
        longer = min(2.0 ** (state.attempt_number - 1), _OVERLOAD_GROWTH_MAX)
        return error.retry_after_seconds * longer * random.uniform(*_OVERLOAD_JITTER)

    def stop(state: tenacity.RetryCallState) -> bool:
        elapsed = state.seconds_since_start or 0.0
        # Who is told to wait for longer than there is time learns at once that there is no room.
        return elapsed + (state.upcoming_sleep if is_overload(_raised(state)) else 0.0) >= total_seconds

    return {"stop": stop, "wait": wait, "retry": tenacity.retry_if_exception(repeat or worth_repeating), "reraise": True}


def worth_repeating(error: BaseException) -> bool:
    """Whether another attempt, at another replica, may go better."""
    if isinstance(error, ClientClosed):
        return False
    return is_overload(error) or (isinstance(error, ApiError) and (error.code in _RETRIED or error.has_newer_certificate))


def is_overload(error: BaseException | None) -> TypeGuard[ApiError]:
    """Whether a replica refused the call because too much is under way; nothing of it was done."""
    return (
        isinstance(error, ApiError)
        and error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        and error.retry_after_seconds is not None
        and not error.budget
    )


def _raised(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None


def is_broken(error: BaseException) -> bool:
    """Whether a stream that ended so is opened again."""
    if is_overload(error):
        return True
    if not isinstance(error, ApiError) or isinstance(error, ClientClosed):
        return False
    return error.code in _BROKEN or error.has_newer_certificate
