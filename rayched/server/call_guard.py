"""The one place where the server asks whether a call may be made: who calls, before anything is read; what about, once it is.
The edge (edge/edge.py) asks the first two questions, and rpc.py the others.

```
  context ──▶ who is it? ──▶ may it make the call? ──▶ request read ──▶ about these things? ──▶ method ──▶ answer
              identify       authorize                                  judge                              judge_answer
              identity_of    node_rules, Authorizer                     node_rules, Authorizer             node_rules, answers
```

A replica that passes a call on says for whom (`rayched-for`), and so does a gateway (of the kind web) that asks for one of its
users; that is believed from these alone, and whom they name is judged anew. A gateway speaks for users of its own cluster only:
it is no way to the rights of agents and replicas, nor to rights that outlive it, so it changes nothing of who may what. It says
which certificate its user has shown (`rayched-for-serial`), or hands on the token (`rayched-for-token`), which is looked up here:
so nobody has to believe a gateway whose a token is. Only a replica's word on how often a question was passed on counts.

Whoever is asked for has shown nothing here, so it is no wrong credential of the asking address when they are refused: that is
found by `authorize`, and not by `identify`.

Who shows a bearer token is the identity that it stands for, on a connection with TLS and without a certificate, and nowhere
else. A token for somebody else was made by an administrator, and counts while that is one. A join token stands for a node, and is
good for a certificate of it alone. A certificate that was made with a token counts while the token does.

A stream goes on only while its caller may have it: when a binding changes, all streams that are open are judged again, and those
that may not be there any more end as PERMISSION_DENIED. So do those of a token that counts no more, as UNAUTHENTICATED.

Owner: the event loop.
"""

from __future__ import annotations

import asyncio
import time
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
from rayched.access.revocations import RevocationTable
from rayched.access.tokens import BearerToken, TokenTable
from rayched.api.identity import FOR_BEARER_METADATA, FOR_METADATA, FOR_SERIAL_METADATA, IDENTITY_METADATA, node_identity, node_of
from rayched.server.admission import node_rules
from rayched.server.admission.write_gate import CALLS
from rayched.server.edge.caller import INSECURE_DOMAIN, Caller, address_of
from rayched.server.errors import ApiFailure, Code, denied, unauthenticated, unavailable
from rayched.server.peers import LOOK_SECONDS

TOKEN_METADATA: Final = "authorization"
NO_SUCH_TOKEN: Final = "want a bearer token of this cluster that is not expired or revoked; `rayched token create` makes one"
_TOKEN_AT_THE_WRONG_PLACE: Final = "a token is taken at the address of a replica's --token-listen alone"
_NO_NEW_TOKENS: Final = "this replica does not follow etcd now, so it knows no new tokens; try again"
_NOT_READ: Final = "this replica has not read the role bindings from etcd yet; try again"
_CLAIM_MAX: Final = 256
"""Characters that are kept of what is not believed."""
INSECURE_ADMIN: Final = Identity(INSECURE_DOMAIN, IdentityKind.USER, "admin")
"""Whoever can reach a server that proves no identities."""
INSECURE_BINDINGS: Final = (RoleBinding(INSECURE_ADMIN, AccessRole.ADMIN),)

_ANSWERED_BEFORE: Final = frozenset({"Leadership", "Scheduling", "Health", "ServerReflection"})
_TO_BE_KNOWN_FOR: Final = frozenset({"Scheduling.Bind"})
"""Of the services above, calls that change something."""
_ACCESS_WRITES: Final = frozenset(call for call in CALLS if call.startswith("Access."))
_ABOUT_ONESELF: Final = frozenset({"Access.CanI", "Access.IssueToken", "Access.RevokeToken", "Access.SignCertificate"})
"""Calls about the caller where their requests name nobody."""
_JOINS: Final = "Access.SignCertificate"
"""Which a gateway calls for itself as well, to renew its own."""
_OUTLIVES_TOKENS: Final = "Access.IssueToken"
_BOUND: Final = (IdentityKind.USER, IdentityKind.WEB, IdentityKind.NODES)
"""Kinds whose rights come from bindings."""
_ASK_FOR_OTHERS: Final = (IdentityKind.REPLICA, IdentityKind.WEB)

