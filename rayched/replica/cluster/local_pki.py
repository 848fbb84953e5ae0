"""The certificates of a cluster on this host: whoever starts one gives no flag for them, and whoever uses it neither.

There is an authority in a directory of its own, made where there is none; a certificate for each replica and for the gateway
beside it, one for whoever started the cluster, one for an agent of many nodes; and a context that lists the replicas. What has a
third of its time left, or less, is issued anew: at the start, and while the cluster runs by whoever owns this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rayched.access.identity import Identity, IdentityKind
from rayched.client.contexts import (
    CONTEXT_FILE,
    ClientContext,
    context_names,
    current_context,
    remove_context,
    use_context,
    write_context,
    write_context_file,
)
from rayched.pki.directory import PkiDirectory
from rayched.pki.held_certificate import RENEWED_SHARE
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import CA_FILE, TlsFiles

ADMIN: Final = "admin"
NODES: Final = "local"


class LocalPki:
    """Of one cluster."""

    def __init__(
        self,
        directory: Path,
        replicas: int,
        clock: Callable[[], float] = time.time,
        *,
        gateways: bool = False,
        hosts: Sequence[str] = (),
    ) -> None:
        """Makes what is missing. `gateways`: there is one beside each replica. `hosts`: addresses that replicas are reached at
        beside those of their own host; each certificate has them all. Raises PkiError."""
        self._clock = clock
        self._hosts = tuple(hosts)
        self._made = PkiDirectory(directory, clock) if (directory / CA_FILE).exists() else PkiDirectory.create(directory, clock)
        self._identities = [
            *(self._identity(IdentityKind.REPLICA, f"replica-{number}") for number in range(replicas)),
            *(self._identity(IdentityKind.WEB, f"gateway-{number}") for number in range(replicas if gateways else 0)),
            self._identity(IdentityKind.USER, ADMIN),
            self._identity(IdentityKind.NODES, NODES),
        ]
        self.renew()

    @property
    def name(self) -> str:
        """Of the context: that of the trust domain."""
        return self._made.trust_domain

    @property
    def admin(self) -> TlsFiles:
        """Of whoever started the cluster."""
        return self._files(IdentityKind.USER, ADMIN)

    def flags(self, number: int) -> list[str]:
        """Of a replica."""
        files = self._files(IdentityKind.REPLICA, f"replica-{number}")
        # Whoever has the certificates here has the key beside them anyway.
        signs = ["--signer", str(self._made.path)] if self._made.signer() is not None else []
        return [
            *signs,
            *("--tls-cert-file", str(files.certificate), "--tls-private-key-file", str(files.key)),
            *("--client-ca-file", str(files.ca), "--client-deny-list-file", str(self._made.deny_list)),
        ]

    def gateway_flags(self, number: int) -> list[str]:
        """Of a replica whose gateway has a certificate."""
        files = self._files(IdentityKind.WEB, f"gateway-{number}")
        return ["--gateway-cert-file", str(files.certificate), "--gateway-private-key-file", str(files.key)]

    def renew(self) -> list[Identity]:
        """Issues anew what has too little time left; which. Nothing while the authority's key is kept elsewhere."""
        if self._made.signer() is None:
            return []
        due = [one for one in self._identities if not self._has_time(one)]
        for identity in due:
            hosts = self._hosts if identity.kind is IdentityKind.REPLICA else ()
            self._made.issue(leaf_request(identity.trust_domain, identity.kind, identity.name, hosts))
        return due

    def write_context(self, servers: Sequence[str]) -> None:
        """Makes it current. Raises ContextError."""
        write_context(ClientContext(self.name, tuple(servers), self.admin), make_current=True)

    def agent_context(self, node: str, servers: Sequence[str]) -> Path:
        """The file of a context for the agent of a node, beside its certificate, which is made anew. Raises PkiError."""
        identity = self._identity(IdentityKind.NODE, node)
        self._made.issue(leaf_request(identity.trust_domain, identity.kind, identity.name))
        path = self._made.place_of(identity) / CONTEXT_FILE
        write_context_file(path, servers, self._files(IdentityKind.NODE, node))
        return path

    @contextmanager
    def context(self, servers: Sequence[str]) -> Iterator[None]:
        """Current inside; behind it there is none of it, and what was current before is so again. Raises ContextError."""
        before = current_context()
        self.write_context(servers)
        try:
            yield
        finally:
            was_current = current_context() == self.name
            remove_context(self.name)
            if was_current and before in context_names():
                use_context(before)

    def _identity(self, kind: IdentityKind, name: str) -> Identity:
        return Identity(self._made.trust_domain, kind, name)

    def _files(self, kind: IdentityKind, name: str) -> TlsFiles:
        return TlsFiles.within(self._made.place_of(self._identity(kind, name)))

    def _has_time(self, identity: Identity) -> bool:
        place = str(self._made.place_of(identity))
        found = next((one for one in self._made.in_use() if (one.uri, one.directory) == (identity.uri, place)), None)
        if found is None or not self._made.holds(found) or found.authority != self._made.signer():
            return False
        return found.not_after - self._clock() > RENEWED_SHARE * (found.not_after - found.issued_at)
