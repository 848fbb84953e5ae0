"""Ports for servers that have to know theirs before they bind it.

They are taken from below the range of ports that the system gives to outgoing connections: there is time between choice and bind,
and more of it between the end of a server and its next start, and no connection of anybody may take its place meanwhile.
"""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path
from typing import Final

_HOST: Final = "127.0.0.1"
_LOWEST: Final = 15_000
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS_MAX: Final = 1_000


def free_ports(count: int) -> list[int]:
    """Different TCP ports of the loopback address that were free a moment ago. Raises OSError where there are none."""
    highest = int(_RANGE.read_text().split()[0]) - 1
    choice = random.SystemRandom()
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for _ in range(_ATTEMPTS_MAX):
            if len(found) == count:
                return found
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                # A range that begins below ours leaves no choice but the system's.
                probe.bind((_HOST, choice.randint(_LOWEST, highest) if highest > _LOWEST else 0))
                found.append(probe.getsockname()[1])
    raise OSError(f"no {count} free ports on {_HOST} after {_ATTEMPTS_MAX} attempts")


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def neighbouring_ports(count: int) -> int:
    """The first of so many that follow each other and were free a moment ago."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind((_HOST, port))
            return first
