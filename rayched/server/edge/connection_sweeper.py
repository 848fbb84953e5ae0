"""Closes connections of addresses that have too many, the newest first; also those on which nothing was ever said.

gRPC bounds how many connections a server has, not of whom, and tells of a connection only when a call comes on it. So this looks
at the process's own sockets: those with the port of the API at this end, by the address at the other. What is shut down looks to
gRPC like a client that left. A socket is first duplicated and then looked at, so that it is no other one that took its number.

Linux alone. Owner: one thread. Cost: a system call for each open file, and five for a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final

from rayched.server.edge.caller import host_of, is_local
from rayched.server.edge.edge import Edge
from rayched.server.edge.limits import EdgeLimits

SWEEP_SECONDS: Final = 0.5
_FILES: Final = "/proc/self/fd"


class ConnectionSweeper:
    """The connections of one port of this process."""

    def __init__(self, port: int, limit_of: Callable[[str], int]) -> None:
        """`limit_of`: how many an address may have."""
        self._port = port
        self._limit_of = limit_of
        self._known: dict[tuple[int, str], str] = {}
        """By a socket's number and its name in /proc, oldest first: the address at the other end; "" for those of other ports."""

    def sweep(self) -> Counter[str]:
        """Shuts down what is too much; how many connections, by address."""
        present = self._present()
        self._known = {one: address for one, address in self._known.items() if one in present}
        for one in present:
            if one not in self._known:
                self._known[one] = self._address(*one)
        counts: Counter[str] = Counter()
        closed: Counter[str] = Counter()
        for one, address in self._known.items():
            if not address:
                continue
            counts[address] += 1
            if counts[address] > self._limit_of(address) and self._shut_down(*one):
                closed[address] += 1
        return closed

    @staticmethod
    def _present() -> list[tuple[int, str]]:
        found = []
        for name in os.listdir(_FILES):
            # It may be closed meanwhile.
            with contextlib.suppress(OSError):
                target = os.readlink(f"{_FILES}/{name}")
                if target.startswith("socket:"):
                    found.append((int(name), target))
        return sorted(found)

    def _address(self, number: int, target: str) -> str:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
            if _name(one) == target and one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockname()[1] == self._port:
                return host_of(one.getpeername()[0])
        return ""

    @staticmethod
    def _shut_down(number: int, target: str) -> bool:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
            if _name(one) == target:
                one.shutdown(socket.SHUT_RDWR)
                return True
        return False


async def sweeping(edge: Edge, listening: str, port: int) -> None:
    """Keeps each address to the connections that the edge allows it, until cancelled. Where none has fewer than all, it returns.
    `listening`: the address that the port is of."""
    limits = edge.limits
    sweeper = ConnectionSweeper(port, lambda address: _allowed(limits, address))
    # Where an address that can reach this one may have fewer connections than all.
    while limits.loopback.connections < limits.connections or not is_local(listening):
        await asyncio.sleep(SWEEP_SECONDS)
        edge.closed((await asyncio.to_thread(sweeper.sweep)).total())


def _allowed(limits: EdgeLimits, address: str) -> int:
    """How many connections an address may have, whoever is there."""
    return limits.loopback.connections if is_local(address) else limits.identity.connections


def _name(one: socket.socket) -> str:
    return f"socket:[{os.fstat(one.fileno()).st_ino}]"
