"""Connections that come from another address of this host, in a process of its own: `python -m tests.server.relay TO SOURCE`."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def relay(to: str, source: str) -> Iterator[str]:
    """An address; whoever connects to it is connected to `to`, from the address `source`."""
    command = [sys.executable, "-m", "tests.server.relay", to, source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _serve(to: str, source: str) -> None:
    host, _, port = to.rpartition(":")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
