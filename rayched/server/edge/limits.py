"""How much one caller may have, and all of them together. Pure."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Final

from rayched.access.binding_limits import NO_LIMITS, BindingLimits
from rayched.server.edge.fairness import SEATS
from rayched.server.edge.method_traits import REPORT_BYTES_MAX, RateKind

UNLIMITED: Final = 1 << 62
STORE_BYTES: Final = 2 << 20
STORE_BYTES_ALL: Final = 6 << 20


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Calls a second of one caller; math.inf: as many as it likes. A batch of objects counts as a tenth of them."""

    writes: float = 200.0
    reads: float = 100.0
    watches: float = 10.0
    heartbeats: float = 50.0
    explanations: float = 1.0
    queue_lists: float = 5.0
    burst_seconds: float = 2.0
    """What is not used is saved up for so long."""

    def of(self, kind: RateKind) -> float:
        match kind:
            case RateKind.NONE:
                return math.inf
            case RateKind.WRITES:
                return self.writes
            case RateKind.READS:
                return self.reads
            case RateKind.WATCHES:
                return self.watches
            case RateKind.HEARTBEATS:
                return self.heartbeats
            case RateKind.EXPLANATIONS:
                return self.explanations
            case RateKind.QUEUE_LISTS:
                return self.queue_lists


NO_RATES: Final = RateLimits(*[math.inf] * 6)


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """Of one identity, or of one address that has none."""

    calls: int = 64
    """Unary calls in flight, those that wait included."""
    waiting: int = 50
    """Of these, in one level."""
    held_bytes: int = 16 << 20
    """Requests that are read or worked on, and answers that the caller has not taken."""
    reading_bytes: int = UNLIMITED
    """Of these, requests that are being read: what they may have, for nobody knows what they will."""
    watches: int = 200
    wide_watches: int = 20
    """Of these, of all namespaces or of one, without a selector."""
    connections: int = 64
    streams_a_connection: int = 100
    """Calls that last."""
    rates: RateLimits = field(default_factory=RateLimits)
    wrong_credentials: float = 20.0
    """A minute, of an address."""
    store_bytes: float = STORE_BYTES
    """A second, of objects that are written to one namespace, whoever writes them."""


@functools.lru_cache(maxsize=1_024)
def granted(everybody: CallerLimits, given: BindingLimits) -> CallerLimits:
    """What a caller may have of whom its bindings say this."""
    if given == NO_LIMITS:
        return everybody
    rates = everybody.rates
    return replace(
        everybody,
        watches=given.watches or everybody.watches,
        rates=replace(
            rates,
            writes=given.writes or rates.writes,
            reads=given.reads or rates.reads,
            watches=given.watch_starts or rates.watches,
            heartbeats=given.heartbeats or rates.heartbeats,
        ),
    )


LOOPBACK: Final = CallerLimits(
    calls=UNLIMITED,
    waiting=UNLIMITED,
    held_bytes=UNLIMITED,
    reading_bytes=8 * REPORT_BYTES_MAX,
    watches=UNLIMITED,
    wide_watches=UNLIMITED,
    connections=UNLIMITED,
    streams_a_connection=UNLIMITED,
    rates=NO_RATES,
    wrong_credentials=math.inf,
    store_bytes=math.inf,
)
"""Of whoever is on this host and has no identity: many programs that nobody can tell apart."""


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Of one replica."""

    identity: CallerLimits = field(default_factory=CallerLimits)
    """Of each identity, and of each address of another host without one."""
    loopback: CallerLimits = LOOPBACK
    seats: int = SEATS
    calls: int = 512
    held_bytes: int = 256 << 20
    store_bytes: float = STORE_BYTES_ALL
    """A second, of objects that are written to all namespaces together."""
    connections: int = 2_000
    calls_a_connection: int = 1_000
    """Of all kinds. gRPC resets what a client begins beyond that, as UNAVAILABLE and without a reason."""
    handshake_seconds: float = 5.0
    idle_seconds: float = 300.0
    """A connection without a call is closed after so long."""
    age_seconds: float = 1_800.0
    """A connection takes no new calls after so long; the client makes another one."""
    unary_seconds: float = 30.0
    """The longest deadline of a call with one answer."""
    unary_seconds_unasked: float = 10.0
    """That of a call that names none."""
    request_seconds: float = 10.0
    """The request of a stream has to be there then."""
