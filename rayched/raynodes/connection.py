"""Makes this process a driver of a user's Ray cluster, or says in one line why it cannot be.

Ray's native code ends the process where a token is missing or wrong, and says so in many lines. So another process tries first.

Run as `python -m rayched.raynodes.connection ADDRESS`: exit code 0 where a driver is taken.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from rayched.replica.ray.local_ray import ALWAYS
from rayched.replica.ray.open_ray import OPEN_RAY, takes_whoever_comes
from rayched.replica.ray.processes import dying_with_us

_DIAL_SECONDS: Final = 5.0
"""A GCS that is there takes a connection within a round trip. Where packets are dropped, the system would try for two minutes."""
_TRY_SECONDS_MAX: Final = 120.0
"""A driver connects within two seconds, on a busy machine within one minute."""
_POLL_SECONDS: Final = 0.1
_WORDS_MAX: Final = 300
_NO_TOKEN: Final = "it wants a token that this command does not have: RAY_AUTH_MODE=token with RAY_AUTH_TOKEN_PATH"
_NOT_HERE: Final = "none of its nodes is on this host, and a driver needs one beside it"
_KNOWN: Final = (
    ("Version mismatch", ""),
    ("No node info found", _NOT_HERE),
    ("InvalidAuthToken", _NO_TOKEN),
    ("nauthenticated", _NO_TOKEN),
    ("authentication token", _NO_TOKEN),
    ("RAY_AUTH_TOKEN", _NO_TOKEN),
)
"""What Ray says, and what that means; empty: just that."""


class RayNotConnected(Exception):
    """One line."""


def connect(address: str, cancelled: Callable[[], bool]) -> None:
    """Raises RayNotConnected, also soon after `cancelled`."""
    option = f"--ray-address {address}"
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise RayNotConnected(f"{option}: want HOST:PORT of the cluster's GCS, such as 10.0.0.5:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _DIAL_SECONDS).close()
    except OSError as error:
        raise RayNotConnected(f"{option}: nothing answers there ({error.strerror or error})") from None
    if takes_whoever_comes(address):
        raise RayNotConnected(f"{option}: {OPEN_RAY}")
    # Ray reads the environment when it is imported.
    os.environ |= ALWAYS
    os.environ.pop("RAY_ADDRESS", None)
    fault = _tried_elsewhere(address, cancelled) or _become_driver(address)
    if fault:
        raise RayNotConnected(f"{option}: {fault}")


def reason(output: str) -> str:
    """What Ray said before it gave up, in one line."""
    text = " ".join(output.split())
    for words, meaning in _KNOWN:
        if words in text:
            return meaning or text[text.index(words) :][:_WORDS_MAX]
    lines = [" ".join(line.split()) for line in output.splitlines()]
    return next((line for line in reversed(lines) if line), "it ended without a word")[:_WORDS_MAX]


def _tried_elsewhere(address: str, cancelled: Callable[[], bool]) -> str:
    """Why a driver is not taken; empty: it is."""
    command = dying_with_us([sys.executable, "-m", "rayched.raynodes.connection", address])
    until = time.monotonic() + _TRY_SECONDS_MAX
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        try:
            while time.monotonic() < until and not cancelled():
                try:
                    output, _ = child.communicate(timeout=_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
                return "" if child.returncode == 0 else reason(output.decode(errors="replace"))
        finally:
            child.kill()
    return "the command was ended" if cancelled() else f"what is there has not answered as Ray within {_TRY_SECONDS_MAX:g} s"


def _become_driver(address: str) -> str:
    """Why not; empty: this process is one."""
    import ray

    # What it tells at lower levels is about Ray's own state.
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except Exception as error:
        # Of many classes, Exception itself among them.
        return reason(f"{type(error).__name__}: {error}")
    # It prints the end of a raylet's log to every driver when that raylet dies, and has no option against it.
    ray._private.worker.print_to_stdstream = _leave_out
    return ""


def _leave_out(*_: object, **__: object) -> None:
    """The driver has a line of its own for what happens to nodes."""


def main(address: str) -> int:
    fault = _become_driver(address)
    print(fault)
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
