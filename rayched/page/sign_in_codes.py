"""One-time codes, which carry a token into a page: an address can be seen by others on its way to a browser, and a token in it
would be theirs as well for as long as it counts.

    rayched ui ── its token ──▶ issue ── a code ──▶ address of the page ──▶ page ── the code ──▶ redeem ── the token ──▶ page

A code serves once, within CODE_SECONDS, at the gateway that made it. Until then the token is kept here, below the hash of its
code, and nowhere else. A token has one code at a time, so nobody keeps others out. Pure; owner: the event loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

CODE_SECONDS: Final = 60.0
"""What a browser needs to start on a busy host."""
CODES_MAX: Final = 256


class CodesFull(Exception):
    """CODES_MAX tokens have a code."""


@dataclass(frozen=True, slots=True)
class _Carried:
    token: str = field(repr=False)
    until: float


class SignInCodes:
    """Of one gateway."""

    def __init__(self, clock: Callable[[], float], draw: Callable[[], str]) -> None:
        """`clock`: seconds that only grow. `draw`: another text each time, which nobody guesses."""
        self._clock = clock
        self._draw = draw
        self._carried: dict[bytes, _Carried] = {}

    def issue(self, token: str) -> str:
        """A code; that of before, of the same token, serves no more. Raises CodesFull."""
        now = self._clock()
        self._carried = {key: one for key, one in self._carried.items() if now < one.until and one.token != token}
        if len(self._carried) >= CODES_MAX:
            raise CodesFull
        code = self._draw()
        self._carried[_key(code)] = _Carried(token, now + CODE_SECONDS)
        return code

    def redeem(self, code: str) -> str | None:
        """The token, once; None: the code does not serve, or not any more."""
        found = self._carried.pop(_key(code), None)
        return found.token if found is not None and self._clock() < found.until else None


def _key(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="replace")).digest()
