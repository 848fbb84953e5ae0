"""Whom bearer tokens stand for that callers of the gateway show: a replica says it, and judges each call anew.

The gateway keeps no token. That one counts is believed for KNOWN_SECONDS, by its hash, so that what the gateway answers by itself
(what is served, the page's files) costs no question each; every call to a replica carries the token, and is refused there as
soon as it counts no more. An address that shows WRONG_A_MINUTE wrong ones within a minute is asked for none for another one.

Owner: the event loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

import grpc

from rayched.access.wrong_credentials import WrongCredentials
from rayched.client.errors import ApiError
from rayched.gateway.statuses import StatusFailure

KNOWN_SECONDS: Final = 1.0
_KNOWN_MAX: Final = 1_024
WRONG_A_MINUTE: Final = 20.0
TOKEN_CHARACTERS_MAX: Final = 128
"""One has 55."""


class TokenJudge:
    """Of one gateway."""

    def __init__(self, whose: Callable[[str], Awaitable[str]], clock: Callable[[], float]) -> None:
        """`whose`: the URI of whom a token stands for, by a replica's word; raises ApiError. `clock`: seconds that only grow."""
        self._whose = whose
        self._clock = clock
        self._known: dict[bytes, tuple[str, float]] = {}
        self._wrong = WrongCredentials()

    async def uri_of(self, token: str, address: str) -> str:
        """Raises StatusFailure where it does not count, or cannot be judged now."""
        now = self._clock()
        wait = self._wrong.wait(address, WRONG_A_MINUTE, now)
        if wait:
            text = f"{address} has shown {WRONG_A_MINUTE:g} wrong tokens in a minute"
            raise StatusFailure(429, "TooManyRequests", text, retry_after_seconds=max(1, round(wait)))
        key = hashlib.sha256(token.encode(errors="replace")).digest()
        uri, known_until = self._known.get(key, ("", 0.0))
        if now < known_until:
            return uri
        if not token.isascii() or not token.isprintable() or len(token) > TOKEN_CHARACTERS_MAX:
            raise self._refused(address, now, "the token is none of this cluster")
        try:
            uri = await self._whose(token)
        except ApiError as error:
            raise self._failed(address, now, error) from None
        if len(self._known) >= _KNOWN_MAX:
            self._known = {one: found for one, found in self._known.items() if now < found[1]}
        if len(self._known) < _KNOWN_MAX:
            self._known[key] = uri, now + KNOWN_SECONDS
        return uri

    def _failed(self, address: str, now: float, error: ApiError) -> StatusFailure:
        match error.code:
            case grpc.StatusCode.UNAUTHENTICATED:
                return self._refused(address, now, error.message)
            case grpc.StatusCode.PERMISSION_DENIED:
                return StatusFailure(403, "Forbidden", error.message)
            case _:
                return StatusFailure(503, "ServiceUnavailable", f"no replica says whose the token is: {error}")

    def _refused(self, address: str, now: float, why: str) -> StatusFailure:
        """Counts it."""
        self._wrong.shown(address, WRONG_A_MINUTE, now)
        return StatusFailure(401, "Unauthorized", why)
