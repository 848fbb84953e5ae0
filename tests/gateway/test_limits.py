"""What the gateway bears of strangers and users. A gateway in this process, before replicas that are not there."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from rayched.gateway.gateway import GatewaySettings, run
from rayched.gateway.limits import BODY_BYTES_MAX, BodyBudget, GatewayLimits, place_of
from rayched.gateway.statuses import StatusFailure
from tests.cli.cluster import started, wait_until
from tests.gateway.requests import ask

PODS = "/api/v1/namespaces/default/pods"
PATIENCE_SECONDS = 10.0


def with_gateway(limits: GatewayLimits, scenario: Callable[[str], None]) -> None:
    """The scenario runs on another thread, with the gateway's URL."""

    async def both() -> None:
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        settings = GatewaySettings("127.0.0.1", 0, ("127.0.0.1:1",), None, None, limits)
        serving = asyncio.create_task(run(settings, url.set_result))
        try:
            await asyncio.to_thread(scenario, await url)
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving

    asyncio.run(both())


def connected(url: str) -> socket.socket:
    place = urlsplit(url)
    assert place.hostname is not None and place.port is not None
    return socket.create_connection((place.hostname, place.port), PATIENCE_SECONDS)


def is_closed(one: socket.socket) -> bool:
    """By the gateway, within the time."""
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def lives(url: str) -> bool:
    try:
        return ask(url, "/livez").body == b"ok"
    except OSError:
        return False


def test_an_address_has_so_many_connections_and_gets_new_ones_for_old() -> None:
    def scenario(url: str) -> None:
        held = [connected(url) for _ in range(3)]
        with connected(url) as fourth:
            assert is_closed(fourth)
        for one in held:
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 200"
        held[0].close()
        wait_until(lambda: lives(url), "there is room again")
        for one in held:
            one.close()

    with_gateway(GatewayLimits(connections_an_address=3), scenario)


def test_a_connection_without_a_request_is_closed_and_one_with_half_of_one_too() -> None:
    def scenario(url: str) -> None:
        with connected(url) as silent, connected(url) as slow, connected(url) as answered:
            answered.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answered.recv(65_536).endswith(b"ok")
            slow.sendall(b"GET /livez HTTP/1.1\r\n")
            begun = time.monotonic()
            slow.settimeout(0.1)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while time.monotonic() < begun + PATIENCE_SECONDS and not is_closed(slow):
                    slow.sendall(b"X-More: 1\r\n")
            assert time.monotonic() < begun + PATIENCE_SECONDS
            assert is_closed(silent) and is_closed(answered)

    with_gateway(GatewayLimits(idle_seconds=0.5), scenario)


def a_post(length: str) -> bytes:
    return f"POST {PODS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()


def reason_of(url: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, str, str | None]:
    answer = ask(url, PODS, "POST", body, {"Content-Type": "application/json", **(headers or {})})
    return answer.status, answer.document["reason"], answer.headers.get("Retry-After")


@pytest.mark.parametrize("length", ["Content-Length: 4000000", "Transfer-Encoding: chunked"])
def test_bodies_that_are_being_read_leave_no_room_for_more_until_they_end(length: str) -> None:
    def scenario(url: str) -> None:
        small, large = b"{}", b"[" * 300_000
        with connected(url) as first:
            first.sendall(a_post(length))
            wait_until(lambda: reason_of(url, large)[0] == 429, "the first one is read")
            assert reason_of(url, large) == (429, "TooManyRequests", "1")
            # As large as anything, once it is unpacked.
            assert reason_of(url, gzip.compress(small), {"Content-Encoding": "gzip"})[0] == 429
            assert ask(url, PODS, "OPTIONS").status == 405
        wait_until(lambda: reason_of(url, large)[0] == 400, "there is room again")

    with_gateway(GatewayLimits(body_bytes_a_user=BODY_BYTES_MAX + 1_000), scenario)


def test_users_have_room_each_and_all_of_them_have_a_limit() -> None:
    bodies = BodyBudget(GatewayLimits(body_bytes_a_user=10, body_bytes=25))
    with contextlib.ExitStack() as held:
        for user in ("a", "b"):
            held.enter_context(bodies.held(user, 10))
            with pytest.raises(StatusFailure, match="10 bytes of bodies of one user") as refused, bodies.held(user, 1):
                pass
            assert refused.value.code == 429
            with bodies.held(user, 0):
                pass
        with pytest.raises(StatusFailure, match="25 bytes of bodies are read"), bodies.held("c", 6):
            pass
        held.enter_context(bodies.held("c", 5))
    with bodies.held("a", 10):
        pass
    assert not bodies._held


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.9", "loopback"),
        ("::1", "loopback"),
    ],
)
def test_what_counts_as_one_address(host: str, place: str) -> None:
    assert place_of(host) == place


def test_an_operator_says_how_many_connections_an_address_has() -> None:
    words = ("gateway", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:1", "--connections-per-address", "2")
    with started(*words) as running:
        url = running.line_with("is served at").rpartition(" ")[2]
        with connected(url), connected(url), connected(url) as third:
            assert is_closed(third)
