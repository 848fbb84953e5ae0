"""Channels to the endpoints of one client: opened when first used, and opened anew when the client's certificate has changed.

A channel with an older certificate takes no new calls and is closed once those that it has are over. So no call fails because
files were replaced. The same goes for one that has as many calls as a connection may have: those that come get a further channel.
Without a certificate channels have no TLS, and live as long as the client.

Used under its owner's lock, or in one event loop.
Cost: with a certificate, three looks at the file system a second at most.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from rayched.client.endpoints import method, serialized
from rayched.pki.client_token import ShownByCaller

CALLS_A_CHANNEL_MAX: Final = 800
"""Under way at a time. A replica takes 1,000 of a connection, and gRPC keeps further ones until others end, as watches do not."""


class EndpointChannel:
    """One channel, the calls that were made on it, and those under way."""

    __slots__ = ("_seen", "channel", "methods", "under_way", "version")

    def __init__(self, channel: Any, version: int) -> None:
        self.channel = channel
        self.version = version
        self.methods: dict[str, Any] = {}
        self.under_way: set[CallUse] = set()
        self._seen: CallUse | None = None
        """The one that the last look found under way."""

    def use(self, name: str) -> CallUse:
        """Of one call."""
        found = self.methods.get(name)
        if found is None:
            target = method(name)
            make = getattr(self.channel, target.kind)
            found = self.methods[name] = make(target.path, serialized, target.response.FromString)
        return CallUse(self, found)

    def is_busy(self) -> bool:
        """Asked at each call: the one that was under way at the last look nearly always still is."""
        if self._seen is None or self._seen not in self.under_way or self._seen.is_over():
            self._seen = next((one for one in tuple(self.under_way) if not one.is_over()), None)
        return self._seen is not None


class CallUse:
    """Keeps a channel open for one call: inside a `with`, or as long as somebody has a stream that goes on."""

    __slots__ = ("_channel", "_stream", "make")

    def __init__(self, channel: EndpointChannel, make: Any) -> None:
        self._channel = channel
        self._stream: Any = None
        self.make: Final = make
        """Begins the call."""
        channel.under_way.add(self)

    def __enter__(self) -> Any:
        return self.make

    def __exit__(self, *error: object) -> None:
        self.end()

    def stream(self, *arguments: Any, **options: Any) -> Any:
        """Begins a stream."""
        try:
            stream = self.make(*arguments, **options)
        except BaseException:
            self.end()
            raise
        self._stream = weakref.ref(stream)
        weakref.finalize(stream, self.end).atexit = False
        return stream

    def is_over(self) -> bool:
        """Of a stream: it has ended, or nobody has it any more."""
        stream = None if self._stream is None else self._stream()
        return self._stream is not None and (stream is None or stream.done())

    def end(self) -> None:
        # A set takes that from any thread.
        self._channel.under_way.discard(self)


class EndpointChannels:
    """By endpoint."""

    def __init__(
        self,
        open_plain: Callable[..., Any],
        open_secure: Callable[..., Any],
        options: Sequence[tuple[str, Any]],
        certificate: ShownByCaller | None,
    ) -> None:
        """`open_plain` and `open_secure`: gRPC's makers of channels."""
        self.certificate: Final = certificate
        self._open_plain, self._open_secure = open_plain, open_secure
        self._options = tuple(options)
        self._channels: dict[str, EndpointChannel] = {}
        self._replaced: list[EndpointChannel] = []
        self.is_closed = False
        """No channel is opened any more."""

    def channel(self, endpoint: str) -> EndpointChannel:
        """For one more call."""
        version = 0 if self.certificate is None else self.certificate.version()
        found = self._channels.get(endpoint)
        if found is not None and found.version == version and len(found.under_way) < CALLS_A_CHANNEL_MAX:
            return found
        if found is not None:
            self._replaced.append(found)
        found = self._channels[endpoint] = EndpointChannel(self._open(endpoint), version)
        return found

    def take_idle(self) -> list[Any]:
        """Replaced channels without a call, for the owner to close."""
        if not self._replaced:
            return []
        busy = [one for one in self._replaced if one.is_busy()]
        idle = [one.channel for one in self._replaced if one not in busy]
        self._replaced = busy
        return idle

    def take_all(self) -> list[Any]:
        """Every channel, for the owner to close; there will be no other."""
        self.is_closed = True
        every = [one.channel for one in (*self._channels.values(), *self._replaced)]
        self._channels.clear()
        self._replaced.clear()
        return every

    def _open(self, endpoint: str) -> Any:
        if self.certificate is None:
            return self._open_plain(endpoint, options=self._options)
        return self._open_secure(endpoint, self.certificate.credentials(), options=self._options)
