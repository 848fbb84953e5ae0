"""The role bindings as one replica knows them: fed from etcd in the order of its revisions, asked by identity. Pure.

What etcd has and cannot be read as a binding gives nobody anything, and is told in `problems`. The built-in bindings are not in
etcd, and cannot be taken away there.

`version` grows with each change, so whoever remembers an answer knows whether it still holds. Owner: the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError

from rayched.access.access_table import AccessTable
from rayched.access.binding_limits import NO_LIMITS, BindingLimits, highest
from rayched.access.bindings import BindingErrors, RoleBinding, read_binding
from rayched.access.identity import Identity
from rayched.api.errors import FieldError
from rayched.v1 import access_pb2

_NO_BINDING: Final = FieldError("", "what lies there is no message of that kind")
_ANOTHERS_KEY: Final = FieldError("id", "what lies there belongs to another key")


class BindingTable(AccessTable[RoleBinding]):
    """See the module."""

    def __init__(self, built_in: Iterable[RoleBinding] = ()) -> None:
        super().__init__("the role binding at {} gives nobody anything")
        self._built_in: Final = tuple(built_in)
        self._by_subject: dict[str, tuple[RoleBinding, ...]] = {}
        self._limits: dict[str, BindingLimits] = {}
        self.version = 0
        self._index()

    def of(self, identity: Identity) -> tuple[RoleBinding, ...]:
        """Those of one identity, sorted by id."""
        return self._by_subject.get(identity.uri, ())

    def is_built_in(self, uri: str) -> bool:
        """Whether an identity has a role that nobody can take away."""
        return any(one.subject.uri == uri for one in self._built_in)

    def limits_of(self, identity: Identity) -> BindingLimits:
        """What its bindings say of how much it may have."""
        return self._limits.get(identity.uri, NO_LIMITS)

    def all(self) -> list[RoleBinding]:
        """Those in etcd, by subject, role and id."""
        return sorted(self._by_key.values(), key=lambda one: (one.subject.uri, one.role.value, one.id))

    def _read(self, key: bytes, value: bytes) -> RoleBinding | str:
        try:
            return binding_at(key, value)
        except BindingErrors as error:
            return str(error)

    def _index(self) -> None:
        found: dict[str, list[RoleBinding]] = {}
        for binding in (*self._built_in, *self._by_key.values()):
            found.setdefault(binding.subject.uri, []).append(binding)
        self._by_subject = {uri: tuple(sorted(bindings, key=lambda one: one.id)) for uri, bindings in found.items()}
        self._limits = {uri: highest(binding.limits for binding in bindings) for uri, bindings in found.items()}
        self.version += 1


def binding_at(key: bytes, value: bytes) -> RoleBinding:
    """What lies at a key of etcd, judged anew. Raises BindingErrors."""
    try:
        message = access_pb2.RoleBinding.FromString(value)
    except DecodeError:
        raise BindingErrors([_NO_BINDING]) from None
    binding = read_binding(message)
    if key.rpartition(b"/")[2] != binding.id.encode():
        raise BindingErrors([_ANOTHERS_KEY])
    return binding
