"""Which requests the page answers."""

from __future__ import annotations

import pytest

from rayched.page.guarding import HEADERS, is_loopback_host, refusal_of

HOST = "127.0.0.1:7620"
JSON = {"Content-Type": "application/json"}


@pytest.mark.row("UI41")
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:7620", "127.8.9.1:1", "localhost", "LOCALHOST:7620", "[::1]", "[::1]:7620"]
)
def test_hosts_on_loopback_are_answered(host: str) -> None:
    assert is_loopback_host(host)
    assert refusal_of("GET", "http", {"Host": host}) is None


@pytest.mark.row("UI41")
@pytest.mark.parametrize(
    "host",
    ["", "rebind.example", "127.0.0.1.example", "localhost.example:7620", "0.0.0.0", "[::]", "192.0.2.1", "2130706433", "::1"],
)
def test_other_hosts_are_misdirected(host: str) -> None:
    refusal = refusal_of("GET", "http", {"Host": host})
    assert refusal is not None and refusal.code == 421


@pytest.mark.row("UI40")
@pytest.mark.parametrize(
    ("method", "scheme", "headers", "code"),
    [
        ("GET", "http", {}, 0),
        ("HEAD", "http", {}, 0),
        ("GET", "http", {"Origin": f"http://{HOST}"}, 0),
        ("GET", "https", {"Origin": f"https://{HOST}"}, 0),
        ("GET", "https", {"Origin": f"http://{HOST}"}, 403),
        ("GET", "http", {"Origin": "http://127.0.0.1:7621"}, 403),
        ("GET", "http", {"Origin": "null"}, 403),
        ("GET", "http", {"Origin": ""}, 403),
        ("GET", "http", {"Sec-Fetch-Site": "none"}, 0),
        ("GET", "http", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", "http", JSON, 0),
        ("POST", "http", {**JSON, "Sec-Fetch-Site": "same-site"}, 403),
        ("POST", "http", {"Content-Type": "application/json; charset=utf-8"}, 0),
        ("POST", "http", {"Content-Type": "text/plain; application/json"}, 415),
        ("POST", "http", {}, 415),
        ("PUT", "http", {}, 405),
        ("DELETE", "http", {}, 405),
        ("OPTIONS", "http", {}, 405),
        ("CONNECT", "http", {}, 405),
    ],
)
def test_requests_of_other_pages_are_refused(method: str, scheme: str, headers: dict[str, str], code: int) -> None:
    refusal = refusal_of(method, scheme, {"Host": HOST, **headers})
    assert (0 if refusal is None else refusal.code) == code


@pytest.mark.row("UI45")
def test_the_policy_allows_own_files_alone() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["require-trusted-types-for"] == "'script'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert {policy[name] for name in ("frame-ancestors", "base-uri", "form-action")} == {"'none'"}
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.row("UI41")
def test_names_of_the_certificate_are_the_pages_own() -> None:
    hosts = frozenset({"gateway.example", "10.0.0.11"})
    for host in ("gateway.example:7620", "GATEWAY.example", "10.0.0.11:7620", "127.0.0.1"):
        assert refusal_of("GET", "https", {"Host": host}, hosts) is None
    for host in ("x.gateway.example", "gateway.example.evil", "10.0.0.12", ""):
        refusal = refusal_of("GET", "https", {"Host": host}, hosts)
        assert refusal is not None and refusal.code == 421
