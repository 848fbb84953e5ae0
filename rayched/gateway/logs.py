"""Logs of containers, as `kubectl logs` asks for them: plain text, as it comes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from rayched.client.async_streaming import AsyncLogStream
from rayched.client.errors import ApiError
from rayched.gateway.calls import GatewayCall
from rayched.gateway.queries import flag, number
from rayched.gateway.statuses import bad_request, of_stream_error

LOST: Final = b"(lines before this one were removed by rotation before they could be read)\n"


async def serve_log(request: web.Request, call: GatewayCall) -> web.StreamResponse:
    """Raises StatusFailure where there is no log, and then nothing has been sent."""
    query = call.query
    seconds, follow = number(query, "sinceSeconds"), flag(query, "follow")
    stream = call.client.logs(
        call.path.name,
        call.path.namespace,
        container=query.get("container", ""),
        follow=follow,
        previous=flag(query, "previous"),
        tail_lines=number(query, "tailLines"),
        since_seconds=None if seconds is None else float(seconds),
        since_time=_moment(query.get("sinceTime", "")),
        timestamps=flag(query, "timestamps"),
        limit_bytes=number(query, "limitBytes"),
    )
    async with stream:
        return await _copied(request, call, stream)


async def _copied(request: web.Request, call: GatewayCall, stream: AsyncLogStream) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    if flag(call.query, "follow"):
        # What is followed may have nothing to say for long.
        await response.prepare(request)
    try:
        async for chunk in stream:
            if not response.prepared:
                await response.prepare(request)
            await response.write((LOST if chunk.lost else b"") + chunk.data)
    except ApiError as error:
        if not response.prepared:
            raise of_stream_error(error, call.subject) from None
        await response.write(f"(the log ends here: {error})\n".encode())
    if not response.prepared:
        await response.prepare(request)
    await response.write_eof()
    return response


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise bad_request(f'sinceTime: found "{text[:40]}", want a time such as 2025-01-31T12:00:00Z') from None
    try:
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise bad_request(f'sinceTime: found "{text[:40]}", want a time of the years 1 to 9999') from None
