"""The deny list of the service Access: certificates and identities that all replicas refuse, at `<root>/access/revoked/<id>`.

It is in force at a replica once its watch has delivered it. The identity of the built-in administrator stays: without it nobody
could take anything back. A certificate of that one may go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rayched.access.binding_table import BindingTable
from rayched.access.revocations import RevocationError, RevocationTable, RevokedCaller, revoked_at
from rayched.api.errors import quoted
from rayched.server.errors import conflict, forbidden_by_state, invalid, not_found, over_limit
from rayched.server.objects import ATTEMPTS_MAX, Objects
from rayched.server.rpc import Call
from rayched.server.services.token_calls import NOTE_MAX
from rayched.store.entries import Entry
from rayched.store.transactions import Committed, Conflict, GuardedDelete, GuardedPut
from rayched.v1.access_pb2 import (
    ListRevocationsRequest,
    ListRevocationsResponse,
    ReadmitRequest,
    ReadmitResponse,
    Revocation,
    RevokeCertificateRequest,
    RevokeCertificateResponse,
)

REVOCATIONS_MAX: Final = 10_000


class RevocationCalls:
    """A part of AccessService. Owned by the event loop."""

    def __init__(
        self, objects: Objects, revoked: RevocationTable, bindings: BindingTable, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock`: seconds since 1970."""
        self._objects, self._store, self._keys = objects, objects.store, objects.keys
        self._revoked = revoked
        self._bindings = bindings
        self._clock = clock

    async def revoke_certificate(self, request: RevokeCertificateRequest, call: Call) -> RevokeCertificateResponse:
        found = _named(request)
        if len(request.note) > NOTE_MAX:
            raise invalid(f"note: {quoted(request.note)} has {len(request.note)} characters, at most {NOTE_MAX} are allowed")
        if found.identity and self._bindings.is_built_in(found.identity):
            text = (
                f"{found.identity}: is the administrator whom nobody can take away; refuse the serial numbers of its certificates"
            )
            raise forbidden_by_state(text)
        if self._revoked.count >= REVOCATIONS_MAX:
            raise over_limit(f"there are {REVOCATIONS_MAX} revocations, which is the most there may be; readmit some")
        made = Revocation(
            id=found.id,
            serial=found.serial,
            identity=found.identity,
            by=call.caller.identity.uri,
            note=request.note,
            at_ms=int(self._clock() * 1e3),
        )
        write = GuardedPut(self._keys.revocation_of(found.id), 0, made.SerializeToString(deterministic=True))
        outcome = await self._objects.send(write, f"Revocation of {found}")
        match outcome:
            case Committed(revision):
                return RevokeCertificateResponse(revocation=made, revision=revision, changed=True)
            case Conflict(current=Entry() as entry):
                return RevokeCertificateResponse(revocation=_read(entry), revision=entry.mod_revision)
            case Conflict():
                raise conflict(f"Revocation of {found}: others keep changing it; try again")

    async def readmit(self, request: ReadmitRequest, _: Call) -> ReadmitResponse:
        found = _named(request)
        key = self._keys.revocation_of(found.id)
        for _attempt in range(ATTEMPTS_MAX):
            entry = await self._store.get(key)
            if entry is None:
                raise not_found(f"Revocation of {found}")
            outcome = await self._objects.send(GuardedDelete(key, entry.mod_revision), f"Revocation of {found}")
            if isinstance(outcome, Committed):
                return ReadmitResponse(revocation=_read(entry), revision=outcome.revision)
        raise conflict(f"Revocation of {found}: others keep changing it; try again")

    async def list_revocations(self, _request: ListRevocationsRequest, _: Call) -> ListRevocationsResponse:
        page = await self._store.list_all(self._keys.revoked_prefix)
        found = sorted(map(_read, page.entries), key=lambda one: (one.identity, one.serial))
        return ListRevocationsResponse(revocations=found, revision=page.revision)


def _named(request: RevokeCertificateRequest | ReadmitRequest) -> RevokedCaller:
    try:
        return RevokedCaller.of(request.serial, request.identity)
    except RevocationError as error:
        raise invalid(str(error)) from None


def _read(entry: Entry) -> Revocation:
    """What cannot be read has its id alone, so that it is seen, and can be deleted."""
    try:
        revoked_at(entry.key, entry.value)
        return Revocation.FromString(entry.value)
    except RevocationError:
        return Revocation(id=entry.key.rpartition(b"/")[2].decode(errors="backslashreplace"))
