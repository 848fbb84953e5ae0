"""What an ApiServer is told: where it listens, where its store is, who its callers are, and how much they may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rayched.access.authorizing import Authorizer
from rayched.access.binding_table import BindingTable
from rayched.access.bindings import RoleBinding
from rayched.access.identity import Identity, IdentityKind
from rayched.access.policy import AccessRole
from rayched.api.hosts import is_loopback
from rayched.api.well_known_taints import DefaultTolerations
from rayched.pki.online_signer import OnlineSigner
from rayched.server.audit_writer import AuditWriter
from rayched.server.call_guard import INSECURE_BINDINGS, CallGuard, IdentityOf, loopback_identity
from rayched.server.edge.limits import EdgeLimits
from rayched.server.peers import ServerTls, serial_of, token_id_of
from rayched.server.services.watch_service import WatchLimits
from rayched.server.watching.watch_hub import HubLimits
from rayched.store.keys import Keys
from rayched.store.space import SpaceGate

ADMIN: Final = "admin"
"""The user who is the administrator of a cluster with certificates."""


class ListenError(Exception):
    """The server cannot listen where it was told to; one line."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where an ApiServer listens and where its store is."""

    listen_address: str
    """host:port; port 0 lets the system choose."""
    etcd_endpoints: Sequence[str]
    keys: Keys = field(default_factory=Keys)
    version: str = ""
    token_listen_address: str = ""
    """host:port where callers show bearer tokens in place of certificates; "": nowhere."""
    tls: ServerTls | None = None
    """With it, callers are who their certificates say; else `identity_of` says who they are, and the address is of loopback."""
    signer: OnlineSigner | None = None
    """Certifies keys of who may ask for it; None: this replica does not sign."""
    hub: HubLimits = field(default_factory=HubLimits)
    watch: WatchLimits = field(default_factory=WatchLimits)
    tolerations: DefaultTolerations = field(default_factory=DefaultTolerations)
    gate: SpaceGate = field(default_factory=SpaceGate)
    """Refuses what is new before etcd's space is used up."""
    problems: Callable[[], Sequence[str]] = tuple
    """What whoever asks for the leader should know, one line each."""
    edge: EdgeLimits = field(default_factory=EdgeLimits)
    audit: AuditWriter | None = None
    """Writes the audit log; whoever made it closes it, after the server has stopped. None: there is none."""
    identity_of: IdentityOf = loopback_identity
    """Who makes a call."""
    built_in_bindings: Sequence[RoleBinding] = INSECURE_BINDINGS
    """Roles that nobody can take away; without certificates whoever reaches the server is its administrator."""

    def guard(self) -> CallGuard:
        """Who may what. With certificates the user `admin` is the administrator that nobody can take away."""
        if self.tls is None:
            return CallGuard(Authorizer(BindingTable(self.built_in_bindings)), self.identity_of)
        admin = Identity(self.tls.judge.trust_domain, IdentityKind.USER, ADMIN)
        table = BindingTable((RoleBinding(admin, AccessRole.ADMIN),))
        takes_tokens = bool(self.token_listen_address)
        judge = self.tls.judge
        return CallGuard(
            Authorizer(table),
            judge.identify,
            serial_of=serial_of,
            token_id_of=token_id_of,
            takes_tokens=takes_tokens,
            clock=judge.clock,
        )


def host_and_port(options: ServerOptions) -> tuple[str, int]:
    """Where it is to listen. Raises ListenError."""
    host, port = split_listen(options.listen_address)
    if options.tls is None and not is_loopback(host):
        raise ListenError(f"listen address {options.listen_address!r}: is not loopback; other addresses need certificates")
    return host, port


def split_listen(address: str) -> tuple[str, int]:
    """Raises ListenError."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ListenError(f"listen address {address!r}: want host:port")
    return host, int(port)
