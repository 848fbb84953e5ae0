"""Tokens of the service Access: made, told and revoked, at `<root>/access/tokens/<id>`.

A token is in force at a replica once its watch has delivered it, and out of force in the same way. Its secret is drawn here, is
in one answer, and etcd has its hash. Whoever may make one is settled before (policy.py): for oneself, or as an administrator.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from rayched.access.identity import Identity, IdentityError
from rayched.access.tokens import (
    JOIN_KIND,
    JOIN_SECONDS_DEFAULT,
    JOIN_SECONDS_MAX,
    JOIN_SECONDS_MIN,
    SECONDS_DEFAULT,
    SECONDS_MAX,
    SECONDS_MIN,
    TOKEN_KINDS,
    BearerToken,
    TokenTable,
    hash_of,
    new_id,
    new_secret,
    token_at,
)
from rayched.api.errors import quoted
from rayched.server.errors import conflict, invalid, not_found, over_limit
from rayched.server.objects import ATTEMPTS_MAX, Objects
from rayched.server.rpc import Call
from rayched.store.transactions import Committed, GuardedDelete, GuardedPut
from rayched.v1.access_pb2 import (
    IssueTokenRequest,
    IssueTokenResponse,
    ListTokensRequest,
    ListTokensResponse,
    RevokeTokenRequest,
    RevokeTokenResponse,
)

TOKENS_MAX: Final = 10_000
TOKENS_OF_ONE_MAX: Final = 100
EXPIRED_KEPT_SECONDS: Final = 300.0
"""So a clock that goes before takes no token away that counts elsewhere."""
EXPIRED_A_CALL: Final = 20
"""So many go when one is made: more than come."""
NOTE_MAX: Final = 200
"""Characters."""


class TokenCalls:
    """A part of AccessService. Owned by the event loop."""

    def __init__(
        self,
        objects: Objects,
        tokens: TokenTable,
        draw: Callable[[int], bytes] = secrets.token_bytes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`draw`: so many random bytes; `clock`: seconds since 1970."""
        self._objects, self._store, self._keys = objects, objects.store, objects.keys
        self._tokens = tokens
        self._draw = draw
        self._clock = clock

    async def issue_token(self, request: IssueTokenRequest, call: Call) -> IssueTokenResponse:
        subject, seconds = _checked(request)
        now = self._clock()
        await self._remove_expired(now - EXPIRED_KEPT_SECONDS)
        if self._tokens.count(now) >= TOKENS_MAX:
            raise over_limit(f"there are {TOKENS_MAX} tokens, which is the most there may be; revoke some")
        if self._tokens.of(subject.uri, now) >= TOKENS_OF_ONE_MAX:
            raise over_limit(f"{subject.uri} has {TOKENS_OF_ONE_MAX} tokens, which is the most there may be; revoke some")
        secret = new_secret(self._draw)
        for _ in range(ATTEMPTS_MAX):
            made = BearerToken(
                new_id(self._draw),
                hash_of(secret),
                subject,
                call.caller.identity,
                request.note,
                now,
                now + seconds,
                call.caller.serial,
            )
            outcome = await self._objects.send(GuardedPut(self._keys.token(made.id), 0, made.stored()), "Token")
            if isinstance(outcome, Committed):
                return IssueTokenResponse(token=made.to_message(), secret=made.text(secret), revision=outcome.revision)
            # Another one has this id.
        raise conflict("Token: no id is free; try again")

    async def _remove_expired(self, before: float) -> None:
        """Some of those that have expired until then. What cannot be removed now is there at the next call."""
        wanted = self._tokens.expired(before, EXPIRED_A_CALL)
        if not wanted:
            return
        found = (await self._store.get_many([self._keys.token(one.id) for one in wanted])).entries
        gone = [
            GuardedDelete(entry.key, entry.mod_revision)
            for one, entry in zip(wanted, found, strict=True)
            if entry is not None and token_at(entry.key, entry.value) == one
        ]
        if gone:
            await self._store.send(None, gone)

    async def list_tokens(self, request: ListTokensRequest, _: Call) -> ListTokensResponse:
        page = await self._store.list_all(self._keys.tokens_prefix)
        read = (token_at(entry.key, entry.value) for entry in page.entries)
        found = [one for one in read if isinstance(one, BearerToken) and request.subject in ("", one.subject.uri)]
        found.sort(key=lambda one: (one.subject.uri, one.id))
        return ListTokensResponse(tokens=[one.to_message() for one in found], revision=page.revision)

    async def revoke_token(self, request: RevokeTokenRequest, _: Call) -> RevokeTokenResponse:
        if not request.id:
            raise invalid("id: is missing; want that of a token, as `rayched token list` shows it")
        key = self._keys.token(request.id)
        for _attempt in range(ATTEMPTS_MAX):
            entry = await self._store.get(key)
            token = None if entry is None else token_at(key, entry.value)
            if entry is None or not isinstance(token, BearerToken) or token.subject.uri != request.subject:
                # The same for another one's.
                raise not_found(f"Token {request.id} of {request.subject}")
            outcome = await self._objects.send(GuardedDelete(key, entry.mod_revision), f"Token {request.id}")
            if isinstance(outcome, Committed):
                return RevokeTokenResponse(token=token.to_message(), revision=outcome.revision)
        raise conflict(f"Token {request.id}: others keep changing it; try again")


def _checked(request: IssueTokenRequest) -> tuple[Identity, int]:
    """Whom the token is to stand for, and for how many seconds. Raises INVALID_ARGUMENT."""
    try:
        subject = Identity.parse(request.subject)
    except IdentityError as error:
        raise invalid(f"subject: {error}") from None
    joins = subject.kind is JOIN_KIND
    if not joins and subject.kind not in TOKEN_KINDS:
        allowed = " or ".join(kind.value for kind in TOKEN_KINDS)
        text = f"a token stands for a {allowed}, a join token for a {JOIN_KIND.value}"
        raise invalid(f"subject: {subject} is of the kind {subject.kind.value}; {text}")
    seconds = request.seconds or (JOIN_SECONDS_DEFAULT if joins else SECONDS_DEFAULT)
    if joins and not JOIN_SECONDS_MIN <= seconds <= JOIN_SECONDS_MAX:
        raise invalid(f"seconds: found {seconds}, allowed for a join token are {JOIN_SECONDS_MIN} to {JOIN_SECONDS_MAX} (a day)")
    if not joins and not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise invalid(f"seconds: found {seconds}, allowed are {SECONDS_MIN} (an hour) to {SECONDS_MAX} (365 days)")
    if len(request.note) > NOTE_MAX:
        raise invalid(f"note: {quoted(request.note)} has {len(request.note)} characters, at most {NOTE_MAX} are allowed")
    return subject, seconds
