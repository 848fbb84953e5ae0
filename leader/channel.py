"""gRPC channels to etcd: one form of endpoint, one set of options, for the synchronous and the asyncio API, with TLS or without.

Each channel has connections of its own (local subchannel pool): the elector's renewals never queue behind the watch or the
bulk writes of another channel, and do not inherit its reconnect back-off. Reconnecting is quick (50 ms to 1 s), because etcd
restarts in under a second. A server that hangs without closing is detected by keepalive after about two seconds of
unanswered pings; etcd refuses clients that ping more often than every 5 s, hence 6 s. It also refuses pings on a connection that
carries no call, and gRPC answers that by pinging ever more rarely, so connections without a call are left in peace. gRPC's own
limit of pings without data is lifted: a watch that has nothing to say would be pinged twice and then hardly any more. Deadlines
of calls are the caller's.

Cost: one TCP connection per endpoint and channel.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Final

import grpc
import grpc.aio

from leader.tls_channel import EtcdTls, ReloadingAioChannel, ReloadingChannel

_OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # So long may an attempt to connect take: over a network of 300 ms latency TCP and TLS take one second.
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A watch that starts behind gets up to 1,000 revisions in one message, far above gRPC's default of 4 MiB.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.lb_policy_name", "round_robin"),
    # An etcd address is never meant to be reached through the environment's HTTP proxy.
    ("grpc.enable_http_proxy", 0),
)


class EndpointError(ValueError):
    """An etcd endpoint that is not host:port, or a host name that does not resolve."""


class SecureEndpoints(tuple[str, ...]):
    """Endpoints that are reached over TLS, and what they are reached with. A plain sequence of endpoints has no TLS."""

    tls: EtcdTls

    def __new__(cls, endpoints: Sequence[str], tls: EtcdTls) -> SecureEndpoints:
        found = super().__new__(cls, endpoints)
        found.tls = tls
        return found

    def __reduce__(self) -> tuple[type[SecureEndpoints], tuple[tuple[str, ...], EtcdTls]]:
        return SecureEndpoints, (tuple(self), self.tls)


def kept(endpoints: Sequence[str]) -> tuple[str, ...]:
    """The endpoints as a tuple that nobody changes, with the TLS that they have."""
    return endpoints if isinstance(endpoints, SecureEndpoints) else tuple(endpoints)


def one_of(endpoints: Sequence[str], endpoint: str) -> tuple[str, ...]:
    """This endpoint alone, reached as all of them are."""
    return SecureEndpoints((endpoint,), endpoints.tls) if isinstance(endpoints, SecureEndpoints) else (endpoint,)


def channel_options() -> list[tuple[str, int | str]]:
    """The options of every channel to etcd, as grpc takes them."""
    return list(_OPTIONS)


def target_of(endpoints: Sequence[str]) -> str:
    """The gRPC target of these endpoints: `host:port`, `[ipv6]:port` or `http://host:port`, or a single `unix:path`.

    With TLS it is `https://` in place of `http://`, and several endpoints need a server name that the certificates of all of them
    have: gRPC holds a list against one name.

    One host name is left to gRPC's resolver. Several endpoints must become addresses, because a gRPC list holds addresses
    only: names among them are resolved here, once.
    """
    if isinstance(endpoints, str):
        raise EndpointError(f"etcd endpoints: {endpoints!r} is one text, want a list of host:port")
    if not endpoints:
        raise EndpointError("etcd endpoints: none given, want at least one host:port")
    if len(endpoints) == 1 and endpoints[0].startswith("unix:"):
        return endpoints[0]
    secure = isinstance(endpoints, SecureEndpoints)
    if isinstance(endpoints, SecureEndpoints) and len(endpoints) > 1 and not endpoints.tls.server_name:
        raise EndpointError(
            f"etcd endpoints: {','.join(endpoints)}: several over TLS need a server name that all of their certificates have"
        )
    pairs = [_host_and_port(endpoint, secure=secure) for endpoint in endpoints]
    if len(pairs) == 1 and _ip_version(pairs[0][0]) is None:
        return f"dns:///{pairs[0][0]}:{pairs[0][1]}"
    hosts = [(host if _ip_version(host) else _resolved(host, port), port) for host, port in pairs]
    versions = {_ip_version(host) for host, _ in hosts}
    if len(versions) > 1:
        raise EndpointError(f"etcd endpoints: {','.join(endpoints)} mix IPv4 and IPv6, want one of them")
    if versions == {4}:
        return "ipv4:" + ",".join(f"{host}:{port}" for host, port in hosts)
    return "ipv6:" + ",".join(f"[{host}]:{port}" for host, port in hosts)


def open_channel(endpoints: Sequence[str]) -> grpc.Channel:
    """A channel of its own to these endpoints; connects when first used. The caller closes it.

    Raises EndpointError, and TlsFileError where a file that TLS needs is not what it has to be.
    """
    target = target_of(endpoints)
    if not isinstance(endpoints, SecureEndpoints):
        return grpc.insecure_channel(target, options=channel_options())
    options = _secure_options(endpoints.tls)
    return ReloadingChannel(endpoints.tls, lambda credentials: grpc.secure_channel(target, credentials, options=options))


def open_aio_channel(endpoints: Sequence[str]) -> grpc.aio.Channel:
    """As `open_channel`, for asyncio; to be called inside a running loop. The stubs of `etcd_shim.rpc` work on both."""
    target = target_of(endpoints)
    if not isinstance(endpoints, SecureEndpoints):
        return grpc.aio.insecure_channel(target, options=channel_options())
    options = _secure_options(endpoints.tls)
    return ReloadingAioChannel(endpoints.tls, lambda credentials: grpc.aio.secure_channel(target, credentials, options=options))


def _secure_options(tls: EtcdTls) -> list[tuple[str, int | str]]:
    return [*_OPTIONS, *([("grpc.ssl_target_name_override", tls.server_name)] if tls.server_name else [])]


def _host_and_port(endpoint: str, *, secure: bool) -> tuple[str, int]:
    text, scheme, other = endpoint.strip(), "https://" if secure else "http://", "http://" if secure else "https://"
    if text.startswith(other):
        found = "there are files for TLS" if secure else "there is no file of authorities for TLS"
        raise EndpointError(f"etcd endpoint {endpoint!r}: {found}, so want host:port or {scheme}host:port")
    host, _, port = text.removeprefix(scheme).rstrip("/").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or "/" in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise EndpointError(f"etcd endpoint {endpoint!r}: want host:port with a port of 1 to 65535")
    return host, int(port)


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def _resolved(host: str, port: int) -> str:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise EndpointError(f"etcd endpoint {host}:{port}: the host name does not resolve ({error})") from error
    addresses = sorted((str(answer[4][0]) for answer in answers), key=lambda address: ipaddress.ip_address(address).version)
    return addresses[0]
