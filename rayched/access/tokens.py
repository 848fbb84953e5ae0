"""Bearer tokens: `rt_<id>_<secret>`, of which etcd has the SHA-256 alone. Pure but for whoever draws them.

    rt_ k3v9x2pq _ 43 characters of base64url, 32 random bytes

A token stands for an identity of the kind user or web, and lets what that identity may. It counts until it expires, at the latest
after 365 days, or is revoked. One that stands for a node is a join token, `join.<id>.<secret>`: it is good for one certificate of
that node, within a day at most, and for nothing else. The text is compared as it is: no other spelling of the same bytes counts.

Where a token does not count the answer is the same, whether there is none with its id, the secret is another one, or it has
expired or was revoked; and an unknown id costs the same hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from rayched.access.access_table import AccessTable
from rayched.access.identity import Identity, IdentityError, IdentityKind
from rayched.v1 import access_pb2

ID_CHARACTERS: Final = 8
SECRET_BYTES: Final = 32
TOKEN_KINDS: Final = (IdentityKind.USER, IdentityKind.WEB)
"""Whom tokens stand for: what calls as a node or a replica has a certificate."""
JOIN_KIND: Final = IdentityKind.NODE
"""Whom join tokens stand for."""
DAY: Final = 86_400
SECONDS_MIN: Final = 3_600
SECONDS_DEFAULT: Final = 30 * DAY
SECONDS_MAX: Final = 365 * DAY
JOIN_SECONDS_MIN: Final = 60
JOIN_SECONDS_DEFAULT: Final = 3_600
JOIN_SECONDS_MAX: Final = DAY

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_TEXT: Final = re.compile(rf"rt_([{_ALPHABET}]{{{ID_CHARACTERS}}})_([A-Za-z0-9_-]{{43}})")
_JOIN_TEXT: Final = re.compile(rf"join\.([{_ALPHABET}]{{{ID_CHARACTERS}}})\.([A-Za-z0-9_-]{{43}})")
_NOBODYS_HASH: Final = bytes(32)

RULE_TOKENS_EXPIRE: bool = True
RULE_TOKENS_ARE_COMPARED: bool = True
"""Broken by tests alone."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """One that etcd has."""

    id: str
    sha256: bytes
    subject: Identity
    maker: Identity
    note: str
    made_at: float
    expires_at: float
    """Both in seconds since 1970."""
    maker_serial: str = ""
    """Of the certificate that it was made with; empty: there was none."""

    @property
    def is_join(self) -> bool:
        """It is good for a certificate, once, and for nothing else."""
        return self.subject.kind is JOIN_KIND

    def text(self, secret: str) -> str:
        """What its bearer shows."""
        return f"join.{self.id}.{secret}" if self.is_join else f"rt_{self.id}_{secret}"

    def to_message(self) -> access_pb2.Token:
        """Without what is known of its secret."""
        return access_pb2.Token(
            id=self.id,
            subject=self.subject.uri,
            maker=self.maker.uri,
            note=self.note,
            made_at_ms=int(self.made_at * 1e3),
            expires_at_ms=int(self.expires_at * 1e3),
            maker_serial=self.maker_serial,
        )

    def stored(self) -> bytes:
        """As it lies in etcd."""
        message = self.to_message()
        message.sha256 = self.sha256
        return message.SerializeToString(deterministic=True)


def new_id(draw: Callable[[int], bytes]) -> str:
    """`draw`: so many random bytes."""
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in draw(ID_CHARACTERS))


def new_secret(draw: Callable[[int], bytes]) -> str:
    return base64.urlsafe_b64encode(draw(SECRET_BYTES)).decode().rstrip("=")


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def token_at(key: bytes, value: bytes) -> BearerToken | str:
    """What lies at a key of etcd, or why it is no token."""
    try:
        message = access_pb2.Token.FromString(value)
        subject, maker = Identity.parse(message.subject), Identity.parse(message.maker)
    except DecodeError:
        return "what lies there is no message of that kind"
    except IdentityError as error:
        return str(error)
    if key.rpartition(b"/")[2] != message.id.encode() or len(message.sha256) != len(_NOBODYS_HASH):
        return "what lies there belongs to another key, or has no hash"
    if subject.kind not in (*TOKEN_KINDS, JOIN_KIND):
        return f"it stands for {subject}, which no token may"
    times = message.made_at_ms / 1e3, message.expires_at_ms / 1e3
    return BearerToken(message.id, message.sha256, subject, maker, message.note, *times, message.maker_serial)


class TokenTable(AccessTable[BearerToken]):
    """Those that one replica knows."""

    def __init__(self) -> None:
        super().__init__("the token at {} lets nobody in")
        self._by_id: dict[str, BearerToken] = {}
        self.is_current = False
        """It is as etcd has it, so far as is known: one that is not there is none."""

    def listed(self, entries: Mapping[bytes, bytes]) -> None:
        super().listed(entries)
        self.is_current = True

    def with_id(self, id: str) -> BearerToken | None:
        """Whether it counts or not."""
        return self._by_id.get(id)

    def count(self, now: float) -> int:
        """How many have not expired at a time in seconds since 1970."""
        return sum(now < one.expires_at for one in self._by_id.values())

    def of(self, subject: str, now: float) -> int:
        """How many of them stand for an identity."""
        return sum(one.subject.uri == subject and now < one.expires_at for one in self._by_id.values())

    def expired(self, before: float, count: int) -> list[BearerToken]:
        """Those that have expired until a time in seconds since 1970, the first ones of them."""
        found = [one for one in self._by_id.values() if one.expires_at <= before]
        return sorted(found, key=lambda one: one.expires_at)[:count]

    def find(self, text: str, now: float) -> BearerToken | None:
        """The token that this text is, if it counts at a time in seconds since 1970."""
        joins = _JOIN_TEXT.fullmatch(text)
        parsed = joins or _TEXT.fullmatch(text)
        id, secret = parsed.groups() if parsed is not None else ("", "")
        found = self._by_id.get(id)
        if found is not None and found.is_join is (joins is None):
            found = None
        is_it = hmac.compare_digest(hash_of(secret), _NOBODYS_HASH if found is None else found.sha256)
        if found is None or (RULE_TOKENS_ARE_COMPARED and not is_it):
            return None
        return found if self.counts(found, now) else None

    def counts(self, token: BearerToken, now: float) -> bool:
        """Whether one that was found before does still."""
        return self._by_id.get(token.id) == token and (now < token.expires_at or not RULE_TOKENS_EXPIRE)

    def _read(self, key: bytes, value: bytes) -> BearerToken | str:
        return token_at(key, value)

    def _index(self) -> None:
        self._by_id = {token.id: token for token in self._by_key.values()}
