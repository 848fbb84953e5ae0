"""Who calls: an identity for each role, a channel for each identity, and what each of them may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import grpc

from rayched.access.identity import IdentityKind
from rayched.client.client import Client
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.v1.access_pb2 import RoleBinding

ADMIN: Final = "admin"
HOLLOW: Final = "agent-of-many"
_MESSAGE_BYTES: Final = 16 << 20
OPTIONS: Final = (
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True)
class FuzzRole:
    """An identity, and the role bindings that it has."""

    name: str
    kind: IdentityKind
    identity: str
    bindings: tuple[RoleBinding, ...] = ()


ROLES: Final = (
    FuzzRole(ADMIN, IdentityKind.USER, "admin"),
    FuzzRole("operator", IdentityKind.USER, "olga", (RoleBinding(role="operator"),)),
    FuzzRole("submitter", IdentityKind.USER, "sam", (RoleBinding(role="submitter", namespaces=["team-a"]),)),
    FuzzRole("viewer", IdentityKind.USER, "vera", (RoleBinding(role="viewer", namespaces=["team-a"]),)),
    FuzzRole("everywhere", IdentityKind.WEB, "page", (RoleBinding(role="viewer", namespaces=["*"]),)),
    FuzzRole("nobody", IdentityKind.USER, "nobody"),
    FuzzRole("agent", IdentityKind.NODE, "node-001"),
    FuzzRole(HOLLOW, IdentityKind.NODES, "hollow", (RoleBinding(role="node", nodes=["node-{000..003}"]),)),
    FuzzRole("replica", IdentityKind.REPLICA, "replica-9"),
    FuzzRole("client-of-etcd", IdentityKind.ETCD, "etcd"),
)


class Callers:
    """A context manager: certificates are issued when it is made, channels open with it."""

    def __init__(self, authority: PkiDirectory, target: str) -> None:
        self._files: dict[str, TlsFiles] = {}
        self._uris: dict[str, str] = {}
        self._target = target
        for role in ROLES:
            wanted = leaf_request(authority.trust_domain, role.kind, role.identity)
            authority.issue(wanted)
            self._files[role.name] = TlsFiles.within(authority.place_of(wanted.identity))
            self._uris[role.name] = str(wanted.identity)
        self.channels: dict[str, grpc.Channel] = {}

    def __enter__(self) -> Callers:
        for name, files in self._files.items():
            self.channels[name] = grpc.secure_channel(self._target, _credentials(files), options=OPTIONS)
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self.channels.values():
            channel.close()

    @contextmanager
    def channel(self, name: str, options: Sequence[tuple[str, int]]) -> Iterator[grpc.Channel]:
        """Another one of an identity."""
        with grpc.secure_channel(self._target, _credentials(self._files[name]), options=tuple(options)) as channel:
            yield channel

    def client(self, name: str, timeout_seconds: float = 30.0) -> Client:
        return Client([self._target], tls=self._files[name], timeout_seconds=timeout_seconds)

    def bind(self, admin: Client) -> None:
        """Gives each its roles, again where somebody took them away."""
        for role in ROLES:
            for binding in role.bindings:
                given = RoleBinding()
                given.CopyFrom(binding)
                given.subject = self._uris[role.name]
                admin.grant(given)

    def revoke_others(self, admin: Client) -> None:
        """Takes away what calls granted."""
        own: Sequence[str] = [self._uris[role.name] for role in ROLES if role.bindings]
        for binding in admin.grants():
            if binding.subject not in own:
                admin.revoke_grant(binding.id)


def _credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(files.ca.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes())
