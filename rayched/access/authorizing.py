"""Where a call is judged: an identity, a call and what it is about give an answer, from the policy and the bindings.

    identity ──▶ roles: `any`, that of its kind (node, replica), those of its bindings
    (call, kind, role) ──▶ a cell of the policy ──▶ does its scope hold for this namespace, this node?

One role that may is enough. A refusal names the identity, the call, what it was about and the binding that would be needed. It is
made of the request alone: no object has been looked at, so it is the same whether one exists. Pure.

Scopes of `node` are half of the answer: whose node it is. What an agent may say of it is in node_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.access.binding_table import BindingTable
from rayched.access.bindings import ALL_NAMESPACES, RoleBinding
from rayched.access.http_policy import readers_of
from rayched.access.identity import Identity, IdentityKind
from rayched.access.policy import AccessRole, AccessScope, cells_of, roles_for
from rayched.access.requests import Facts, RequestFacts
from rayched.api.kinds import NAMESPACE, NODE

RULE_ACCESS_ROLES: bool = True
RULE_ACCESS_NAMESPACES: bool = True
RULE_ACCESS_ALL_NAMESPACES: bool = True
RULE_ACCESS_EACH_OF_MANY: bool = True
RULE_ACCESS_OWN_NODE: bool = True
RULE_ACCESS_SUBJECTS_ARE_EXACT: bool = True
RULE_ACCESS_PATHS: bool = True
"""Broken by tests alone, as the others are."""

_HINT_ORDER: Final = (AccessRole.MONITOR, AccessRole.VIEWER, AccessRole.SUBMITTER, AccessRole.OPERATOR, AccessRole.ADMIN)
_KIND_ROLES: Final = {
    IdentityKind.NODE: AccessRole.NODE,
    IdentityKind.NODES: AccessRole.NODE,
    IdentityKind.REPLICA: AccessRole.REPLICA,
}


@dataclass(frozen=True, slots=True)
class AccessAllowed:
    """The call may be made. `roles`: those that let it; `bindings`: those of the roles that come from one."""

    roles: frozenset[AccessRole]
    bindings: tuple[RoleBinding, ...]


@dataclass(frozen=True, slots=True)
class AccessRefused:
    """It may not; one line for whoever asked."""

    message: str


AccessAnswer = AccessAllowed | AccessRefused


class Authorizer:
    """Judges by the bindings as they are at the moment. Owner: the event loop."""

    def __init__(self, table: BindingTable) -> None:
        self.table = table

    def begin(self, identity: Identity, call: str) -> AccessRefused | None:
        """Before anything of a request is read: whether the identity may make the call about anything at all."""
        if self._roles(identity) & roles_for(call) or not RULE_ACCESS_ROLES:
            return None
        return _refusal(self.table.of(identity), identity, call, None)

    def begin_reading(self, identity: Identity, path: str) -> AccessRefused | None:
        """Whether the identity may read a path over HTTP (http_policy.py)."""
        readers = readers_of(path)
        if self._roles(identity) & readers or not RULE_ACCESS_PATHS:
            return None
        roles = sorted(readers, key=_HINT_ORDER.index)
        needed = f"that needs the role {' or '.join(roles[:2])}" if roles else "no role may"
        return AccessRefused(f"{identity.uri} may not read {path}: {needed}; {_has(self.table.of(identity))}")

    def authorize(self, identity: Identity, call: str, facts: Facts) -> AccessAnswer:
        """Whether it may be made about each of these."""
        roles: set[AccessRole] = set()
        bindings: dict[str, RoleBinding] = {}
        everywhere: set[str] = set()
        for one in facts if RULE_ACCESS_EACH_OF_MANY else facts[:1]:
            if one.kind in everywhere:
                continue
            found = self._judge(identity, call, one)
            if isinstance(found, AccessRefused):
                return found
            roles |= found.roles
            bindings |= {binding.id: binding for binding in found.bindings}
            cells = cells_of(call, one.kind)
            if any(cells.get(role) is AccessScope.ALL for role in found.roles):
                everywhere.add(one.kind)
        return AccessAllowed(frozenset(roles), tuple(bindings.values()))

    def _roles(self, identity: Identity) -> set[AccessRole]:
        roles = {binding.role for binding in self._bindings(identity)} | {AccessRole.ANY}
        kind_role = _KIND_ROLES.get(identity.kind)
        return roles if kind_role is None else roles | {kind_role}

    def _bindings(self, identity: Identity) -> tuple[RoleBinding, ...]:
        if RULE_ACCESS_SUBJECTS_ARE_EXACT:
            return self.table.of(identity)
        return tuple(one for one in self.table.all() if identity.uri.startswith(one.subject.uri))

    def _judge(self, identity: Identity, call: str, facts: RequestFacts) -> AccessAnswer:
        cells = cells_of(call, facts.kind)
        bindings = self._bindings(identity)
        roles: set[AccessRole] = set()
        lets: list[RoleBinding] = []
        for role in (AccessRole.ANY, _KIND_ROLES.get(identity.kind)):
            scope = cells.get(role) if role is not None else None
            if role is not None and scope is not None and _holds_of_kind(identity, scope, facts, bindings):
                roles.add(role)
        for binding in bindings:
            scope = cells.get(binding.role) if RULE_ACCESS_ROLES else cells.get(binding.role, AccessScope.OWN)
            # What an agent may for many nodes is judged with its kind, above.
            if scope is not None and binding.role is not AccessRole.NODE and _holds(identity, binding, scope, facts):
                roles.add(binding.role)
                lets.append(binding)
        if roles:
            return AccessAllowed(frozenset(roles), tuple(lets))
        return _refusal(bindings, identity, call, facts)


def _holds(identity: Identity, binding: RoleBinding, scope: AccessScope, facts: RequestFacts) -> bool:
    match scope:
        case AccessScope.ALL:
            return True
        case AccessScope.STAR:
            return binding.is_everywhere
        case AccessScope.OWN:
            return _is_own(binding, facts)
        case AccessScope.SELF:
            return facts.name == identity.uri
        case AccessScope.NODE:
            return False


def _is_own(binding: RoleBinding, facts: RequestFacts) -> bool:
    namespace = facts.name if facts.kind == NAMESPACE.name else facts.namespace
    if not namespace:
        return binding.is_everywhere or not RULE_ACCESS_ALL_NAMESPACES
    return binding.covers(namespace) or not RULE_ACCESS_NAMESPACES


def _holds_of_kind(identity: Identity, scope: AccessScope, facts: RequestFacts, bindings: Iterable[RoleBinding]) -> bool:
    """For roles that an identity has by what it is."""
    match scope:
        case AccessScope.ALL:
            return True
        case AccessScope.SELF:
            return facts.name == identity.uri
        case AccessScope.NODE:
            if facts.kind != NODE.name:
                # A pod's node is not in the request: the selector is judged, or the answer (node_rules.py), by the one node.
                return identity.kind is IdentityKind.NODE
            return not RULE_ACCESS_OWN_NODE or is_own_node(identity, facts.name, bindings)
        case AccessScope.OWN | AccessScope.STAR:
            return False


def is_own_node(identity: Identity, node: str, bindings: Iterable[RoleBinding]) -> bool:
    """Whether an agent with this identity answers for the node."""
    if identity.kind is IdentityKind.NODE:
        return node == identity.name
    if identity.kind is IdentityKind.NODES:
        return bool(node) and any(binding.has_node(node) for binding in bindings if binding.role is AccessRole.NODE)
    return False


# --------------------------------------------------------------------------------------------------------------- refusals


def _refusal(bindings: Sequence[RoleBinding], identity: Identity, call: str, facts: RequestFacts | None) -> AccessRefused:
    about = f" of {facts}" if facts is not None else ""
    return AccessRefused(f"{identity.uri} may not {call}{about}: {_needed(call, facts)}; {_has(bindings)}")


def _has(bindings: Sequence[RoleBinding]) -> str:
    """Last in a message, as a long one is cut at its end."""
    return f"it has {', and '.join(str(binding) for binding in bindings)}" if bindings else "it has no role binding"


def _needed(call: str, facts: RequestFacts | None) -> str:
    """The binding that would be needed: the least role first."""
    ways: list[str] = []
    for role in _HINT_ORDER:
        if facts is None:
            possible = role in roles_for(call)
            where = " in a namespace" if possible and role in (AccessRole.VIEWER, AccessRole.SUBMITTER) else ""
        else:
            scope = cells_of(call, facts.kind).get(role)
            possible = scope is not None
            where = _where(role, scope, facts) if scope is not None else ""
        if possible:
            ways.append(f"{role.value}{where}")
    if not ways:
        return "no role may"
    return f"that needs the role {' or '.join(ways[:2])}"


def _where(role: AccessRole, scope: AccessScope, facts: RequestFacts) -> str:
    if role not in (AccessRole.VIEWER, AccessRole.SUBMITTER):
        return ""
    namespace = facts.name if facts.kind == NAMESPACE.name else facts.namespace
    match scope:
        case AccessScope.OWN:
            return f" in namespace {namespace}" if namespace else f" in all namespaces ({ALL_NAMESPACES})"
        case AccessScope.STAR:
            return f" in all namespaces ({ALL_NAMESPACES})"
        case AccessScope.ALL:
            return " in a namespace"
        case AccessScope.SELF | AccessScope.NODE:
            return ""
