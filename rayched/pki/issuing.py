"""From what a command says to a certificate that is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from rayched.access.identity import Identity, IdentityKind
from rayched.pki.authority import DAY_SECONDS, LeafRequest, host_names
from rayched.pki.kinds import CERTIFICATE_KINDS, LOCAL_HOSTS


def leaf_request(
    trust_domain: str, kind: IdentityKind, name: str, hosts: Sequence[str] = (), days: int | None = None
) -> LeafRequest:
    """`hosts` beside those that whoever serves has. Raises PkiError, and IdentityError for a name that cannot be."""
    rule = CERTIFICATE_KINDS[kind]
    serves = rule.serves or (rule.may_serve and bool(hosts))
    places = tuple(dict.fromkeys((*LOCAL_HOSTS, *hosts))) if serves else ()
    host_names(places)
    return LeafRequest(
        identity=Identity(trust_domain, kind, name),
        seconds=(rule.days if days is None else days) * DAY_SECONDS,
        serves=serves,
        hosts=places,
    )
