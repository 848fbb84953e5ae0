"""The service rayched.v1.Access: who one is, what one may, the role bindings, tokens (token_calls.py), and
certificates (signing_calls.py). Any replica serves it.

A binding is written at `<root>/access/bindings/<id>`, and in force at a replica once its watch has delivered it. The last binding
to the role admin stays: a removal is conditional on another one being as it was seen, so that of two administrators who take each
other's role away at the same time, whichever two replicas they ask, one is refused.
"""

from __future__ import annotations

from typing import Final

from rayched.access.authorizing import AccessRefused, Authorizer
from rayched.access.binding_table import binding_at
from rayched.access.bindings import BindingErrors, RoleBinding, read_binding
from rayched.access.identity import Identity, IdentityError
from rayched.access.policy import NO_KIND, POLICY, AccessRole
from rayched.access.requests import RequestFacts
from rayched.access.revocations import RevocationTable
from rayched.access.tokens import TokenTable
from rayched.api import kinds
from rayched.api.errors import FieldError, quoted
from rayched.pki.online_signer import OnlineSigner
from rayched.server.errors import conflict, forbidden_by_state, invalid, invalid_fields, not_found, over_limit
from rayched.server.objects import ATTEMPTS_MAX, Objects
from rayched.server.rpc import Call
from rayched.server.services.revocation_calls import RevocationCalls
from rayched.server.services.signing_calls import SigningCalls
from rayched.server.services.token_calls import TokenCalls
from rayched.store.entries import Entry
from rayched.store.transactions import Committed, GuardedDelete, GuardedPut
from rayched.v1 import access_pb2
from rayched.v1.access_pb2 import (
    CanIRequest,
    CanIResponse,
    GrantRequest,
    GrantResponse,
    ListGrantsRequest,
    ListGrantsResponse,
    RevokeGrantRequest,
    RevokeGrantResponse,
    WhoAmIRequest,
    WhoAmIResponse,
)

BINDINGS_MAX: Final = 10_000
_SUBJECT: Final = "RoleBinding"

RULE_ACCESS_LAST_ADMIN: bool = True
"""Broken by tests alone."""


