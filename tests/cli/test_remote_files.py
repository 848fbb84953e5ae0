"""Manifests behind a URL, from a server on this host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rayched.cli.manifests import remote_files
from rayched.cli.manifests.remote_files import fetched, is_url
from tests.cli.cluster import run_here

TEXTS = {"/pod.yaml": "kind: Pöd".encode(), "/binary": b"\xff\xfe", "/tab.yaml": b"a:\n\tb: c\n"}


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = TEXTS.get(self.path)
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write(text or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to know."""


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_url_is_read_and_everything_else_is_a_file(pages: str) -> None:
    assert fetched(f"{pages}/pod.yaml") == "kind: Pöd"
    assert [is_url(name) for name in (f"{pages}/a", "https://a/b", "a.yaml", "-", "ftp://a")] == [True, True, False, False, False]


def test_what_cannot_be_read_is_one_line(pages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="the server answers 404 Not Found"):
        fetched(f"{pages}/none")
    with pytest.raises(OSError, match=r"cannot be reached \(Connection refused\)"):
        fetched("http://127.0.0.1:1/a")
    with pytest.raises(OSError, match="is no URL"):
        fetched("http://127.0.0.1:x/a")
    monkeypatch.setattr(remote_files, "MAX_TEXT_BYTES", 4)
    with pytest.raises(OSError, match="more than 4 bytes; no more are read"):
        fetched(f"{pages}/pod.yaml")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/none", "the server answers 404 Not Found"),
        ("/binary", "not a text in UTF-8"),
        ("/tab.yaml", "line 2: not YAML: a tab stands where YAML allows blanks alone"),
    ],
)
def test_the_command_tells_it_with_the_url(pages: str, path: str, said: str) -> None:
    result = run_here(["apply", "-f", f"{pages}{path}"])
    (line,) = result.errors
    assert result.code == 1 and line.startswith(f"error: {pages}{path}") and said in line
