"""A cable between two interfaces that is slow, or loses frames: `python -m benchmarks.network_cable NEAR FAR --delay 0.3`.

Started by network_namespaces.py in the namespace of the switch. NEAR is where a host comes in, FAR leads on to the switch. Frames
are taken and given back with what the kernel knows of them (checksums and segments that are still to be made, PACKET_VNET_HDR),
so that neither end notices. What is lost is drawn from a seed.

It says `ready`, begins when it is told to, says `begun`, and ends with its counts when its input ends. Cost: some 10 µs a frame.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

_ETH_P_ALL: Final = 0x0003
_SOL_PACKET: Final = 263
_PACKET_ADD_MEMBERSHIP: Final = 1
_PACKET_VNET_HDR: Final = 15
_PACKET_IGNORE_OUTGOING: Final = 23
_PACKET_MR_PROMISC: Final = 1
_FRAME_BYTES_MAX: Final = 1 << 17
_BUFFER_BYTES: Final = 8 << 20
_AT_ONCE: Final = 64
"""Frames of one direction that are taken before the other one is looked at."""
_WAITING_MAX: Final = 20_000
"""Frames on the way; what comes then is lost, as in any queue."""


@dataclass(slots=True)
class Direction:
    """From one interface to the other."""

    source: socket.socket
    target: socket.socket
    delay_seconds: float
    loss: float
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    passed: int = 0
    lost: int = 0
    refused: int = 0

    def take(self, draw: random.Random) -> None:
        for _ in range(_AT_ONCE):
            try:
                frame = self.source.recv(_FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            if draw.random() < self.loss or len(self.waiting) >= _WAITING_MAX:
                self.lost += 1
            else:
                self.waiting.append((time.monotonic() + self.delay_seconds, frame))

    def give(self) -> None:
        """What is due."""
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            _, frame = self.waiting.popleft()
            try:
                self.target.send(frame)
                self.passed += 1
            except OSError:
                # The other side is down or its queue is full: a frame that is lost, and counted.
                self.refused += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network_cable", description="A slow cable, or one that loses.")
    parser.add_argument("near")
    parser.add_argument("far")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds")
    parser.add_argument("--loss", type=float, default=0.0, help="part of the frames, 0 to 1")
    parser.add_argument("--both-ways", action="store_true", help="also what comes back")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 0
    near, far = _opened(given.near), _opened(given.far)
    back = given.both_ways
    directions = [
        Direction(near, far, given.delay, given.loss),
        Direction(far, near, given.delay if back else 0.0, given.loss if back else 0.0),
    ]
    print("begun", flush=True)
    _carry(directions, random.Random(given.seed))
    print(json.dumps({name: sum(getattr(one, name) for one in directions) for name in ("passed", "lost", "refused")}))
    return 0


def _opened(interface: str) -> socket.socket:
    """Takes whatever comes in there, and nothing that goes out."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    made.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    made.bind((interface, _ETH_P_ALL))
    index = socket.if_nametoindex(interface)
    made.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b""))
    made.setblocking(False)
    return made


def _carry(directions: list[Direction], draw: random.Random) -> None:
    """Until standard input ends."""
    poll = select.poll()
    by_number = {one.source.fileno(): one for one in directions}
    for number in (*by_number, sys.stdin.fileno()):
        poll.register(number, select.POLLIN)
    while True:
        dues = [one.waiting[0][0] for one in directions if one.waiting]
        wait = max(0.0, min(dues) - time.monotonic()) * 1000 if dues else None
        for number, _ in poll.poll(wait):
            if number not in by_number:
                return
            by_number[number].take(draw)
        for one in directions:
            one.give()


if __name__ == "__main__":
    sys.exit(main())
