"""The edge of a replica's API: what is settled before anything of a request is read, and what a call holds until it is over.

    gRPC: headers ──▶ who is it? ──▶ may it make this call? ──▶ calls in flight, rate ──▶ seats ──▶ bytes ──▶ the request is read
                      identify       authorize                  at once, or refused       wait      wait

gRPC's own unary handlers hand a request over when it has been read, so whoever refuses it has already paid for it. Here every
method takes a stream of requests, which looks the same on the wire, and reads one message from it when the time has come. Until
then a client's window of 64 KiB is all that it can send.

How long a request is nobody knows before it is there, so as much as gRPC would let in is counted for it while it is read. A call
that makes the server wait, for its request or because it does not take its answer, has no seats meanwhile.

What is refused is refused with RESOURCE_EXHAUSTED, a line that says what to do, and where trying again helps, after how long.

Owner: the event loop. Cost: a few dictionary look-ups a call, and a timer where it waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rayched.access.token_buckets import TokenBuckets
from rayched.access.wrong_credentials import WrongCredentials
from rayched.server.edge.byte_budget import ByteBudget
from rayched.server.edge.caller import Authorize, Caller, Check, Identify, address_of, is_local
from rayched.server.edge.fairness import FairQueues
from rayched.server.edge.limits import CallerLimits, EdgeLimits, granted
from rayched.server.edge.method_traits import MethodTraits, RateKind
from rayched.server.edge.passage import RETRY_SECONDS, Passage
from rayched.server.edge.seat_gate import SeatGate
from rayched.server.edge.store_flow import StoreFlow
from rayched.server.errors import ApiFailure, Code, over_limit
from rayched.server.peers import CertificateJudge

_log = logging.getLogger(__name__)

_RETRY_SECONDS_MIN: Final = 0.05


@dataclass(frozen=True, slots=True)
class EdgePorts:
    """What the edge asks others: those of call_guard.py."""

    identify: Identify
    authorize: Authorize
    judge: CertificateJudge | None = None
    """Whether certificates count, also later on; None: there are none."""
    check: Check = lambda _: None
    """Whether who was identified is still let in, in the middle of a call."""
    clock: Callable[[], float] = time.monotonic


class Edge:
    """The edge of one replica."""

    def __init__(self, limits: EdgeLimits, ports: EdgePorts) -> None:
        self.limits = limits
        self.ports = ports
        self.gate = SeatGate(FairQueues(self.limits.seats))
        self.bytes = ByteBudget(self.limits.held_bytes)
        self.rejected: Counter[tuple[str, str]] = Counter()
        """By level and reason."""
        self.calls = 0
        """Unary ones in flight."""
        self.calls_of: Counter[str] = Counter()
        self.watches_of: Counter[tuple[str, bool]] = Counter()
        """By caller, and whether they are wide."""
        self.connections_of: dict[str, Counter[str]] = {}
        """By caller: connections with calls."""
        self.streams_of: Counter[tuple[str, str]] = Counter()
        """By connection, and the user where it is a gateway's."""
        self._buckets = TokenBuckets()
        self._wrong = WrongCredentials()
        self._stored = StoreFlow()
        self.alone = asyncio.Lock()
        """Held by the one call whose kind goes alone."""

    def admit(self, context: Any, name: str, traits: MethodTraits, caller: Caller, *, unary: bool) -> Passage:
        """A call of somebody who was identified, for which it is settled whether they may make it, and that it does not come too
        often; its request is not read. Raises ApiFailure."""
        self.ports.authorize(caller, name)
        limits = self.limits.loopback if caller.is_local else granted(self.limits.identity, caller.granted)
        if unary and self.calls >= self.limits.calls:
            raise self.refused(traits, "calls", f"this replica has {self.limits.calls} calls in flight")
        if unary and self.calls_of[caller.key] >= limits.calls:
            raise self.refused(traits, "caller-calls", f"{caller.key} has {limits.calls} calls in flight; make fewer at a time")
        if not unary and self.streams_of[caller.stream_key] >= limits.streams_a_connection:
            text = f"a connection of {caller.key} has {limits.streams_a_connection} streams open; open them on another one"
            raise self.refused(traits, "connection-streams", text)
        open_to: Counter[str] = self.connections_of.get(caller.key, Counter())
        if len(open_to) >= limits.connections and caller.peer not in open_to:
            text = f"{caller.key} has {limits.connections} connections with calls; make calls share them"
            raise self.refused(traits, "connections", text)
        wait = self._buckets.take(
            (caller.key, traits.rate), limits.rates.of(traits.rate), self._burst(limits, traits.rate), self.ports.clock()
        )
        if wait:
            rate = limits.rates.of(traits.rate)
            text = f"{caller.key} makes more than {rate:g} calls a second of this kind ({traits.rate.value})"
            raise self.refused(traits, "rate", text, wait)
        return Passage(self, context, name, traits, caller, limits, unary=unary)

    def identified(self, context: Any, traits: MethodTraits) -> Caller:
        """Who makes a call. Raises ApiFailure; an address that has shown too many wrong credentials is not asked for any."""
        address, clock = address_of(str(context.peer())), self.ports.clock
        a_minute = (self.limits.loopback if is_local(address) else self.limits.identity).wrong_credentials
        wait = self._wrong.wait(address, a_minute, clock())
        if wait:
            text = f"{address} has shown {a_minute:g} wrong credentials in a minute"
            raise self.refused(traits, "credentials", text, wait)
        try:
            return self.ports.identify(context)
        except ApiFailure as failure:
            if failure.code is Code.UNAUTHENTICATED:
                self._wrong.shown(address, a_minute, clock())
            raise

    def charge(self, passage: Passage, amount: float) -> None:
        """A call counts as so many more."""
        kind, limits = passage.traits.rate, passage.limits
        burst = self._burst(limits, kind)
        self._buckets.charge((passage.caller.key, kind), limits.rates.of(kind), burst, amount, self.ports.clock())

    def stores(self, passage: Passage, namespace: str, size: int) -> None:
        """An object of so many bytes is to be written. Raises ApiFailure where there have been too many."""
        one, all_of_them = passage.limits.store_bytes, self.limits.store_bytes
        wait = self._stored.take(namespace, size, one, all_of_them, self.ports.clock())
        if wait:
            text = f"too many bytes are written; {one:.0f} a second are allowed for a namespace, {all_of_them:.0f} for all"
            raise self.refused(passage.traits, "store-bytes", text, wait)

    def refused(self, traits: MethodTraits, reason: str, text: str, retry_seconds: float = RETRY_SECONDS) -> ApiFailure:
        """The failure of a call that is too much now; counted."""
        self.rejected[traits.level.value, reason] += 1
        seconds = max(retry_seconds, _RETRY_SECONDS_MIN)
        return over_limit(f"{text}; nothing of this call was done, try again in {seconds:.1f} s", seconds)

    def closed(self, connections: int) -> None:
        """So many were closed, as their addresses have too many."""
        if connections:
            self.rejected["none", "address-connections"] += connections
            _log.warning(
                "%d connections were closed: no address may have more than %d", connections, self.limits.identity.connections
            )

    @staticmethod
    def _burst(limits: CallerLimits, kind: RateKind) -> float:
        return max(1.0, limits.rates.of(kind) * limits.rates.burst_seconds)
