"""What kinds of certificates there are: how long each lives, and whether its holder serves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rayched.access.identity import IdentityKind


@dataclass(frozen=True, slots=True)
class CertificateKindRule:
    """Of one kind of identity."""

    days: int
    """Where nobody asks for more or fewer."""
    serves: bool = False
    """It is dialled as well."""
    may_serve: bool = False
    """It is dialled where hosts are named, and else not."""


CERTIFICATE_KINDS: Final[Mapping[IdentityKind, CertificateKindRule]] = MappingProxyType(
    {
        IdentityKind.REPLICA: CertificateKindRule(90, serves=True),
        IdentityKind.NODE: CertificateKindRule(30),
        IdentityKind.NODES: CertificateKindRule(30),
        IdentityKind.USER: CertificateKindRule(90),
        IdentityKind.WEB: CertificateKindRule(90, serves=True),
        IdentityKind.ETCD: CertificateKindRule(90, may_serve=True),
    }
)

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""Where whoever serves is reached on its own host."""
