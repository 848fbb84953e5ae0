"""A channel to the members of etcd for one who follows: each stream goes to the member after that of the last stream.

So whoever gives up a stream that is silent does not get the same member again. Calls go to the member of the last stream, and
from one that gave no answer on to the next. Each call is made once.

Cost: a connection to each member that is used.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from leader.channel import kept, one_of, open_channel


class SuccessiveChannel:
    """In the place of a grpc.Channel, for the stubs of `etcd_shim.rpc` for keys and watches."""

    def __init__(self, endpoints: Sequence[str], uniform: Callable[[], float] = random.random) -> None:
        """`uniform`, from 0 to 1, says who is first: not all who follow begin with the same one. Raises EndpointError, and
        TlsFileError where a file that TLS needs is not what it has to be."""
        endpoints = kept(endpoints)
        self._members = tuple(open_channel(one_of(endpoints, endpoint)) for endpoint in endpoints)
        self._streams = self._calls = int(uniform() * len(self._members)) % len(self._members)

    def unary_unary(self, *arguments: Any, **options: Any) -> SuccessiveMethod:
        return SuccessiveMethod(self, [member.unary_unary(*arguments, **options) for member in self._members])

    def stream_stream(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        methods = [member.stream_stream(*arguments, **options) for member in self._members]

        def begin(*given: Any, **named: Any) -> Any:
            self._calls = place = self._streams
            self._streams = (place + 1) % len(methods)
            return methods[place](*given, **named)

        return begin

    def close(self) -> None:
        for member in self._members:
            member.close()

    @property
    def place(self) -> int:
        """Of the member that calls go to."""
        return self._calls

    def failed(self, place: int) -> None:
        """A call to it."""
        if self._calls == place:
            self._calls = (place + 1) % len(self._members)


class SuccessiveMethod:
    """One kind of call."""

    def __init__(self, owner: SuccessiveChannel, methods: Sequence[Any]) -> None:
        self._owner, self._methods = owner, methods

    def future(self, request: Any, timeout: float) -> Any:
        """A grpc.Future."""
        place = self._owner.place
        call = self._methods[place].future(request, timeout=timeout)

        def ended(call: Any) -> None:
            if call.code() is not grpc.StatusCode.OK:
                self._owner.failed(place)

        call.add_done_callback(ended)
        return call
