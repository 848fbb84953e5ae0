"""The one place where the server asks whether a call may be made: who calls, before anything is read; what about, once it is.
The edge (edge/edge.py) asks the first two questions, and rpc.py the others.

```
  context ──▶ who is it? ──▶ may it make the call? ──▶ request read ──▶ about these things? ──▶ method ──▶ answer
              identify       authorize                                  judge                              judge_answer
              identity_of    node_rules, Authorizer                     node_rules, Authorizer             node_rules, answers
```

A replica that passes a call on says for whom (`rayched-for`); that is believed from identities of the kind replica alone, and
whom it names is judged anew. Nobody else's word on how often a question was passed on counts.

A stream goes on only while its caller may have it: when a binding changes, all streams that are open are judged again, and those
that may not be there any more end as PERMISSION_DENIED.

Owner: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rayched.access.answers import take_out
from rayched.access.authorizing import AccessAllowed, AccessRefused, Authorizer
from rayched.access.binding_table import BindingTable
from rayched.access.bindings import RoleBinding
from rayched.access.identity import Identity, IdentityError, IdentityKind
from rayched.access.policy import AccessRole
from rayched.access.requests import Facts, RequestFacts, facts_of
from rayched.api.identity import IDENTITY_METADATA, node_identity, node_of
from rayched.server.admission import node_rules
from rayched.server.edge.caller import INSECURE_DOMAIN, Caller, address_of
from rayched.server.errors import ApiFailure, Code, unauthenticated, unavailable

FOR_METADATA: Final = "rayched-for"
"""For whom a replica passes a call on: the URI of an identity."""
_CLAIM_MAX: Final = 256
"""Characters that are kept of what is not believed."""
INSECURE_ADMIN: Final = Identity(INSECURE_DOMAIN, IdentityKind.USER, "admin")
"""Whoever can reach a server that proves no identities."""
INSECURE_BINDINGS: Final = (RoleBinding(INSECURE_ADMIN, AccessRole.ADMIN),)

_BOUND: Final = (IdentityKind.USER, IdentityKind.WEB, IdentityKind.NODES)
"""Kinds whose rights come from bindings."""

RULE_ACCESS_ONLY_REPLICAS_ASK_FOR_OTHERS: bool = True
RULE_ACCESS_BEFORE_READING: bool = True
RULE_ACCESS_REQUESTS: bool = True
RULE_ACCESS_STREAMS_END: bool = True
"""Broken by tests alone, as the others are."""

IdentityOf = Callable[[Any], Identity]
"""The identity of a call, from gRPC's context. Raises ApiFailure, UNAUTHENTICATED."""


def loopback_identity(context: Any) -> Identity:
    """Where nothing proves who calls: an administrator, or the node that a call says it is from, which takes rights away."""
    said = _metadata(context, IDENTITY_METADATA)
    node = node_of(said)
    if node is None:
        return INSECURE_ADMIN
    try:
        return Identity(INSECURE_DOMAIN, IdentityKind.NODE, node)
    except IdentityError as error:
        raise unauthenticated(f"{IDENTITY_METADATA}: {error}") from None


