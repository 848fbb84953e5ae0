"""Channels to etcd over TLS, whose certificate is read anew when its files change.

gRPC gives a channel its certificate once and for all. So there is a new channel when the files are others: calls that begin from
then on use it, and the old one is closed when its calls and streams are over. Whoever has the channel, or a stub on it, notices
nothing. A watch stays where it is until it ends; an elector changes between two renewals. Files that do not fit together, such as
a certificate whose key is not there yet, leave the old ones in force, with a line in the log.

Threads: any of the synchronous channel, its event loop of the other one.
Cost: a look at three files a second at most; two objects more a call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc

LOOK_SECONDS: Final = 1.0
"""Between two looks at the files."""

_FEW_USES: Final = 16

_log = logging.getLogger(__name__)


class TlsFileError(ValueError):
    """A file that TLS needs is not what it has to be; one line that names it."""


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """What etcd is reached with over TLS: paths of files in PEM."""

    ca: str
    """The authorities of etcd's own certificates."""
    certificate: str = ""
    """Shown to etcd; with a key, or without both."""
    key: str = ""
    server_name: str = ""
    """In place of the host dialled, what etcd's certificates are held against."""

    def files(self) -> tuple[str, ...]:
        return tuple(path for path in (self.ca, self.certificate, self.key) if path)

    def read(self) -> Any:
        """Credentials of what is in the files now. Raises TlsFileError."""
        if bool(self.certificate) != bool(self.key):
            raise TlsFileError(f"etcd: {self.certificate or self.key}: a certificate and its key go together, and one is missing")
        ca = _bytes(self.ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(self.ca)
        except (ssl.SSLError, OSError) as error:
            raise TlsFileError(f"etcd: {self.ca}: holds no certificates in PEM ({error})") from error
        if not self.certificate:
            return grpc.ssl_channel_credentials(root_certificates=ca)
        certificate, key = _bytes(self.certificate), _bytes(self.key)
        try:
            context.load_cert_chain(self.certificate, self.key, lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise TlsFileError(f"etcd: {self.key} is not the key of the certificate in {self.certificate} ({error})") from error
        return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=certificate)


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise TlsFileError(f"etcd: {path}: {error.strerror}") from error


class _ChannelCall:
    """One call on a channel, until it is over."""

    __slots__ = ("_ended", "_follows")

    def __init__(self) -> None:
        self._ended = False
        self._follows: Callable[[], Any] | None = None

    def end(self) -> None:
        self._ended = True

    def follow(self, call: Any) -> None:
        """It is over when this has ended, or nobody has it any more."""
        self._follows = weakref.ref(call)

    def is_over(self) -> bool:
        if self._follows is None:
            return self._ended
        call = self._follows()
        return call is None or bool(call.done())


class _Opened:
    """One real channel with what was asked of it."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.methods: dict[_Method, Any] = {}
        self._uses: list[_ChannelCall] = []
        self._looked_at_size = _FEW_USES

    def begin(self) -> _ChannelCall:
        """Forgets those that are over now and then, so that it knows at most three times as many as are under way."""
        if len(self._uses) > self._looked_at_size:
            self._uses = [use for use in self._uses if not use.is_over()]
            self._looked_at_size = 2 * len(self._uses) + _FEW_USES
        use = _ChannelCall()
        self._uses.append(use)
        return use

    def is_busy(self) -> bool:
        return any(not use.is_over() for use in self._uses)


class _Method:
    """A call that can be made, whichever channel is in force then."""

    def __init__(self, owner: _Reloading, kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._owner = owner
        self._kind, self._arguments, self._options = kind, arguments, options

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._begun(lambda method: method, arguments, options, blocks=self._owner.blocks and self._kind == "unary_unary")

    def future(self, *arguments: Any, **options: Any) -> Any:
        return self._begun(lambda method: method.future, arguments, options, blocks=False)

    def _begun(self, way: Callable[[Any], Any], arguments: Any, options: Any, *, blocks: bool) -> Any:
        opened, use = self._owner.use()
        try:
            method = opened.methods.get(self)
            if method is None:
                make = getattr(opened.channel, self._kind)
                method = opened.methods[self] = make(*self._arguments, **self._options)
            call = way(method)(*arguments, **options)
        except BaseException:
            use.end()
            raise
        if blocks:
            use.end()
        else:
            use.follow(call)
        return call


class _Reloading:
    """What both kinds of channel have in common."""

    blocks = True
    """A call with one request and one response returns the response."""

    def __init__(self, tls: EtcdTls, open_channel: Callable[[Any], Any], clock: Callable[[], float] = time.monotonic) -> None:
        """`open_channel` makes a channel of credentials. Raises TlsFileError."""
        self._tls = tls
        self._open = open_channel
        self._clock = clock
        self._lock = threading.Lock()
        self._replaced: list[_Opened] = []
        self._seen, self._looked_at = self._stamp(), clock()
        self._opened = _Opened(open_channel(tls.read()))

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._method("unary_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._method("unary_stream", arguments, options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._method("stream_unary", arguments, options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._method("stream_stream", arguments, options)

    def use(self) -> tuple[_Opened, _ChannelCall]:
        """The channel in force, for one call."""
        with self._lock:
            now = self._clock()
            if now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                self._look()
            idle = [one for one in self._replaced if not one.is_busy()]
            self._replaced = [one for one in self._replaced if one not in idle]
            opened = self._opened
            use = opened.begin()
        for one in idle:
            self._close(one.channel)
        return opened, use

    def _method(self, kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> _Method:
        return _Method(self, kind, arguments, options)

    def _look(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            credentials = self._tls.read()
        except TlsFileError as error:
            _log.error("the certificate in force stays, as the files that replace it do not fit: %s", error)
            return
        if self._stamp() != stamp:
            # They were still being written.
            self._seen = ()
            return
        self._replaced.append(self._opened)
        self._opened = _Opened(self._open(credentials))

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp, self._tls.files()))

    @abstractmethod
    def _close(self, channel: Any) -> None: ...

    def _take_all(self) -> list[Any]:
        with self._lock:
            return [one.channel for one in (self._opened, *self._replaced)]


class ReloadingChannel(_Reloading):
    """In the place of a grpc.Channel."""

    def subscribe(self, callback: Callable[[Any], None], try_to_connect: bool = False) -> None:
        """As grpc.Channel has it, of the channel in force now alone."""
        with self._lock:
            channel = self._opened.channel
        channel.subscribe(callback, try_to_connect=try_to_connect)

    def close(self) -> None:
        for channel in self._take_all():
            channel.close()

    def __enter__(self) -> ReloadingChannel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _close(self, channel: Any) -> None:
        channel.close()


class ReloadingAioChannel(_Reloading):
    """In the place of a grpc.aio.Channel."""

    blocks = False

    async def close(self) -> None:
        for channel in self._take_all():
            await channel.close()

    async def __aenter__(self) -> ReloadingAioChannel:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _close(self, channel: Any) -> None:
        # It has no call, so nothing waits for its end.
        closing = asyncio.ensure_future(channel.close())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)


_closing: set[Any] = set()
"""Of channels without calls, until they are closed."""


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
