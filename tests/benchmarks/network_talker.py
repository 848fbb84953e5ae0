"""A program on a host of a test's network: answers datagrams and streams, and asks others for them, as standard input says.

Each line of input is one JSON object with `do` and its arguments, and gets one line of output:

    ask     to, seconds         how long a datagram to that host and its echo took; null: no echo came in time
    send    to, count           datagrams without echo; the count
    counts                      datagrams without echo that came, by the host that sent them
    fetch   to, bytes, seconds  how many bytes of a stream came, of so many that were asked for
"""

from __future__ import annotations

import json
import queue
import socket
import sys
import threading
import time
from collections import Counter
from typing import Any, Final

_PORT: Final = 7000
_READ_BYTES: Final = 1 << 16


class NetworkTalker:
    """Listens on all addresses of its host."""

    def __init__(self) -> None:
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind(("0.0.0.0", _PORT))
        self._streams = socket.create_server(("0.0.0.0", _PORT))
        self._echoes: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._counts: Counter[str] = Counter()
        self._asked = 0
        for work in (self._take_datagrams, self._serve_streams):
            threading.Thread(target=work, daemon=True).start()

    def answer(self, wish: dict[str, Any]) -> Any:
        match wish["do"]:
            case "ask":
                return self._ask(wish["to"], wish["seconds"])
            case "send":
                for _ in range(wish["count"]):
                    self._datagrams.sendto(b"count", (wish["to"], _PORT))
                return wish["count"]
            case "counts":
                return dict(self._counts)
            case _:
                return _fetch(wish["to"], wish["bytes"], wish["seconds"])

    def _ask(self, host: str, seconds: float) -> float | None:
        self._asked += 1
        began, wanted = time.monotonic(), b"echo %d" % self._asked
        try:
            self._datagrams.sendto(b"ask" + wanted, (host, _PORT))
        except OSError:
            return None  # there is no way
        while (left := began + seconds - time.monotonic()) > 0:
            try:
                if self._echoes.get(timeout=left) == wanted:
                    return time.monotonic() - began
            except queue.Empty:
                return None
        return None

    def _take_datagrams(self) -> None:
        while True:
            text, sender = self._datagrams.recvfrom(_READ_BYTES)
            if text.startswith(b"ask"):
                self._datagrams.sendto(text.removeprefix(b"ask"), sender)
            elif text == b"count":
                self._counts[sender[0]] += 1
            else:
                self._echoes.put(text)

    def _serve_streams(self) -> None:
        while True:
            stream, _ = self._streams.accept()
            with stream:
                stream.sendall(b"x" * int.from_bytes(stream.recv(8)))


def _fetch(host: str, count: int, seconds: float) -> int:
    found = 0
    with socket.create_connection((host, _PORT), seconds) as stream:
        stream.sendall(count.to_bytes(8))
        while got := len(stream.recv(_READ_BYTES)):
            found += got
    return found


def main() -> None:
    talker = NetworkTalker()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(talker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
