"""Which certificates and identities are refused at all replicas: fed from etcd, asked at each call. Pure.

A certificate is refused by its serial number, an identity by its URI, whatever it shows. What etcd has and cannot be read refuses
nobody, and is told in `problems`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from rayched.access.access_table import AccessTable
from rayched.access.identity import Identity, IdentityError
from rayched.api.errors import quoted
from rayched.v1 import access_pb2

_SERIAL: Final = re.compile(r"[0-9a-f]{1,40}")
"""At most 20 bytes: RFC 5280, 4.1.2.2."""

RULE_REVOCATIONS_ARE_LOOKED_AT: bool = True
"""Broken by tests alone."""


class RevocationError(ValueError):
    """What cannot be refused; one line."""


@dataclass(frozen=True, slots=True)
class RevokedCaller:
    """A certificate, or an identity. Raises RevocationError unless it is one of the two."""

    serial: str = ""
    """In hexadecimal digits, an even number of them."""
    identity: str = ""

    @classmethod
    def of(cls, serial: str, identity: str) -> RevokedCaller:
        """As somebody has written it."""
        if bool(serial) == bool(identity):
            raise RevocationError("serial, identity: want one of the two")
        if serial:
            return cls(serial=_serial(serial))
        try:
            return cls(identity=Identity.parse(identity).uri)
        except IdentityError as error:
            raise RevocationError(f"identity: {error}") from None

    @property
    def id(self) -> str:
        return self.serial or hashlib.sha256(self.identity.encode()).hexdigest()[:16] + "-id"

    def __str__(self) -> str:
        return f"certificate {self.serial}" if self.serial else self.identity


def revoked_at(key: bytes, value: bytes) -> RevokedCaller:
    """What lies at a key of etcd. Raises RevocationError."""
    try:
        message = access_pb2.Revocation.FromString(value)
    except DecodeError:
        raise RevocationError("what lies there is no message of that kind") from None
    found = RevokedCaller.of(message.serial, message.identity)
    if key.rpartition(b"/")[2] != found.id.encode():
        raise RevocationError("what lies there belongs to another key")
    return found


class RevocationTable(AccessTable[RevokedCaller]):
    """Those that one replica knows."""

    def __init__(self) -> None:
        super().__init__("the revocation at {} refuses nobody")
        self._revoked: frozenset[str] = frozenset()
        """Serial numbers and URIs: no text is both."""

    def __contains__(self, text: str) -> bool:
        return RULE_REVOCATIONS_ARE_LOOKED_AT and text in self._revoked

    @property
    def count(self) -> int:
        return len(self._by_key)

    def _read(self, key: bytes, value: bytes) -> RevokedCaller | str:
        try:
            return revoked_at(key, value)
        except RevocationError as error:
            return str(error)

    def _index(self) -> None:
        self._revoked = frozenset(one.serial or one.identity for one in self._by_key.values())


def _serial(text: str) -> str:
    found = text.lower().replace(":", "")
    if not _SERIAL.fullmatch(found):
        raise RevocationError(f"serial: {quoted(text)} is no serial number; want at most 40 hexadecimal digits")
    digits = found.lstrip("0") or "0"
    return digits.zfill(len(digits) + len(digits) % 2)