class CallGuard:
    """Judges calls; one of a server."""

    def __init__(self, authorizer: Authorizer, identity_of: IdentityOf = loopback_identity) -> None:
        self.authorizer: Final = authorizer
        self._identity_of = identity_of
        self._open: dict[Caller, tuple[str, asyncio.Task[Any]]] = {}

    def identify(self, context: Any) -> Caller:
        """Who makes a call, from gRPC's context. Raises UNAUTHENTICATED."""
        identity, peer = self._identity_of(context), str(context.peer())
        asked_for = _metadata(context, FOR_METADATA)
        believed = identity.kind is IdentityKind.REPLICA or not RULE_ACCESS_ONLY_REPLICAS_ASK_FOR_OTHERS
        if not asked_for or not believed:
            claimed = asked_for[:_CLAIM_MAX]
            return Caller(identity, peer, address_of(peer), claimed=claimed, granted=self.authorizer.table.limits_of(identity))
        try:
            asker = Identity.parse(asked_for)
        except IdentityError as error:
            raise unauthenticated(f"{FOR_METADATA}: {error}") from None
        limits = self.authorizer.table.limits_of(asker)
        return Caller(asker, peer, address_of(peer), is_passed_on=True, passed_on_by=identity.uri, granted=limits)

    def authorize(self, caller: Caller, call: str) -> None:
        """Before anything of the request is read. Raises PERMISSION_DENIED."""
        if not RULE_ACCESS_BEFORE_READING:
            return
        if caller.is_agent:
            # First, as its words are made for agents.
            node_rules.refuse_call(node_identity(caller.identity.name), call)
        refusal = self.authorizer.begin(caller.identity, call)
        if refusal is not None:
            raise self._denied(caller, refusal)

    def judge(self, caller: Caller, call: str, request: Any) -> None:
        """Raises PERMISSION_DENIED, and what a request raises that cannot be read."""
        if "hops" in request.DESCRIPTOR.fields_by_name:
            request.hops = max(request.hops, 0) if caller.is_passed_on or caller.proves_nothing else 0
        if call == "Access.CanI":
            request.subject = request.subject or caller.identity.uri
        if not RULE_ACCESS_REQUESTS:
            return
        is_one_nodes = bool(caller.node_text)
        if is_one_nodes:
            node_rules.refuse_request(caller.node_text, call, request)
        self.judge_facts(caller, call, facts_of(call, request))
        if caller.node_text and not is_one_nodes:
            # Of many nodes, one of which the request has named.
            node_rules.refuse_request(caller.node_text, call, request)

    def judge_facts(self, caller: Caller, call: str, facts: Facts) -> None:
        """Raises PERMISSION_DENIED."""
        answer = self.authorizer.authorize(caller.identity, call, facts)
        caller.facts = facts
        if isinstance(answer, AccessRefused):
            raise self._denied(caller, answer)
        caller.allowed = answer
        caller.was_allowed(answer)

    def judge_one(self, caller: Caller, call: str, facts: RequestFacts) -> AccessAllowed:
        """Of one of the many things that a request is about. Raises PERMISSION_DENIED."""
        answer = self.authorizer.authorize(caller.identity, call, (facts,))
        if isinstance(answer, AccessRefused):
            raise self._denied(caller, answer)
        caller.was_allowed(answer)
        return answer

    def is_admin(self, caller: Caller) -> bool:
        """Nothing is kept from them, and their objects may say everything."""
        admin = next((one for one in self.authorizer.table.of(caller.identity) if one.role is AccessRole.ADMIN), None)
        if admin is not None:
            caller.was_allowed(AccessAllowed(frozenset((AccessRole.ADMIN,)), (admin,)))
        return admin is not None

    def judge_answer(self, caller: Caller, call: str, response: Any) -> None:
        """Before an answer is sent: raises PERMISSION_DENIED, and takes out what the caller is not to see."""
        if caller.node_text:
            node_rules.refuse_response(caller.node_text, call, response)
        if caller.allowed is not None:
            take_out(call, response, caller.allowed.roles)

    @contextmanager
    def going_on(self, caller: Caller, call: str) -> Iterator[None]:
        """While inside, a stream: it ends when its caller may not have it any more."""
        task = asyncio.current_task()
        assert task is not None
        self._open[caller] = call, task
        try:
            yield
        except asyncio.CancelledError:
            if caller.ended is None:
                raise
            task.uncancel()
            raise caller.ended from None
        finally:
            del self._open[caller]

    def judge_open_streams(self) -> None:
        """After a change of the bindings."""
        if not RULE_ACCESS_STREAMS_END:
            return
        for caller, (call, task) in tuple(self._open.items()):
            if caller.allowed is None or caller.ended is not None:
                continue
            answer = self.authorizer.authorize(caller.identity, call, caller.facts)
            if isinstance(answer, AccessRefused):
                caller.ended = self._denied(caller, answer)
                task.cancel()

    def _denied(self, caller: Caller, refusal: AccessRefused) -> ApiFailure:
        if not self.authorizer.table.is_known and caller.identity.kind in _BOUND:
            return unavailable("this replica has not read the role bindings from etcd yet; try again")
        return ApiFailure(Code.PERMISSION_DENIED, refusal.message)


def insecure_guard() -> CallGuard:
    """Of a server that proves no identities and has no bindings but the built-in one."""
    table = BindingTable(INSECURE_BINDINGS)
    table.listed({})
    return CallGuard(Authorizer(table))


def _metadata(context: Any, wanted: str) -> str:
    return next((str(text) for key, text in context.invocation_metadata() or () if key == wanted), "")
