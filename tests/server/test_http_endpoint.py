"""The HTTP endpoint: paths, methods, limits; and the health checks behind it, as Kubernetes answers them."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.pki.authority import Authority
from rayched.pki.https import HttpsCertificate
from rayched.pki.tls_files import TlsFiles
from rayched.server.http import http_endpoint
from rayched.server.http.health_checks import PING, Check, HealthChecks
from rayched.server.http.http_endpoint import JSON, Answer, HttpEndpoint, Request
from rayched.server.server_options import ListenError
from tests.pki.made import a_pair, an_authority


class Opened:
    """An endpoint with a few routes; `wrong` is what a check finds, `entered` and `leave` hold a request."""

    def __init__(self) -> None:
        self.wrong: str | None = None
        self.entered, self.leave = threading.Semaphore(0), threading.Event()
        self.checks = HealthChecks({"readyz": (PING, Check("moody", lambda: self.wrong))})
        self.endpoint = HttpEndpoint(
            "127.0.0.1",
            0,
            {
                "/readyz": lambda request: self.checks.answer("readyz", request),
                "/livez": lambda _: Answer(b"ok"),
                "/json": lambda request: Answer(json.dumps(dict(request.query)).encode(), JSON),
                "/broken": self.broken,
                "/slow": self.slow,
            },
            frozenset({"/readyz"}),
            {"rayched.example"},
        )
        self.endpoint.start()

    def broken(self, _: Request) -> Answer:
        raise RuntimeError("secret words")

    def slow(self, _: Request) -> Answer:
        self.entered.release()
        self.leave.wait(10)
        return Answer(b"late")

    def ask(self, path: str, method: str = "GET", address: str = "127.0.0.1", host: str | None = None) -> tuple[int, str, str]:
        """Status, content type, body; asked from an address of this host."""
        connection = http.client.HTTPConnection(self.endpoint.address, timeout=10, source_address=(address, 0))
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        found = answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
        connection.close()
        return found


@pytest.fixture
def opened() -> Iterator[Opened]:
    found = Opened()
    yield found
    found.leave.set()
    found.endpoint.stop()


def test_paths_answer_with_their_content_type_and_others_are_not_found(opened: Opened) -> None:
    assert opened.ask("/json?a=1&a=2&b") == (200, "application/json", '{"a": ["1", "2"], "b": [""]}')
    assert opened.ask("/json/below")[0] == 404
    assert opened.ask("/")[0] == opened.ask("/unknown")[0] == opened.ask("/readyz/moody/deeper")[0] == 404
    assert opened.ask("/json", "POST")[0] == opened.ask("/unknown", "DELETE")[0] == 405
    assert opened.ask("/json", "HEAD") == (200, "application/json", "")


def test_a_route_that_fails_is_told_without_its_inside(opened: Opened) -> None:
    status, _, body = opened.ask("/broken")
    assert status == 500 and "secret" not in body


HEALTH = [
    # what is wrong, what is asked, status, answer
    (None, "/readyz", 200, "ok"),
    (None, "/readyz?verbose", 200, "[+]ping ok\n[+]moody ok\nreadyz check passed\n"),
    ("has a headache", "/readyz", 500, "[+]ping ok\n[-]moody failed: has a headache\nreadyz check failed\n"),
    ("has a headache", "/readyz?exclude=moody", 200, "ok"),
    ("has a headache", "/readyz?verbose&exclude=moody", 200, "[+]ping ok\n[+]moody excluded: ok\nreadyz check passed\n"),
    ("has a headache", "/readyz/moody", 500, "internal server error: has a headache\n"),
    ("has a headache", "/readyz/ping", 200, "ok"),
    (None, "/readyz/unknown", 404, "404 page not found\n"),
    (
        None,
        "/readyz?verbose&exclude=unknown",
        200,
        "[+]ping ok\n[+]moody ok\nwarn: some health checks cannot be excluded: no matches for unknown\nreadyz check passed\n",
    ),
]


@pytest.mark.parametrize(("wrong", "path", "status", "body"), HEALTH)
def test_health_is_answered_as_kubernetes_components_do(
    opened: Opened, wrong: str | None, path: str, status: int, body: str
) -> None:
    opened.wrong = wrong
    assert opened.ask(path) == (status, "text/plain; charset=utf-8", body)


def test_checks_are_counted_by_what_came_out(opened: Opened) -> None:
    opened.ask("/readyz")
    opened.wrong = "has a headache"
    opened.ask("/readyz/moody")
    state, counts = opened.checks.metrics()
    assert {(one.labels["name"], one.value) for one in state.samples} == {("ping", 1), ("moody", 0)}
    found = {(one.labels["name"], one.labels["status"], one.labels["type"]): one.value for one in counts.samples}
    assert found == {("ping", "success", "readyz"): 2, ("moody", "success", "readyz"): 1, ("moody", "error", "readyz"): 2}


def test_a_busy_port_is_told_in_one_line(opened: Opened) -> None:
    port = int(opened.endpoint.address.rpartition(":")[2])
    with pytest.raises(ListenError, match=f"^cannot listen on 127.0.0.1:{port}: Address already in use$"):
        HttpEndpoint("127.0.0.1", port, {})


def others(n_addresses: int) -> list[str]:
    """Addresses of this host, each as often as one may have connections."""
    return [f"127.0.1.{number + 1}" for number in range(n_addresses) for _ in range(http_endpoint.ADDRESS_MAX)]


@contextlib.contextmanager
def slow_answers(opened: Opened, addresses: list[str]) -> Iterator[None]:
    """As many connections as addresses, all of which are being answered."""
    threads: list[threading.Thread] = []
    deadline = time.monotonic() + 30
    while len(threads) < len(addresses):
        thread = threading.Thread(target=opened.ask, args=("/slow", "GET", addresses[len(threads)]))
        thread.start()
        entered = False
        while not entered and thread.is_alive():
            entered = opened.entered.acquire(timeout=0.1)
            assert time.monotonic() < deadline
        # One is refused while the server has not noticed yet that another one is gone.
        if entered:
            threads.append(thread)
        assert time.monotonic() < deadline
    yield
    opened.leave.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_slow_routes_hold_up_nobody_else_and_connections_are_limited_but_for_livez(opened: Opened) -> None:
    n_addresses = (http_endpoint.CONNECTIONS_MAX - http_endpoint.KEPT) // http_endpoint.ADDRESS_MAX
    with slow_answers(opened, others(n_addresses)[:-1]):
        assert opened.ask("/readyz")[0] == 200
        with slow_answers(opened, ["127.0.0.9"]):
            status, _, body = opened.ask("/readyz")
            assert status == 503 and "only /livez" in body
            assert opened.ask("/livez") == (200, "text/plain; charset=utf-8", "ok")
    assert opened.ask("/readyz")[0] == 200


def test_one_address_has_a_few_places_and_takes_none_of_others(opened: Opened) -> None:
    with slow_answers(opened, others(1)):
        assert opened.ask("/readyz", address="127.0.1.1")[0] == 503
        assert opened.ask("/livez", address="127.0.1.1")[0] == 200
        assert opened.ask("/readyz", address="127.0.1.2")[0] == 200


@pytest.mark.row("B99")
def test_livez_is_answered_while_as_many_drip_as_there_were_places(opened: Opened) -> None:
    """B99."""
    with contextlib.ExitStack() as owned:
        held = [owned.enter_context(connected(opened)) for _ in range(16)]
        for _ in range(4):
            for connection in held:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n"[:3])
            assert opened.ask("/livez")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:7520", 421),
        ("rayched.example.evil", 421),
        ("rayched.example", 200),
        ("RAYCHED.example.:80", 200),
        ("localhost:7520", 200),
        ("10.1.2.3", 200),
        ("[::1]:7520", 200),
        ("[", 421),
        ("", 200),
    ],
)
@pytest.mark.row("B103")
def test_who_asks_by_a_name_that_is_not_its_own_is_misdirected(opened: Opened, host: str, status: int) -> None:
    """B103, B107: a page whose name leads to this host."""
    for path, method in (("/json", "GET"), ("/unknown", "GET"), ("/json", "POST")):
        found, _, body = opened.ask(path, method, host=host)
        assert (found == 421) == (status == 421), (path, method)
        assert status != 421 or "--http-names" in body


@pytest.mark.parametrize(
    "start", [b"GET /" + b"x" * 9_000, b"GET /readyz HTTP/1.1\r\n" + b"X: y\r\n" * 90 + b"Y: " + b"z" * 8_000]
)
def test_a_long_request_is_refused_before_its_end(opened: Opened, start: bytes) -> None:
    with connected(opened) as long:
        long.sendall(start)
        assert long.recv(4_096).startswith(b"HTTP/1.0 431 ")
    with connected(opened) as just_right:
        just_right.sendall(b"GET /readyz HTTP/1.1\r\nX: " + b"y" * 8_000 + b"\r\n\r\n")
        assert just_right.recv(4_096).startswith(b"HTTP/1.0 200 ")


def test_a_client_that_says_nothing_is_dropped(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "SECONDS_MAX", 0.1)
    with socket.create_connection(tuple(opened.endpoint.address.split(":")), timeout=10) as silent:  # type: ignore[arg-type]
        assert silent.recv(100) == b""


def connected(opened: Opened, address: str = "127.0.0.1") -> socket.socket:
    host, port = opened.endpoint.address.split(":")
    return socket.create_connection((host, int(port)), timeout=10, source_address=(address, 0))


def test_a_client_that_asks_byte_by_byte_is_dropped_when_its_time_is_up(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "SECONDS_MAX", 0.3)
    with connected(opened) as dripping, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        dripping.settimeout(0.02)
        for _ in range(500):
            dripping.sendall(b"X")
            with contextlib.suppress(TimeoutError):
                assert dripping.recv(1) == b""
                return
        pytest.fail("it is still open")


@pytest.mark.parametrize("start", [b"", b"GET /readyz HTTP/1.1\r\nX: "], ids=["silent", "dripping"])
@pytest.mark.parametrize("addresses", [["127.0.0.1"] * http_endpoint.ADDRESS_MAX, others(16)], ids=["one address", "many"])
def test_connections_that_do_not_ask_keep_nobody_out(opened: Opened, start: bytes, addresses: list[str]) -> None:
    with contextlib.ExitStack() as owned:
        held = [owned.enter_context(connected(opened, address)) for address in addresses]
        for connection in held:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(start)
        for number in range(3):
            assert opened.ask("/readyz") == (200, "text/plain; charset=utf-8", "ok"), number
        # The oldest gave their places, one for each that came beyond the places there are.
        with contextlib.suppress(ConnectionResetError):
            assert held[0].recv(1) == b""
        held[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            held[-1].recv(1)


def test_one_that_is_being_answered_keeps_its_place(opened: Opened) -> None:
    with contextlib.ExitStack() as owned, slow_answers(opened, ["127.0.0.1"]):
        for _ in range(2 * http_endpoint.CONNECTIONS_MAX):
            owned.enter_context(connected(opened))
        assert opened.ask("/readyz")[0] == 200


class TestWithACertificate:
    """Beyond loopback it speaks TLS."""

    @pytest.fixture
    def authority(self) -> Authority:
        return an_authority()

    def opened(self, files: TlsFiles) -> HttpEndpoint:
        routes = {"/readyz": lambda request: Answer(b"ok")}
        found = HttpEndpoint("127.0.0.1", 0, routes, certificate=HttpsCertificate(files.certificate, files.key))
        found.start()
        return found

    def asked(self, endpoint: HttpEndpoint, ca: Path) -> tuple[bytes, int]:
        """The body, and the serial number of what it showed."""
        context = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection(endpoint.address, timeout=10, context=context)
        connection.request("GET", "/readyz")
        shown = connection.sock.getpeercert()  # type: ignore[union-attr]
        body = connection.getresponse().read()
        connection.close()
        return body, int(str(shown["serialNumber"]), 16)

    def test_it_answers_with_its_pair_and_with_a_new_one_once_that_is_there(self, authority: Authority, tmp_path: Path) -> None:
        first, second = (a_pair(authority, hosts=["127.0.0.1"]) for _ in range(2))
        files = first.write(tmp_path / "tls")
        endpoint = self.opened(files)
        try:
            assert self.asked(endpoint, files.ca) == (b"ok", first.serial)
            files.key.write_bytes(second.key)
            assert self.asked(endpoint, files.ca) == (b"ok", first.serial), "the pair does not fit yet"
            second.write(tmp_path / "tls")
            assert self.asked(endpoint, files.ca) == (b"ok", second.serial)
        finally:
            endpoint.stop()

    def test_who_speaks_no_tls_or_says_nothing_gets_nothing_and_holds_up_nobody(
        self, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http_endpoint, "CONNECTIONS_MAX", 2)
        files = a_pair(authority, hosts=["127.0.0.1"]).write(tmp_path / "tls")
        endpoint = self.opened(files)
        host, _, port = endpoint.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), 10.0) as plain:
                plain.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                assert b"ok" not in plain.recv(1000)
            with contextlib.ExitStack() as silent:
                for _ in range(4):
                    silent.enter_context(socket.create_connection((host, int(port)), 10.0))
                assert self.asked(endpoint, files.ca)[0] == b"ok"
        finally:
            endpoint.stop()
