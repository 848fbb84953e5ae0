"""Certificates of the service Access: keys are certified for who may ask, and a join token is spent by it.

    token read ──▶ signed, and in the authority's list ──▶ one transaction ──▶ answer
                                                            token: deleted, if it is as it was read
                                                            <root>/access/signed/<id>: what was signed
                                                            nobody of these is refused: <root>/access/revoked/<id> is not there

A certificate leaves this process only after that transaction, so of two that sign with one token, on whichever replicas, one has
an answer; of one that dies in between nobody does, and the token is spent or good for one more. A write that was held up does not
pass where the token was revoked, its node or its maker refused, or a newer certificate signed meanwhile: what it compares is all
that it was decided by, and no lead is among that (docs/adr/0056).

A bearer token is not spent. The certificate that is signed by it lives LOGIN_SECONDS, no longer than the token, and has its id in
it: it counts while the token does (call_guard.py), and what it renews itself to has the same token behind it (docs/adr/0060).

A certificate that names hosts (of a replica, a gateway) is renewed by showing it, with the same ones: what the authority has said
once it says again. Nobody else gets one here.

Who renews waits RENEWED_AFTER_SECONDS between two, as each one that is signed stays in the authority's list.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from rayched.access.identity import Identity, IdentityError
from rayched.access.revocations import RevokedCaller
from rayched.access.tokens import BearerToken, TokenTable
from rayched.pki.errors import PkiError
from rayched.pki.online_signer import OnlineSigner, SignedOnline
from rayched.pki.signing_requests import requested_key
from rayched.server.call_guard import NO_SUCH_TOKEN
from rayched.server.edge.caller import Caller
from rayched.server.errors import conflict, denied, forbidden_by_state, invalid, over_limit, unauthenticated
from rayched.server.objects import Objects
from rayched.server.rpc import Call
from rayched.store.entries import Entry
from rayched.store.transactions import Committed, Conflict, GuardedDelete, GuardedPut, Write
from rayched.v1.access_pb2 import SignCertificateRequest, SignCertificateResponse, SignedCertificate

RENEWED_AFTER_SECONDS: Final = 60.0
LOGIN_SECONDS: Final = 12 * 3600.0
"""A working day, of who has shown a bearer token."""
_NO_SIGNER: Final = (
    "this replica does not sign, as it has not the authority's key (--signer); ask another one, or `rayched pki issue`"
)


class SigningCalls:
    """A part of AccessService. Owned by the event loop."""

    def __init__(
        self, objects: Objects, tokens: TokenTable, signer: OnlineSigner | None, clock: Callable[[], float] = time.time
    ) -> None:
        """`signer` None: this replica does not sign; `clock`: seconds since 1970."""
        self._objects, self._store, self._keys = objects, objects.store, objects.keys
        self._tokens = tokens
        self._signer = signer
        self._clock = clock

    async def sign_certificate(self, request: SignCertificateRequest, call: Call) -> SignCertificateResponse:
        if self._signer is None:
            raise forbidden_by_state(_NO_SIGNER)
        caller = call.caller
        hosts = _hosts_shown(call)
        subject = _checked(request, caller, hosts)
        token = self._tokens.with_id(caller.made_with) if caller.made_with else caller.token
        if token is None and caller.is_by_token:
            # It has gone since the caller was identified by it; without one nothing would bound what is signed.
            raise unauthenticated(NO_SUCH_TOKEN)
        shown = None if token is None else await self._unspent(token)
        spent = shown if token is not None and token.is_join else None
        key = self._keys.signed(_id_of(subject))
        last = await self._store.get(key)
        if spent is None and subject == caller.identity:
            self._refuse_too_soon(subject, last)
        try:
            sign = partial(self._signer.sign, subject, request.signing_request, *self._bounds(token), hosts)
            made = await asyncio.to_thread(sign)
        except PkiError as error:
            raise forbidden_by_state(f"{subject}: {error}") from None
        record = self._record(subject, made, caller, token)
        put = (key, record.SerializeToString(deterministic=True))
        also = ((key, 0 if last is None else last.mod_revision), *self._not_refused(subject, caller, token))
        if shown is not None and spent is None:
            also = (*also, (shown.key, shown.mod_revision))
        write: Write = GuardedPut(put[0], also[0][1], put[1], also[1:])
        if spent is not None:
            write = GuardedDelete(spent.key, spent.mod_revision, also, (put,))
        outcome = await self._objects.send(write, f"the certificate of {subject}")
        match outcome:
            case Committed(revision):
                return SignCertificateResponse(
                    certificate=made.certificate, authorities=made.authorities, signed=record, revision=revision
                )
            case Conflict(current=current) if spent is not None and (
                current is None or current.mod_revision != spent.mod_revision
            ):
                raise unauthenticated(NO_SUCH_TOKEN)
            case Conflict():
                raise conflict(f"{subject}: it was refused, or another certificate signed for it, meanwhile; ask again")

    async def _unspent(self, token: BearerToken) -> Entry:
        """As etcd has it now. Raises UNAUTHENTICATED where it has it no more."""
        entry = await self._store.get(self._keys.token(token.id))
        if entry is None or entry.value != token.stored():
            raise unauthenticated(NO_SUCH_TOKEN)
        return entry

    def _bounds(self, token: BearerToken | None) -> tuple[float | None, str]:
        """How long a certificate lives that is made with this token, and the id that is to stand in it; None: as any other."""
        if token is None or token.is_join:
            return None, ""
        return min(LOGIN_SECONDS, token.expires_at - self._clock()), token.id

    def _refuse_too_soon(self, subject: Identity, last: Entry | None) -> None:
        """Raises RESOURCE_EXHAUSTED."""
        if last is None:
            return
        since = self._clock() - SignedCertificate.FromString(last.value).at_ms / 1e3
        if 0 <= since < RENEWED_AFTER_SECONDS:
            text = f"{subject}: has a certificate of {since:.0f} s ago; one each {RENEWED_AFTER_SECONDS:.0f} s is signed"
            raise over_limit(text, RENEWED_AFTER_SECONDS - since)

    def _not_refused(self, subject: Identity, caller: Caller, token: BearerToken | None) -> tuple[tuple[bytes, int], ...]:
        """Conditions: nobody has refused any of those by whom this is decided."""
        shown = {subject.uri, caller.identity.uri, *(() if token is None else (token.maker.uri,))}
        serials = {caller.serial, "" if token is None else token.maker_serial} - {""}
        refused = [RevokedCaller(identity=one) for one in sorted(shown)] + [RevokedCaller(serial=one) for one in sorted(serials)]
        return tuple((self._keys.revocation_of(one.id), 0) for one in refused)

    def _record(self, subject: Identity, made: SignedOnline, caller: Caller, token: BearerToken | None) -> SignedCertificate:
        return SignedCertificate(
            subject=subject.uri,
            serial=made.serial,
            not_after_ms=int(made.not_after * 1e3),
            at_ms=int(self._clock() * 1e3),
            by=caller.identity.uri,
            by_serial=caller.serial,
            token_id="" if token is None else token.id,
        )


def _id_of(subject: Identity) -> str:
    """In keys, which hold no slash."""
    return hashlib.sha256(subject.uri.encode()).hexdigest()[:32]


def _hosts_shown(call: Call) -> tuple[str, ...]:
    """Of the caller's own certificate, which a new one of the same identity is to name again."""
    peer = call.shown
    return () if peer is None or peer.identity != call.caller.identity else peer.certificate.hosts


def _checked(request: SignCertificateRequest, caller: Caller, hosts: Sequence[str]) -> Identity:
    """Whose certificate it is to be. Raises INVALID_ARGUMENT, PERMISSION_DENIED, FAILED_PRECONDITION."""
    try:
        subject = Identity.parse(request.subject)
    except IdentityError as error:
        raise invalid(f"subject: {error}") from None
    if subject.trust_domain != caller.identity.trust_domain:
        text = f"{subject} is of another trust domain than {caller.identity.trust_domain}"
        raise denied(caller.identity.uri, "Access.SignCertificate", text)
    if caller.is_by_token and subject != caller.identity:
        text = "with a token a certificate of whom it stands for is signed, and of nobody else"
        raise denied(caller.identity.uri, "Access.SignCertificate", text)
    if why := OnlineSigner.refusal(subject, hosts if subject == caller.identity else ()):
        raise forbidden_by_state(f"{subject}: {why}")
    try:
        requested_key(request.signing_request, "signing_request")
    except PkiError as error:
        raise invalid(str(error)) from None
    return subject
