"""A channel to all members of etcd that never waits for a single one of them.

A member whose host has lost its network refuses nothing, it just never answers, and gRPC notices after seconds. A channel over
all endpoints goes on giving it its share of the calls until then. So here is a channel to each member, and

    a call            goes to the member that answered last; without an answer after a while, or after one that says nothing of
                      the call, to the next one beside it, and so on; the first answer counts. With `repeats` that goes round
                      until the time is over: a member may have passed it on to one that is gone
    a call `alone`    goes to one member, and the call after it to the next one, until a member has answered
    a stream          goes to the member that answered last
    `look_around`     asks all members at once who answers, for whoever is about to depend on it

A call may so be done twice, and the answer that counts may be the second one's. So it is for calls that bear it: transactions
whose conditions fail the second time and that read what is there then, and leases, of which one too many runs out.

How long is a while: PATIENCE_SECONDS, or PATIENCE_TIMES what answers take, if that is longer, so that an etcd that is slow is not
asked for everything twice; for what costs it nothing always the former. Where there is one member nothing is asked twice.

Threads: any. Cost: a connection to each member that is used; where there are several, a thread of its own that sleeps.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from leader.channel import kept, one_of, open_channel
from leader.etcd_shim import rpc

PATIENCE_SECONDS: Final = 0.15
"""A member that lives answers within some 10 ms; what is asked for once more costs etcd little."""
PATIENCE_TIMES: Final = 4.0
_USUAL_SHARE: Final = 0.125
"""Of the last answer in what answers usually take."""
_LOOK_SECONDS_MAX: Final = 0.5
_ANY_KEY: Final[Any] = rpc.RangeRequest(key=b"\0", count_only=True)
"""etcd looks whether it is up to date before it looks whether its user may read the key."""
_SAYS_NOTHING: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)
"""Of the call; another member may do better."""


class MemberChannel:
    """In the place of a grpc.Channel, for the stubs of `etcd_shim.rpc`."""

    def __init__(self, endpoints: Sequence[str], *, repeats: bool = False) -> None:
        """Raises EndpointError, and TlsFileError where a file that TLS needs is not what it has to be."""
        endpoints = kept(endpoints)
        self.repeats: Final = repeats
        self.members: Final = tuple(open_channel(one_of(endpoints, endpoint)) for endpoint in endpoints)
        self.later: Final = LaterCalls()
        self._looks = [rpc.KVStub(member).Range for member in self.members]
        self._turn = 0
        """The place of the member that answered last, or of the one to ask after it."""
        self._usual_seconds = 0.0

    def unary_unary(self, *arguments: Any, **options: Any) -> MemberMethod:
        return MemberMethod(self, [member.unary_unary(*arguments, **options) for member in self.members])

    def cheap_call(self, *arguments: Any, **options: Any) -> MemberMethod:
        """As `unary_unary`, of what costs etcd next to nothing: it goes on after PATIENCE_SECONDS however long answers take."""
        return MemberMethod(self, [member.unary_unary(*arguments, **options) for member in self.members], PATIENCE_SECONDS)

    def unary_stream(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        return self._streams([member.unary_stream(*arguments, **options) for member in self.members])

    def stream_stream(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        return self._streams([member.stream_stream(*arguments, **options) for member in self.members])

    def close(self) -> None:
        self.later.close()
        for member in self.members:
            member.close()

    def look_around(self) -> None:
        """The member that answers first is the one to ask; does not wait. Raises ValueError where the channel is closed."""
        if len(self.members) == 1:
            return
        first = threading.Lock()

        def looked(place: int, call: Any) -> None:
            if call.code() not in _SAYS_NOTHING and first.acquire(blocking=False):
                self._turn = place

        for place, look in enumerate(self._looks):
            call = look.future(_ANY_KEY, timeout=_LOOK_SECONDS_MAX)
            call.add_done_callback(lambda ended, place=place: looked(place, ended))

    @property
    def turn(self) -> int:
        return self._turn

    @property
    def patience_seconds(self) -> float:
        return max(PATIENCE_SECONDS, PATIENCE_TIMES * self._usual_seconds)

    def asked(self, place: int) -> None:
        """Alone; so the next call goes to the next one, unless this one answers before."""
        self._turn = (place + 1) % len(self.members)

    def answered(self, place: int, seconds: float) -> None:
        self._turn = place
        self._usual_seconds += _USUAL_SHARE * (seconds - self._usual_seconds)

    def _streams(self, methods: Sequence[Any]) -> Callable[..., Any]:
        def begin(*given: Any, **named: Any) -> Any:
            return methods[self._turn](*given, **named)

        return begin


class MemberMethod:
    """One kind of call."""

    def __init__(self, owner: MemberChannel, methods: Sequence[Any], patience_seconds: float | None = None) -> None:
        """`patience_seconds`: None: as answers take."""
        self._owner, self._methods, self._patience_seconds = owner, methods, patience_seconds

    def __call__(self, request: Any, timeout: float) -> Any:
        """Raises grpc.RpcError."""
        return self.future(request, timeout).result()

    def future(self, request: Any, timeout: float) -> MemberCall:
        """`timeout`: for all members together. Raises ValueError where the channel is closed."""
        turn = self._owner.turn
        places = [*range(turn, len(self._methods)), *range(turn)]
        ways = [(place, self._methods[place]) for place in places]
        call = MemberCall(self._owner, ways, request, timeout, self._patience_seconds)
        call.ask_next()
        return call

    def alone(self, request: Any, timeout: float) -> Any:
        """A grpc.Future of one member, for who calls again by itself."""
        place, began = self._owner.turn, time.monotonic()
        call = self._methods[place].future(request, timeout=timeout)
        self._owner.asked(place)

        def ended(call: Any) -> None:
            if call.code() is grpc.StatusCode.OK:
                self._owner.answered(place, time.monotonic() - began)

        call.add_done_callback(ended)
        return call


class MemberCall:
    """A call under way at one member or several: a grpc.Future, as far as callers here use one."""

    def __init__(
        self, owner: MemberChannel, ways: Sequence[tuple[int, Any]], request: Any, timeout: float, patience_seconds: float | None
    ) -> None:
        self._owner, self._request, self._fixed_patience_seconds = owner, request, patience_seconds
        self._deadline = time.monotonic() + timeout
        self._lock = threading.Lock()
        self._ways = ways
        """The members in the order in which they are asked."""
        self._asked = self._under_way = 0
        """How many times somebody was asked, and of these without an answer yet."""
        self._calls: list[Any] = []
        self._outcome: Any = None
        """The call whose answer counts."""
        self._ended = threading.Event()
        self._callbacks: list[Callable[[MemberCall], object]] = []

    def done(self) -> bool:
        return self._ended.is_set()

    def result(self, timeout: float | None = None) -> Any:
        """Raises grpc.RpcError, grpc.FutureCancelledError, and grpc.FutureTimeoutError where it has not ended."""
        if not self._ended.wait(timeout):
            raise grpc.FutureTimeoutError
        return self._outcome.result()

    def add_done_callback(self, callback: Callable[[MemberCall], object]) -> None:
        """On a thread of gRPC, or at once."""
        with self._lock:
            if self._outcome is None:
                self._callbacks.append(callback)
                return
        callback(self)

    def ask_next(self) -> None:
        """Asks one more member, if that is of use. Raises ValueError where the channel is closed."""
        with self._lock:
            began = time.monotonic()
            if self._outcome is not None or not self._may_ask(began):
                return
            place, method = self._ways[self._asked % len(self._ways)]
            self._asked = number = self._asked + 1
            self._under_way += 1
        try:
            call = method.future(self._request, timeout=max(0.001, self._deadline - began))
        except ValueError:
            with self._lock:
                self._under_way -= 1
                self._asked = len(self._ways)
            raise
        with self._lock:
            self._calls.append(call)
        if len(self._ways) > 1:
            self._owner.later.call(began + self._patience_seconds, lambda: self._patience_over(number))
        call.add_done_callback(lambda ended: self._answered(place, ended, began))

    def _may_ask(self, now: float) -> bool:
        if self._asked < len(self._ways):
            return True
        return self._owner.repeats and len(self._ways) > 1 and now + self._patience_seconds < self._deadline

    @property
    def _patience_seconds(self) -> float:
        fixed = self._fixed_patience_seconds
        return self._owner.patience_seconds if fixed is None else fixed

    def _patience_over(self, number: int) -> None:
        if self._asked == number:  # else somebody was asked meanwhile
            self._go_on()

    def _go_on(self, last: Any = None) -> None:
        """Asks the next member. `last`: the call that has just ended, where no other is under way."""
        try:
            self.ask_next()
        except ValueError:
            # The channel was closed meanwhile, which ends what is under way as well.
            if last is not None:
                self._end(last)

    def _answered(self, place: int, call: Any, began: float) -> None:
        code = call.code()
        if code is grpc.StatusCode.OK:
            self._owner.answered(place, time.monotonic() - began)
        with self._lock:
            self._under_way -= 1
            is_last = not self._under_way
            counts = code not in _SAYS_NOTHING or (is_last and self._asked >= len(self._ways))
        if counts:
            self._end(call)
        elif is_last:
            self._go_on(call)

    def _end(self, call: Any) -> None:
        with self._lock:
            if self._outcome is not None:
                return
            self._outcome = call
            callbacks, others = self._callbacks, [one for one in self._calls if one is not call]
        for other in others:
            other.cancel()
        self._ended.set()
        for callback in callbacks:
            callback(self)


class LaterCalls:
    """Calls functions when it is time, on a thread that begins with the first of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def call(self, at: float, function: Callable[[], object]) -> None:
        """`at` by time.monotonic(). The function does not block and raises nothing. After `close` nothing is called."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leader-members", daemon=True)
                self._thread.start()
            heapq.heappush(self._due, (at, next(self._numbers), function))
            if self._due[0][0] == at:
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (function := self._next()) is not None:
            function()

    def _next(self) -> Callable[[], object] | None:
        """Waits for it; None: it is closed."""
        with self._changed:
            while not self._is_closed:
                if self._due and self._due[0][0] <= time.monotonic():
                    return heapq.heappop(self._due)[2]
                self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
        return None
