"""Channels to etcd over TLS: real gRPC at the other end, files that change under calls and streams."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from leader.channel import EndpointError, SecureEndpoints, kept, one_of, open_aio_channel, open_channel, target_of
from leader.tls_channel import LOOK_SECONDS, EtcdTls, ReloadingChannel, TlsFileError
from rayched.pki.authority import Authority
from rayched.pki.certificates import read_certificates
from tests.pki.made import CLIENT, Pair, SetClock, a_pair, an_authority

ROOT = "spiffe://rayched-0a1b2c3d/etcd/rayched"
ECHO, COUNT = "/test.Test/Echo", "/test.Test/Count"


class Server:
    """Echoes, counts without an end, and knows which certificates it was shown."""

    def __init__(self, pair: Pair) -> None:
        self.serials: list[int] = []
        self._server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)], pair.ca, require_client_auth=True)
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def seen(self, context: Any) -> None:
        [pem] = context.auth_context()["x509_pem_cert"]
        self.serials.append(read_certificates(pem, "")[0].serial_number)

    def stop(self) -> None:
        self._server.stop(0).wait()


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, server: Server) -> None:
        self._server = server

    def service(self, details: Any) -> Any:
        if details.method == ECHO:
            return grpc.unary_unary_rpc_method_handler(self._echo)
        return grpc.unary_stream_rpc_method_handler(self._count)

    def _echo(self, request: bytes, context: Any) -> bytes:
        self._server.seen(context)
        return request

    def _count(self, request: bytes, context: Any) -> Iterator[bytes]:
        self._server.seen(context)
        number = 0
        while context.is_active():
            yield str(number).encode()
            number += 1
            time.sleep(0.01)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return an_authority()


@pytest.fixture
def server(authority: Authority) -> Iterator[Server]:
    found = Server(a_pair(authority, hosts=["127.0.0.1", "etcd.example"]))
    yield found
    found.stop()


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return a_pair(authority, [ROOT], [CLIENT])


@pytest.fixture
def tls(pair: Pair, tmp_path: Path) -> EtcdTls:
    files = pair.write(tmp_path)
    return EtcdTls(str(files.ca), str(files.certificate), str(files.key))


def echoed(channel: Any) -> bytes:
    found: bytes = channel.unary_unary(ECHO)(b"x", timeout=10.0)
    return found


def refusal(channel: Any) -> Any:
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(ECHO)(b"x", timeout=5.0)
    return raised.value.code()


def soon(channel: ReloadingChannel) -> None:
    """As if the time between two looks were over."""
    channel._looked_at -= LOOK_SECONDS


def test_the_certificate_is_shown_in_every_way_of_calling(server: Server, tls: EtcdTls, pair: Pair) -> None:
    with open_channel(SecureEndpoints([server.endpoint], tls)) as channel:
        echo = channel.unary_unary(ECHO)
        assert echo(b"a", timeout=10.0) == b"a"
        assert echo.future(b"b", timeout=10.0).result() == b"b"
        stream = channel.unary_stream(COUNT)(b"", timeout=10.0)
        assert [next(stream), next(stream)] == [b"0", b"1"]
        stream.cancel()
    assert server.serials == [pair.serial] * 3


def test_new_calls_have_the_new_certificate_while_a_stream_goes_on(
    server: Server, tls: EtcdTls, pair: Pair, authority: Authority, tmp_path: Path
) -> None:
    second = a_pair(authority, [ROOT], [CLIENT])
    with open_channel(SecureEndpoints([server.endpoint], tls)) as channel:
        echo = channel.unary_unary(ECHO)
        stream = channel.unary_stream(COUNT)(b"", timeout=30.0)
        next(stream)
        second.write(tmp_path)
        echo(b"x", timeout=10.0)
        assert server.serials == [pair.serial, pair.serial], "not yet looked at"
        soon(channel)
        echo(b"x", timeout=10.0)
        assert server.serials[-1] == second.serial
        next(stream)
        [old] = channel._replaced
        stream.cancel()
        echo(b"x", timeout=10.0)
        assert channel._replaced == []
        with pytest.raises(ValueError, match="closed"):
            old.channel.unary_unary(ECHO)(b"")
    with pytest.raises(ValueError, match="closed"):
        echo(b"x")


def test_no_call_fails_while_files_are_replaced(server: Server, tls: EtcdTls, authority: Authority, tmp_path: Path) -> None:
    stop, failures = threading.Event(), []
    with open_channel(SecureEndpoints([server.endpoint], tls)) as channel:
        echo = channel.unary_unary(ECHO)

        def call() -> None:
            while not stop.is_set():
                try:
                    echo.future(b"x", timeout=10.0).result()
                except (grpc.RpcError, ValueError) as error:
                    failures.append(error)

        with ThreadPoolExecutor(3) as threads:
            calling = [threads.submit(call) for _ in range(3)]
            for _ in range(3):
                wanted = a_pair(authority, [ROOT], [CLIENT])
                wanted.write(tmp_path)
                ends_at = time.monotonic() + 10.0
                while wanted.serial not in server.serials and time.monotonic() < ends_at:
                    soon(channel)
                    time.sleep(0.01)
                assert wanted.serial in server.serials
            stop.set()
            for one in calling:
                one.result()
    assert failures == []


def test_a_channel_of_asyncio_does_the_same(
    server: Server, tls: EtcdTls, pair: Pair, authority: Authority, tmp_path: Path
) -> None:
    second = a_pair(authority, [ROOT], [CLIENT])

    async def use() -> None:
        async with open_aio_channel(SecureEndpoints([server.endpoint], tls)) as channel:
            echo = channel.unary_unary(ECHO)
            assert await echo(b"x", timeout=10.0) == b"x"
            stream = channel.unary_stream(COUNT)(b"", timeout=30.0)
            await stream.read()
            second.write(tmp_path)
            soon(channel)
            assert await echo(b"x", timeout=10.0) == b"x"
            assert server.serials == [pair.serial, pair.serial, second.serial]
            assert await stream.read() is not grpc.aio.EOF
            assert len(channel._replaced) == 1
            stream.cancel()
            await echo(b"x", timeout=10.0)
            assert channel._replaced == []

    asyncio.run(use())


@pytest.mark.parametrize("part", ["ca.crt", "tls.crt", "tls.key"])
@pytest.mark.parametrize("left", ["half", "nothing", "gone"])
@pytest.mark.row("B28")
def test_files_that_do_not_fit_leave_the_old_ones_in_force(
    server: Server, tls: EtcdTls, pair: Pair, tmp_path: Path, part: str, left: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the channels to etcd."""
    caplog.set_level(logging.ERROR)
    path = tmp_path / part
    whole = path.read_bytes()
    with open_channel(SecureEndpoints([server.endpoint], tls)) as channel:
        if left == "gone":
            path.unlink()
        else:
            path.write_bytes(whole[: len(whole) // 2] if left == "half" else b"")
        for _ in range(2):
            soon(channel)
            echoed(channel)
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 1 and str(path) in told[0]
        assert channel._replaced == []
        path.touch(0o600)
        path.write_bytes(whole)
        soon(channel)
        echoed(channel)
    assert server.serials == [pair.serial] * 3


@pytest.mark.row("B25", "B26")
def test_a_server_that_is_somebody_else_is_refused(authority: Authority, tls: EtcdTls) -> None:
    """Of the channels to etcd."""
    for pair in (
        a_pair(authority, hosts=["10.9.9.9", "elsewhere.example"]),
        a_pair(authority, usages=[CLIENT], hosts=["127.0.0.1"]),
        a_pair(authority, hosts=["127.0.0.1"], ends=-60.0),
        replace(a_pair(an_authority(), hosts=["127.0.0.1"]), ca=authority.certificate_pem),
    ):
        server = Server(pair)
        with open_channel(SecureEndpoints([server.endpoint], tls)) as channel:
            assert refusal(channel) is grpc.StatusCode.UNAVAILABLE
        server.stop()
        assert server.serials == []


def test_several_servers_are_held_against_one_name(server: Server, tls: EtcdTls, authority: Authority) -> None:
    endpoints = [server.endpoint, "127.0.0.1:1"]
    with pytest.raises(EndpointError, match="several over TLS need a server name that all of their certificates have"):
        open_channel(SecureEndpoints(endpoints, tls))
    with open_channel(SecureEndpoints(endpoints, replace(tls, server_name="etcd.example"))) as channel:
        assert echoed(channel) == b"x"
    with open_channel(SecureEndpoints(endpoints, replace(tls, server_name="other.example"))) as channel:
        assert refusal(channel) is grpc.StatusCode.UNAVAILABLE


def test_endpoints_and_their_tls_go_together(tls: EtcdTls) -> None:
    found = SecureEndpoints(["https://a:1", "b:2"], tls)
    assert kept(found) is found
    assert kept(["a:1"]) == ("a:1",) and not isinstance(kept(["a:1"]), SecureEndpoints)
    alone = one_of(found, "b:2")
    assert isinstance(alone, SecureEndpoints) and (alone, alone.tls) == (("b:2",), tls)
    assert not isinstance(one_of(("a:1", "b:2"), "a:1"), SecureEndpoints)
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert isinstance(again, SecureEndpoints) and (again, again.tls) == (found, tls)


def test_the_scheme_says_what_the_files_say(tls: EtcdTls) -> None:
    assert target_of(SecureEndpoints(["https://127.0.0.1:1"], tls)) == target_of(["http://127.0.0.1:1"]) == "ipv4:127.0.0.1:1"
    with pytest.raises(EndpointError, match="there are files for TLS, so want host:port or https://host:port"):
        target_of(SecureEndpoints(["http://127.0.0.1:1"], tls))
    with pytest.raises(EndpointError, match="there is no file of authorities for TLS, so want host:port or http://host:port"):
        target_of(["https://127.0.0.1:1"])


def test_files_are_read_when_a_channel_is_opened(tls: EtcdTls, tmp_path: Path, authority: Authority) -> None:
    def refused(found: EtcdTls) -> str:
        with pytest.raises(TlsFileError) as raised:
            open_channel(SecureEndpoints(["127.0.0.1:1"], found))
        return str(raised.value)

    assert "missing.crt: No such file" in refused(replace(tls, ca=str(tmp_path / "missing.crt")))
    assert "go together, and one is missing" in refused(replace(tls, key=""))
    assert f"{tls.ca}: holds no certificates" in refused(replace(tls, ca=tls.key)).replace(tls.key, tls.ca)
    other = a_pair(authority).write(tmp_path / "other")
    assert f"{other.key} is not the key of the certificate in {tls.certificate}" in refused(replace(tls, key=str(other.key)))


def test_a_channel_forgets_calls_that_are_over(server: Server, tls: EtcdTls) -> None:
    with open_channel(SecureEndpoints([server.endpoint], tls)) as channel:
        echo = channel.unary_unary(ECHO)
        for _ in range(200):
            echo.future(b"x", timeout=10.0).result()
        assert len(channel._opened._uses) < 40


def test_the_clock_says_when_to_look(tls: EtcdTls, pair: Pair, authority: Authority, tmp_path: Path) -> None:
    clock, opened = SetClock(0.0), []

    class Channel:
        def unary_unary(self, *_: Any, **__: Any) -> Any:
            return lambda: b""

        def close(self) -> None:
            pass

    channel = ReloadingChannel(tls, lambda credentials: opened.append(credentials) or Channel(), clock)  # type: ignore[func-returns-value]
    a_pair(authority, [ROOT], [CLIENT]).write(tmp_path)
    call = channel.unary_unary("/x/y")
    for now, times in ((0.5, 1), (0.99, 1), (1.0, 2), (1.5, 2), (3.0, 2)):
        clock.now = now
        call()
        assert len(opened) == times, now


def test_who_waits_for_the_connection_is_told_of_it(server: Server, tls: EtcdTls) -> None:
    ready = threading.Event()

    def told(state: Any) -> None:
        if state is grpc.ChannelConnectivity.READY:
            ready.set()

    with open_channel(SecureEndpoints([server.endpoint], tls)) as channel:
        channel.subscribe(told, try_to_connect=True)
        assert ready.wait(10.0)
