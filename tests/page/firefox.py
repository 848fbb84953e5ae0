"""Firefox without a window, driven by Marionette, which every Firefox has: a message is its length, a colon, and JSON."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 90.0
SETTINGS = {
    "marionette.port": 0,
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}


class Firefox:
    """One tab."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self._count = 0
        self._message()
        self._do("WebDriver:NewSession", {})

    def go(self, url: str) -> None:
        self._do("WebDriver:Navigate", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body of a function returns in the page."""
        return self._do("WebDriver:ExecuteScript", {"script": script, "args": list(arguments)})["value"]

    def until(self, expression: str, *arguments: Any) -> Any:
        """The value of an expression of the page, once that is one."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while not (found := self.run(f"return {expression}", *arguments)):
            assert time.monotonic() < ends_at, f"{expression} did not come true; the page says: {self.text()}"
            time.sleep(0.1)
        return found

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def _do(self, command: str, parameters: dict[str, Any]) -> Any:
        self._count += 1
        data = json.dumps([0, self._count, command, parameters]).encode()
        self._connection.sendall(f"{len(data)}:".encode() + data)
        _, number, error, result = self._message()
        assert (number, error) == (self._count, None), error
        return result

    def _message(self) -> Any:
        length = b""
        while (found := self._read(1)) != b":":
            length += found
        return json.loads(self._read(int(length)))

    def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            more = self._connection.recv(1 << 16)
            assert more, "Firefox has ended"
            self._buffer += more
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found


@contextlib.contextmanager
def firefox(program: str, profile: Path) -> Iterator[Firefox]:
    """With a profile of its own in an empty directory; ended with the block."""
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in SETTINGS.items()]
    (profile / "user.js").write_text("\n".join(lines))
    process = subprocess.Popen(
        [program, "--headless", "--no-remote", "--marionette", "--profile", str(profile)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"HOME": str(profile), "PATH": "/usr/bin:/bin", "MOZ_HEADLESS": "1"},
    )
    try:
        port, ends_at = profile / "MarionetteActivePort", time.monotonic() + PATIENCE_SECONDS
        while not (port.exists() and port.read_text().strip()):
            assert process.poll() is None and time.monotonic() < ends_at, "Firefox does not start"
            time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", int(port.read_text())), PATIENCE_SECONDS) as connection:
            yield Firefox(connection)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