class AccessService(TokenCalls, RevocationCalls, SigningCalls):
    """Owned by the event loop."""

    def __init__(
        self,
        objects: Objects,
        authorizer: Authorizer,
        tokens: TokenTable,
        revoked: RevocationTable,
        signer: OnlineSigner | None = None,
    ) -> None:
        """`signer` None: this replica does not sign."""
        TokenCalls.__init__(self, objects, tokens)
        SigningCalls.__init__(self, objects, tokens, signer)
        RevocationCalls.__init__(self, objects, revoked, authorizer.table)
        self._authorizer = authorizer

    async def who_am_i(self, _request: WhoAmIRequest, call: Call) -> WhoAmIResponse:
        identity = call.caller.identity
        found = self._authorizer.table.of(identity)
        return WhoAmIResponse(identity=identity.uri, bindings=[binding.to_message() for binding in found])

    async def can_i(self, request: CanIRequest, _: Call) -> CanIResponse:
        try:
            subject = Identity.parse(request.subject)
        except IdentityError as error:
            raise invalid(f"subject: {error}") from None
        if request.call not in POLICY:
            raise invalid(f"call: there is no call {quoted(request.call)}; one is Submission.Get")
        facts = _asked_about(request)
        answer = self._authorizer.begin(subject, request.call) or self._authorizer.authorize(subject, request.call, (facts,))
        if isinstance(answer, AccessRefused):
            return CanIResponse(reason=answer.message)
        return CanIResponse(allowed=True)

    async def grant(self, request: GrantRequest, _: Call) -> GrantResponse:
        binding = _read(request.binding)
        key, value = self._objects.keys.binding(binding.id), binding.to_message().SerializeToString(deterministic=True)
        entry = await self._objects.store.get(key)
        for _attempt in range(ATTEMPTS_MAX):
            if entry is not None and entry.value == value:
                return GrantResponse(binding=binding.to_message(), revision=entry.mod_revision)
            if entry is None and len(self._authorizer.table.all()) >= BINDINGS_MAX:
                raise over_limit(f"there are {BINDINGS_MAX} role bindings, which is the most there may be; revoke some")
            write = GuardedPut(key, 0 if entry is None else entry.mod_revision, value)
            outcome = await self._objects.send(write, f"{_SUBJECT} {binding.id}")
            if isinstance(outcome, Committed):
                return GrantResponse(binding=binding.to_message(), revision=outcome.revision, changed=True)
            entry = outcome.current
        raise conflict(f"{_SUBJECT} {binding.id}: others keep changing it; try again")

    async def revoke_grant(self, request: RevokeGrantRequest, _: Call) -> RevokeGrantResponse:
        if not request.id:
            raise invalid("id: is missing; want that of a role binding, as `rayched access list` shows it")
        key = self._objects.keys.binding(request.id)
        for _attempt in range(ATTEMPTS_MAX):
            entry = await self._objects.store.get(key)
            if entry is None:
                raise not_found(f"{_SUBJECT} {request.id}")
            binding = _binding_of(entry)
            also = await self._another_admin(entry, request.id) if _is_admin(binding) else ()
            outcome = await self._objects.send(GuardedDelete(key, entry.mod_revision, also), f"{_SUBJECT} {request.id}")
            if isinstance(outcome, Committed):
                gone = access_pb2.RoleBinding(id=request.id) if binding is None else binding.to_message()
                return RevokeGrantResponse(binding=gone, revision=outcome.revision)
        raise conflict(f"{_SUBJECT} {request.id}: others keep changing it; try again")

    async def list_grants(self, request: ListGrantsRequest, _: Call) -> ListGrantsResponse:
        page = await self._objects.store.list_all(self._objects.keys.bindings_prefix)
        found = [binding for binding in map(_binding_of, page.entries) if binding is not None]
        if request.subject:
            found = [binding for binding in found if binding.subject.uri == request.subject]
        found.sort(key=lambda binding: (binding.subject.uri, binding.role.value, binding.id))
        return ListGrantsResponse(bindings=[binding.to_message() for binding in found], revision=page.revision)

    async def _another_admin(self, entry: Entry, id: str) -> tuple[tuple[bytes, int], ...]:
        """Another binding to the role admin and its revision, as a condition. Raises FAILED_PRECONDITION where there is none."""
        if not RULE_ACCESS_LAST_ADMIN:
            return ()
        page = await self._objects.store.list_all(self._objects.keys.bindings_prefix)
        for other in page.entries:
            if other.key != entry.key and _is_admin(_binding_of(other)):
                return ((other.key, other.mod_revision),)
        text = f"{_SUBJECT} {id}: is the last one to the role admin, and stays; grant the role to somebody else first"
        raise forbidden_by_state(text)


def _read(message: access_pb2.RoleBinding) -> RoleBinding:
    try:
        return read_binding(message)
    except BindingErrors as error:
        raise invalid_fields(f"{_SUBJECT} of {message.subject[:80] or 'nobody'}", error.errors) from None


def _binding_of(entry: Entry) -> RoleBinding | None:
    """None for what gives nobody anything."""
    try:
        return binding_at(entry.key, entry.value)
    except BindingErrors:
        return None


def _is_admin(binding: RoleBinding | None) -> bool:
    return binding is not None and binding.role is AccessRole.ADMIN


def _asked_about(request: CanIRequest) -> RequestFacts:
    rows = POLICY[request.call]
    if not request.kind:
        if NO_KIND not in rows:
            raise invalid(f"kind: is missing; {request.call} is about one of {', '.join(rows)}")
        return RequestFacts(NO_KIND, "", request.name)
    kind = kinds.by_name(request.kind)
    if not kind.namespaced and request.namespace:
        errors = [FieldError("namespace", f"{kind.plural} belong to no namespace, found {quoted(request.namespace)}")]
        raise invalid_fields("CanIRequest", errors)
    return RequestFacts(kind.name, request.namespace, request.name)
