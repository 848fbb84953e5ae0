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

import grpc

from rayched.server.edge.byte_budget import ByteBudget, NoRoom
from rayched.server.edge.caller import Authorize, Caller, Identify, address_of, caller_may_leave, is_local
from rayched.server.edge.fairness import FairQueues, LineFull, PriorityLevel, SeatRequest, cost_of, patience
from rayched.server.edge.limits import CallerLimits, EdgeLimits
from rayched.server.edge.method_traits import REPORT_BYTES_MAX, MethodTraits, RateKind
from rayched.server.edge.seat_gate import SeatGate, TooLate
from rayched.server.edge.token_buckets import TokenBuckets
from rayched.server.edge.wrong_credentials import WrongCredentials
from rayched.server.errors import ApiFailure, Code, invalid, over_limit

_log = logging.getLogger(__name__)

READING_BYTES: Final = REPORT_BYTES_MAX
"""Counted for a request while it is read: the most that gRPC lets in."""
SMALL_ANSWER_BYTES: Final = 16 << 10
"""An answer up to this is not counted: calls in flight bound how many there are."""
_PATIENCE_SECONDS: Final = 0.05
"""A caller that makes the server wait for longer gives its seats back."""
_RETRY_SECONDS: Final = 1.0
_RETRY_SECONDS_MIN: Final = 0.05


@dataclass(frozen=True, slots=True)
class EdgePorts:
    """What the edge asks others: those of call_guard.py."""

    identify: Identify
    authorize: Authorize
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
        self.streams_of: Counter[str] = Counter()
        """By connection."""
        self._buckets = TokenBuckets()
        self._wrong = WrongCredentials()
        self.alone = asyncio.Lock()
        """Held by the one call whose kind goes alone."""

    def admit(self, context: Any, name: str, traits: MethodTraits, *, unary: bool) -> Passage:
        """A call for which it is settled who makes it, whether it may, and that it does not come too often; its request is not
        read. Raises ApiFailure."""
        caller = self._identified(context, traits)
        self.ports.authorize(caller, name)
        limits = self.limits.loopback if caller.is_local else self.limits.identity
        if unary and self.calls >= self.limits.calls:
            raise self.refused(traits, "calls", f"this replica has {self.limits.calls} calls in flight")
        if unary and self.calls_of[caller.key] >= limits.calls:
            raise self.refused(traits, "caller-calls", f"{caller.key} has {limits.calls} calls in flight; make fewer at a time")
        if not unary and self.streams_of[caller.peer] >= limits.streams_a_connection:
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

    def _identified(self, context: Any, traits: MethodTraits) -> Caller:
        """Raises ApiFailure; an address that has shown too many wrong credentials is not asked for any."""
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

    def refused(self, traits: MethodTraits, reason: str, text: str, retry_seconds: float = _RETRY_SECONDS) -> ApiFailure:
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


_OPEN: Final = ("caller", "limits", "name", "traits")


