"""Identity: who a caller is, as one SPIFFE URI `spiffe://<trust domain>/<kind>/<name>`. Pure.

| path | who |
|---|---|
| /replica/NAME | a replica, as a server and as a client of other replicas |
| /node/NAME | the agent of one node |
| /nodes/NAME | an agent that answers for the nodes that its grant lists |
| /user/NAME | a person, or a program of one |
| /web/NAME | the process that serves the page |
| /etcd/NAME | a client of etcd |

A trust domain and a name are DNS-1123 subdomains. Two identities are the same if their URIs are the same text: nothing is
normalised, so there is one way to write each. What is not written so (capitals, %41, a port, a query, a second slash, a line
break at the end) is refused and never repaired: who reads a URI more kindly than its neighbour lets strangers in.

A URI has at most 2,048 characters, as the SPIFFE standard wants; that is looked at before anything else.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from rayched.api.errors import one_of, quoted
from rayched.api.names import subdomain_fault

SCHEME: Final = "spiffe://"
URI_MAX: Final = 2048
"""Characters; SPIFFE-ID, section 2.3."""


class IdentityKind(enum.StrEnum):
    """The first part of the path; its value is what the URI says."""

    REPLICA = "replica"
    NODE = "node"
    NODES = "nodes"
    USER = "user"
    WEB = "web"
    ETCD = "etcd"


class IdentityError(ValueError):
    """A text that is no identity; one line that names the text, the part and what is allowed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One caller. Raises IdentityError for a trust domain or a name that is no DNS-1123 subdomain."""

    trust_domain: str
    kind: IdentityKind
    name: str

    def __post_init__(self) -> None:
        for part, text in (("trust domain", self.trust_domain), ("name", self.name)):
            fault = subdomain_fault(text)
            if fault is not None:
                raise IdentityError(f"{part} of an identity: {fault}")

    @staticmethod
    def parse(uri: str) -> Identity:
        """Raises IdentityError."""
        if len(uri) > URI_MAX:
            raise IdentityError(f"identity {quoted(uri)}: has {len(uri)} characters; at most {URI_MAX} are allowed")
        if not uri.startswith(SCHEME):
            raise IdentityError(f'identity {quoted(uri)}: does not begin with "{SCHEME}"')
        parts = uri.removeprefix(SCHEME).split("/")
        if len(parts) != 3:
            raise IdentityError(f"identity {quoted(uri)}: is not {SCHEME}TRUST-DOMAIN/KIND/NAME")
        trust_domain, kind, name = parts
        if kind not in _KINDS:
            raise IdentityError(f"identity {quoted(uri)}: kind {quoted(kind)} is not {one_of(list(_KINDS))}")
        try:
            return Identity(trust_domain, _KINDS[kind], name)
        except IdentityError as error:
            raise IdentityError(f"identity {quoted(uri)}: {error}") from None

    @property
    def uri(self) -> str:
        """As `parse` reads it."""
        return f"{SCHEME}{self.trust_domain}/{self.kind.value}/{self.name}"

    def __str__(self) -> str:
        return self.uri


_KINDS: Final = {kind.value: kind for kind in IdentityKind}