RULE_ACCESS_ONLY_REPLICAS_ASK_FOR_OTHERS: bool = True
RULE_ACCESS_GATEWAYS_ASK_FOR_USERS: bool = True
RULE_ACCESS_BEFORE_READING: bool = True
RULE_ACCESS_REQUESTS: bool = True
RULE_ACCESS_STREAMS_END: bool = True
RULE_ACCESS_TOKENS_END_WITH_THEIR_MAKERS_ROLE: bool = True
RULE_ACCESS_CERTIFICATES_END_WITH_TOKENS: bool = True
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

    def __init__(
        self,
        authorizer: Authorizer,
        identity_of: IdentityOf = loopback_identity,
        *,
        serial_of: Callable[[Any], str] | None = None,
        token_id_of: Callable[[Any], str] | None = None,
        takes_tokens: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`serial_of`: that of the certificate which a call's context has, "" for none; None: nobody has any. `token_id_of`:
        of the bearer token that this one was made with, "" for none. `takes_tokens`: of who is on a connection with TLS and
        without a certificate; `clock`: seconds since 1970."""
        self.authorizer: Final = authorizer
        self.tokens: Final = TokenTable()
        self.revoked: Final = RevocationTable()
        self._proves = serial_of is not None
        self._serial_of = serial_of or _none
        self._token_id_of = token_id_of or _none
        self._takes_tokens = takes_tokens
        self._clock = clock
        self._identity_of = identity_of
        self._open: dict[Caller, tuple[str, asyncio.Task[Any]]] = {}

    def identify(self, context: Any) -> Caller:
        """Who makes a call, from gRPC's context. Raises UNAUTHENTICATED."""
        peer = str(context.peer())
        shown = _metadata(context, TOKEN_METADATA)
        if self._takes_tokens and _is_without_certificate(context):
            return self._let_in(self._shown_by(shown, peer), None)
        identity = self._identity_of(context)
        if shown:
            raise unauthenticated(_TOKEN_AT_THE_WRONG_PLACE)
        if identity.kind is IdentityKind.WEB and (text := _metadata(context, FOR_BEARER_METADATA)):
            return self._let_in(self._shown_at_gateway(text, identity, peer), context)
        asked_for = _metadata(context, FOR_METADATA)
        believed = identity.kind in _ASK_FOR_OTHERS or not RULE_ACCESS_ONLY_REPLICAS_ASK_FOR_OTHERS
        if not asked_for or not believed:
            caller = Caller(identity, peer, address_of(peer), claimed=asked_for[:_CLAIM_MAX])
            return self._let_in(caller, context)
        try:
            asker = Identity.parse(asked_for)
        except IdentityError as error:
            raise unauthenticated(f"{FOR_METADATA}: {error}") from None
        is_user = (asker.trust_domain, asker.kind) == (identity.trust_domain, IdentityKind.USER)
        if identity.kind is IdentityKind.WEB and not is_user and RULE_ACCESS_GATEWAYS_ASK_FOR_USERS:
            raise ApiFailure(Code.PERMISSION_DENIED, f"{identity} may ask for users of its cluster alone, and {asker} is none")
        is_passed_on = identity.kind is not IdentityKind.WEB
        caller = Caller(asker, peer, address_of(peer), is_passed_on=is_passed_on, passed_on_by=identity.uri)
        if not is_passed_on:
            caller.asker_serial, _, caller.made_with = _metadata(context, FOR_SERIAL_METADATA).partition(" ")
        return self._let_in(caller, context)

    def _let_in(self, caller: Caller, context: Any) -> Caller:
        """Once it is known who calls. Raises UNAUTHENTICATED where they are refused whatever they ask for."""
        caller.granted = self.authorizer.table.limits_of(caller.identity)
        caller.serial = self._serial_of(context)
        if not caller.passed_on_by:
            caller.made_with = self._token_id_of(context)
            self.check(caller)
        return caller

    def _shown_by(self, shown: str, peer: str) -> Caller:
        """Who shows a token. The answer is the same for all that do not count."""
        scheme, _, text = shown.partition(" ")
        found = self.tokens.find(text, self._clock()) if scheme.lower() == "bearer" else None
        if found is None:
            if scheme.lower() == "bearer" and not self.tokens.is_current:
                raise unavailable(_NO_NEW_TOKENS)
            raise unauthenticated(NO_SUCH_TOKEN)
        return Caller(found.subject, peer, address_of(peer), found)

    def _shown_at_gateway(self, text: str, gateway: Identity, peer: str) -> Caller:
        """Who has shown a token to a gateway; that shows nothing wrong itself, so `authorize` tells if it does not count."""
        try:
            found = self._shown_by(f"bearer {text}", peer)
        except ApiFailure as failure:
            return Caller(gateway, peer, address_of(peer), passed_on_by=gateway.uri, refused=failure)
        found.passed_on_by = gateway.uri
        if found.identity.kind is not IdentityKind.USER:
            text = f"{gateway} may ask for users of its cluster alone, and {found.identity} is none"
            found.refused = ApiFailure(Code.PERMISSION_DENIED, text)
        return found

    def check(self, caller: Caller) -> None:
        """Whether a caller may go on, as far as what they show says. Raises UNAUTHENTICATED, PERMISSION_DENIED."""
        if caller.serial in self.revoked:
            # With the serial number, so that a client which has a newer one by now goes on.
            whose = caller.passed_on_by or caller.identity
            raise unauthenticated(f"certificate {caller.serial} of {whose} is revoked", caller.serial)
        if caller.asker_serial in self.revoked:
            # Without it: that of the gateway, which is the client here, still counts.
            raise unauthenticated(f"certificate {caller.asker_serial} of {caller.identity} is revoked")
        token = self._behind(caller) if caller.made_with and RULE_ACCESS_CERTIFICATES_END_WITH_TOKENS else caller.token
        for uri in (caller.identity.uri, caller.passed_on_by, "" if token is None else token.maker.uri):
            if uri in self.revoked:
                raise unauthenticated(f"{uri} is refused by an administrator; `rayched access denied` shows why")
        if token is None:
            return
        if token.maker_serial in self.revoked:
            # Whoever has stolen a key shall not go on with what was made with it.
            raise unauthenticated(f"token {token.id} was made with certificate {token.maker_serial}, which is revoked")
        if not self.tokens.counts(token, self._clock()):
            raise unauthenticated(NO_SUCH_TOKEN)
        if token.maker == token.subject or self._is_admin(token.maker):
            return
        if not self.authorizer.table.is_known:
            raise unavailable(_NOT_READ)
        if RULE_ACCESS_TOKENS_END_WITH_THEIR_MAKERS_ROLE:
            text = f"token {token.id} for {token.subject} was made by {token.maker}, who has no longer the role admin"
            raise ApiFailure(Code.PERMISSION_DENIED, text)

    def _behind(self, caller: Caller) -> BearerToken:
        """The token that the caller's certificate was made with, and counts while. Raises UNAUTHENTICATED, UNAVAILABLE."""
        found = self.tokens.with_id(caller.made_with)
        if found is not None and found.subject == caller.identity:
            return found
        if not self.tokens.is_current:
            raise unavailable(_NO_NEW_TOKENS)
        text = f"certificate {caller.serial} of {caller.identity} was made with a token that counts no more: `rayched login`"
        # That of a gateway, which is the client then, still counts.
        raise unauthenticated(text, "" if caller.passed_on_by else caller.serial)

    def authorize(self, caller: Caller, call: str) -> None:
        """Before anything of the request is read. Raises PERMISSION_DENIED, UNAUTHENTICATED."""
        if caller.refused is not None:
            raise caller.refused
        if caller.passed_on_by:
            self.check(caller)
        if caller.by_gateway and call in _ACCESS_WRITES and (caller.passed_on_by or call != _JOINS):
            raise denied(caller.identity.uri, call, "through a gateway nothing is changed of who may what; ask a replica itself")
        _refuse_of_token(caller, call)
        if not RULE_ACCESS_BEFORE_READING:
            return
        if caller.is_agent:
            # First, as its words are made for agents.
            node_rules.refuse_call(node_identity(caller.identity.name), call)
        refusal = self.authorizer.begin(caller.identity, call)
        if refusal is not None:
            raise self._denied(caller, refusal)
        if not caller.is_agent:
            # Of an agent it is to be told first that its request is about another node.
            self._refuse_what_is_not_known(call)

    def authorize_path(self, caller: Caller, path: str) -> None:
        """Of what is read over HTTP. Raises PERMISSION_DENIED, UNAVAILABLE."""
        self._refuse_what_is_not_known(path)
        refusal = self.authorizer.begin_reading(caller.identity, path)
        if refusal is not None:
            raise self._denied(caller, refusal)

    def judge(self, caller: Caller, call: str, request: Any) -> None:
        """Raises PERMISSION_DENIED, and what a request raises that cannot be read."""
        if "hops" in request.DESCRIPTOR.fields_by_name:
            request.hops = max(request.hops, 0) if caller.is_passed_on or caller.proves_nothing else 0
        if call in _ABOUT_ONESELF:
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
        self._refuse_what_is_not_known(call)

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
        admin = self._is_admin(caller.identity)
        if admin is not None:
            caller.was_allowed(AccessAllowed(frozenset((AccessRole.ADMIN,)), (admin,)))
        return admin is not None

    def _is_admin(self, identity: Identity) -> RoleBinding | None:
        """The binding that says so."""
        return next((one for one in self.authorizer.table.of(identity) if one.role is AccessRole.ADMIN), None)

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
        # It may have waited until here, where no change of who may what has found it.
        self.check(caller)
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

    def _refuse_what_is_not_known(self, call: str) -> None:
        """Who proves who they are may be refused, and before that was read nobody knows; questions about the lead and health
        are answered all the same. Raises UNAVAILABLE."""
        is_answered = call.partition(".")[0] in _ANSWERED_BEFORE and call not in _TO_BE_KNOWN_FOR
        if self._proves and not self.revoked.is_known and not is_answered:
            raise unavailable("this replica has not read from etcd yet who is refused; try again")

    async def watch(self) -> None:
        """Until cancelled: streams of tokens end when these expire."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if any(caller.is_by_token for caller in self._open):
                self.judge_open_streams(of_tokens_alone=True)

    def judge_open_streams(self, *, of_tokens_alone: bool = False) -> None:
        """After a change of the bindings, of who is refused, or of tokens, which ends those of tokens alone."""
        if not RULE_ACCESS_STREAMS_END:
            return
        for caller, (call, task) in tuple(self._open.items()):
            if of_tokens_alone and not caller.is_by_token:
                continue
            if caller.ended is None and (failure := self._end_of(caller, call)) is not None:
                caller.ended = failure
                task.cancel()

    def _end_of(self, caller: Caller, call: str) -> ApiFailure | None:
        """Why a stream may not go on."""
        try:
            self.check(caller)
        except ApiFailure as failure:
            return failure
        if caller.allowed is None:
            return None
        answer = self.authorizer.authorize(caller.identity, call, caller.facts)
        return self._denied(caller, answer) if isinstance(answer, AccessRefused) else None

    def _denied(self, caller: Caller, refusal: AccessRefused) -> ApiFailure:
        if not self.authorizer.table.is_known and caller.identity.kind in _BOUND:
            return unavailable(_NOT_READ)
        return ApiFailure(Code.PERMISSION_DENIED, refusal.message)


def _refuse_of_token(caller: Caller, call: str) -> None:
    """What no token lets, whomever it stands for, nor a certificate that was made with one. Raises PERMISSION_DENIED."""
    uri = caller.identity.uri
    if caller.token is not None and caller.token.is_join:
        if call != _JOINS:
            raise denied(uri, call, "a join token is good for a certificate alone; then show that at --listen's address")
    elif caller.is_by_token and call == _OUTLIVES_TOKENS:
        raise denied(uri, call, "a token makes no other one, which would outlive it; a certificate of `rayched pki` may")


def _none(_: Any) -> str:
    return ""


def _is_without_certificate(context: Any) -> bool:
    """Of a connection: it has TLS, and its caller has shown none, as is asked of callers at one address alone."""
    found = context.auth_context()
    return bool(found.get("transport_security_type")) and not found.get("x509_pem_cert")


def insecure_guard() -> CallGuard:
    """Of a server that proves no identities and has no bindings but the built-in one."""
    table = BindingTable(INSECURE_BINDINGS)
    table.listed({})
    return CallGuard(Authorizer(table))


def _metadata(context: Any, wanted: str) -> str:
    return next((str(text) for key, text in context.invocation_metadata() or () if key == wanted), "")