class Passage:
    """One call that was admitted: what it holds, until `over`."""

    __slots__ = ("_alone", "_context", "_edge", "_held", "_is_over", "_seat", "_unary", "_until", "_wide", *_OPEN)

    def __init__(
        self, edge: Edge, context: Any, name: str, traits: MethodTraits, caller: Caller, limits: CallerLimits, *, unary: bool
    ) -> None:
        self._edge, self._context, self._unary = edge, context, unary
        self.name, self.traits, self.caller, self.limits = name, traits, caller, limits
        self._seat: SeatRequest | None = None
        self._held = 0
        self._wide: bool | None = None
        """None: it is no watch, or was not counted."""
        self._alone = self._is_over = False
        self._until = 0.0
        """When it has waited for long enough, by the loop's clock."""
        if unary:
            edge.calls += 1
            edge.calls_of[caller.key] += 1
        else:
            edge.streams_of[caller.peer] += 1
        edge.connections_of.setdefault(caller.key, Counter())[caller.peer] += 1

    def over(self, _: Any = None) -> None:
        """The call has ended, and its answer is sent or will not be. Repeated, nothing."""
        if self._is_over:
            return
        self._is_over = True
        edge, key = self._edge, self.caller.key
        self.settled()
        self.done()
        self._release(self._held)
        if self._unary:
            edge.calls -= 1
            _less(edge.calls_of, key)
        else:
            _less(edge.streams_of, self.caller.peer)
        _less(edge.connections_of[key], self.caller.peer)
        if not edge.connections_of[key]:
            del edge.connections_of[key]
        if self._wide is not None:
            _less(edge.watches_of, (key, self._wide))

    # ---- the request

    def deadline(self) -> float:
        """Seconds that a call with one answer has."""
        remaining = self._context.time_remaining()
        limits = self._edge.limits
        return limits.unary_seconds_unasked if remaining is None else min(remaining, limits.unary_seconds)

    def own_deadline(self) -> float | None:
        """The same where the caller has not named one that gRPC looks after."""
        remaining = self._context.time_remaining()
        return None if remaining is not None and remaining <= self._edge.limits.unary_seconds else self.deadline()

    @property
    def request_seconds(self) -> float:
        """How long the request of a stream is waited for."""
        return self._edge.limits.request_seconds

    async def request(self, seconds: float) -> bytes:
        """The call's request, read once there are seats and room for it within its `seconds`. Raises ApiFailure."""
        self._wait(seconds)
        await self._take_seat(1)
        key = self.caller.key if self.limits.reading_bytes >= self.limits.held_bytes else f"{self.caller.key} reading"
        limit = min(self.limits.reading_bytes, self.limits.held_bytes)
        await self._room(key, READING_BYTES, limit, "the server is reading as many requests as it can hold")
        try:
            data = await self._read()
        finally:
            self._edge.bytes.give_back(key, READING_BYTES)
        if len(data) > self.traits.request_bytes_max:
            self._edge.rejected[self.traits.level.value, "size"] += 1
            text = f"{self.name}: a request of {len(data)} bytes, at most {self.traits.request_bytes_max} are allowed"
            raise over_limit(f"{text}; send less in one call")
        self._hold(len(data))
        cost = cost_of(len(data))
        if self.traits.alone:
            # Not before: who sends slowly would keep all others waiting.
            self.settled()
            self._wait(seconds)
            await self._go_alone()
        if self._seat is None:
            # It was given back meanwhile.
            self._wait(seconds)
            await self._take_seat(cost)
        else:
            self._edge.gate.queues.grow(self._seat, cost)
        return data

    def counted(self, objects: int = 0, calls: float = 1.0) -> None:
        """What its request asks for is known now: an answer of so many objects, as many calls."""
        if self._seat is not None:
            self._edge.gate.queues.grow(self._seat, cost_of(self._held, objects))
        self._edge.charge(self, calls - 1.0)

    def counts_as_watch(self, *, wide: bool) -> None:
        """Wide: of everything of a kind, or of all kinds, without a selector. Raises ApiFailure."""
        edge, key, limits = self._edge, self.caller.key, self.limits
        of_caller = edge.watches_of[key, True] + edge.watches_of[key, False]
        if of_caller >= limits.watches:
            raise edge.refused(self.traits, "watches", f"{key} has {limits.watches} watches open; close some", _RETRY_SECONDS)
        if wide and edge.watches_of[key, True] >= limits.wide_watches:
            text = f"{key} has {limits.wide_watches} watches without a selector open; close some, or select"
            raise edge.refused(self.traits, "wide-watches", text)
        self._wide = wide
        edge.watches_of[key, wide] += 1

    # ---- the answer

    async def answered(self, answer: bytes) -> bytes:
        """An answer to be sent: it counts until the caller has it. Raises ApiFailure where there is no room for a large one."""
        if len(answer) > SMALL_ANSWER_BYTES:
            key, size = self.caller.key, len(answer)
            if self.traits.level in (PriorityLevel.WRITE, PriorityLevel.NODE):
                # It was done, and its caller has to know.
                self._edge.bytes.add(key, size)
            else:
                self._wait(self.deadline())
                await self._room(key, size, self.limits.held_bytes, f"{key} has not taken its other answers")
            self._held += size
        return answer

    async def send(self, message: bytes) -> None:
        """One message of a stream; returns when the caller has taken it, but for what its window holds."""
        key, size = self.caller.key, len(message)
        edge = self._edge
        if not edge.bytes.take(key, size, self.limits.held_bytes):
            self.settled()
            # As with a caller that does not read: whoever writes decides how long to wait.
            await edge.bytes.hold(key, size, self.limits.held_bytes, None)
        try:
            with caller_may_leave():
                await self._patiently(self._context.write(message))
        finally:
            edge.bytes.give_back(key, size)

    def settled(self) -> None:
        """It needs its seats no more."""
        seat, self._seat = self._seat, None
        if seat is not None:
            self._edge.gate.give_back(seat)

    def done(self) -> None:
        """Of its kind another one may go alone."""
        if self._alone:
            self._alone = False
            self._edge.alone.release()

    def refused(self, reason: str, text: str, retry_seconds: float = _RETRY_SECONDS) -> ApiFailure:
        """The failure to raise where something is too much now; counted."""
        return self._edge.refused(self.traits, reason, text, retry_seconds)

    # ---- within

    def _wait(self, seconds: float) -> None:
        """From now on it waits for as long as a call with so much time may."""
        self._until = asyncio.get_running_loop().time() + patience(seconds)

    def _patience_left(self) -> float:
        return max(0.0, self._until - asyncio.get_running_loop().time())

    async def _go_alone(self) -> None:
        try:
            async with asyncio.timeout(self._patience_left()):
                await self._edge.alone.acquire()
        except TimeoutError:
            raise self.refused("alone", "another question that the deciding thread works out is under way") from None
        self._alone = True

    async def pass_gate(self, seconds: float) -> None:
        """A stream of requests has its turn, and needs no seats afterwards. Raises ApiFailure."""
        self._wait(seconds)
        await self._take_seat(1)
        self.settled()

    async def _take_seat(self, cost: int) -> None:
        level = self.traits.level
        if level is PriorityLevel.EXEMPT:
            return
        gate, key = self._edge.gate, self.caller.key
        try:
            seat = await gate.seat(level, key, cost, self._patience_left(), self.limits.waiting)
        except LineFull:
            text = f"{key} has {self.limits.waiting} calls waiting (level {level.value}); make fewer at a time"
            raise self.refused("line-full", text, gate.queues.retry_seconds(level)) from None
        except TooLate:
            text = f"there was no place in time (level {level.value})"
            raise self.refused("too-late", text, gate.queues.retry_seconds(level)) from None
        if self._is_over:
            gate.give_back(seat)
            raise asyncio.CancelledError("the call is over")
        self._seat = seat

    async def _room(self, key: str, size: int, limit: int, why: str) -> None:
        if not self._edge.bytes.has_room(key, size, limit):
            self.settled()
        try:
            await self._edge.bytes.hold(key, size, limit, self._patience_left())
        except NoRoom:
            raise self.refused("bytes", why) from None

    async def _read(self) -> bytes:
        try:
            with caller_may_leave():
                data = await self._patiently(self._context.read())
        except grpc.aio.UsageError:
            # The server has stopped, or the call has ended.
            raise asyncio.CancelledError("nobody is left to be answered") from None
        if data is grpc.aio.EOF:
            raise invalid(f"{self.name}: the call came without its request")
        found: bytes = data
        return found

    async def _patiently(self, passing: Any) -> Any:
        """What the caller has a part in. Where it takes its time, it has no seats meanwhile."""
        if self._seat is None:
            return await passing
        slow = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self.settled)
        try:
            return await passing
        finally:
            slow.cancel()

    def _hold(self, size: int) -> None:
        self._edge.bytes.add(self.caller.key, size)
        self._held += size

    def _release(self, size: int) -> None:
        if size:
            self._edge.bytes.give_back(self.caller.key, size)
            self._held -= size


def too_slow(name: str, seconds: float) -> ApiFailure:
    """The failure of a call that took longer than the edge lets it."""
    return ApiFailure(Code.DEADLINE_EXCEEDED, f"{name}: not done within {seconds:g} s, which is all that it is given")


def _less(counts: Counter[Any], key: Any) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
