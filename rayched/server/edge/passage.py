"""One call that the edge has admitted: what it holds, what it waits for, and what it gives back.

Owner: the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import grpc

from rayched.server.edge.byte_budget import NoRoom
from rayched.server.edge.caller import Caller, caller_may_leave
from rayched.server.edge.fairness import LineFull, PriorityLevel, SeatRequest, cost_of, patience
from rayched.server.edge.limits import CallerLimits
from rayched.server.edge.method_traits import REPORT_BYTES_MAX, MethodTraits
from rayched.server.edge.seat_gate import TooLate
from rayched.server.errors import ApiFailure, Code, invalid, over_limit

if TYPE_CHECKING:
    from rayched.server.edge.edge import Edge

READING_BYTES: Final = REPORT_BYTES_MAX
"""Counted for a request while it is read: the most that gRPC lets in."""
SMALL_ANSWER_BYTES: Final = 16 << 10
"""An answer up to this is not counted: calls in flight bound how many there are."""
RETRY_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 0.05
"""A caller that makes the server wait for longer gives its seats back."""

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
            edge.streams_of[caller.stream_key] += 1
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
            _less(edge.streams_of, self.caller.stream_key)
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

    def stores(self, namespace: str, size: int) -> None:
        """An object of so many bytes is to be written for it. Raises ApiFailure where there have been too many."""
        self._edge.stores(self, namespace, size)

    def counts_as_watch(self, *, wide: bool) -> None:
        """Wide: of everything of a kind, or of all kinds, without a selector. Raises ApiFailure."""
        edge, key, limits = self._edge, self.caller.key, self.limits
        of_caller = edge.watches_of[key, True] + edge.watches_of[key, False]
        if of_caller >= limits.watches:
            raise edge.refused(self.traits, "watches", f"{key} has {limits.watches} watches open; close some", RETRY_SECONDS)
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

    def check_certificate(self) -> None:
        """Raises UNAUTHENTICATED where the caller's does not count any more, or their token."""
        self._edge.ports.check(self.caller)
        if self._edge.ports.judge is not None:
            self._edge.ports.judge.check_again(self._context)

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

    def refused(self, reason: str, text: str, retry_seconds: float = RETRY_SECONDS) -> ApiFailure:
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
