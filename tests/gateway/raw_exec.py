"""Programs in containers by hand: the messages of a WebSocket, as kubectl sends them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp

SECONDS_MAX = 60.0


@dataclass
class Executed:
    """What a program wrote, and the Status of its end."""

    out: bytes = b""
    errors: bytes = b""
    status: dict[str, Any] = field(default_factory=dict)


async def _execute(url: str, pod: str, command: tuple[str, ...], data: bytes | None, token: str) -> Executed:
    """As kubectl does it, with the token that it would send over TLS."""
    found = Executed()
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    query += [] if data is None else [("stdin", "true")]
    place = f"{url}/api/v1/namespaces/default/pods/{pod}/exec?{urlencode(query)}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(place, protocols=("v5.channel.k8s.io",), headers=headers) as socket,
    ):
        assert socket.protocol == "v5.channel.k8s.io"
        # Both at once: a program that answers while it reads would wait for us otherwise.
        sending = asyncio.create_task(_send(socket, data))
        async for message in socket:
            channel, text = message.data[0], message.data[1:]
            if channel == 1:
                found.out += text
            elif channel == 2:
                found.errors += text
            elif channel == 3:
                found.status = json.loads(text)
        await sending
    return found


async def _send(socket: aiohttp.ClientWebSocketResponse, data: bytes | None) -> None:
    if data is None:
        return
    for start in range(0, len(data), 10_000):
        await socket.send_bytes(b"\0" + data[start : start + 10_000])
    await socket.send_bytes(b"\xff\0")


def execute(url: str, pod: str, *command: str, token: str, data: bytes | None = None) -> Executed:
    return asyncio.run(asyncio.wait_for(_execute(url, pod, command, data, token), SECONDS_MAX))
