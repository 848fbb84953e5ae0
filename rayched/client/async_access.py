"""Calls about who may what; a part of AsyncClient. For the rules see AccessCalls."""

from __future__ import annotations

from collections.abc import Sequence

from rayched.client import calls
from rayched.client.async_transport import AsyncTransport
from rayched.v1.access_pb2 import (
    CanIResponse,
    GrantResponse,
    IssueTokenResponse,
    ReadmitResponse,
    Revocation,
    RevokeCertificateResponse,
    RevokeGrantResponse,
    RevokeTokenResponse,
    RoleBinding,
    SignCertificateResponse,
    Token,
    WhoAmIResponse,
)


class AsyncAccessCalls:
    """See the module. `_transport` is the client's."""

    _transport: AsyncTransport

    async def who_am_i(self, *, timeout_seconds: float | None = None) -> WhoAmIResponse:
        call = calls.who_am_i()
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def can_i(
        self,
        call: str,
        kind: str = "",
        namespace: str = "",
        name: str = "",
        *,
        subject: str = "",
        timeout_seconds: float | None = None,
    ) -> CanIResponse:
        asked = calls.can_i(call, kind, namespace, name, subject)
        return asked.result(await self._transport.call(asked.name, asked.request, total_seconds=timeout_seconds))

    async def grant(self, binding: RoleBinding, *, timeout_seconds: float | None = None) -> GrantResponse:
        call = calls.grant(binding)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def revoke_grant(self, id: str, *, timeout_seconds: float | None = None) -> RevokeGrantResponse:
        call = calls.revoke_grant(id)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def grants(self, subject: str = "", *, timeout_seconds: float | None = None) -> Sequence[RoleBinding]:
        call = calls.list_grants(subject)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def issue_token(
        self, subject: str = "", seconds: int = 0, note: str = "", *, timeout_seconds: float | None = None
    ) -> IssueTokenResponse:
        call = calls.issue_token(subject, seconds, note)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def tokens(self, subject: str = "", *, timeout_seconds: float | None = None) -> Sequence[Token]:
        call = calls.list_tokens(subject)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def revoke_token(self, id: str, subject: str = "", *, timeout_seconds: float | None = None) -> RevokeTokenResponse:
        call = calls.revoke_token(id, subject)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def sign_certificate(
        self, signing_request: bytes, subject: str = "", *, timeout_seconds: float | None = None
    ) -> SignCertificateResponse:
        call = calls.sign_certificate(signing_request, subject)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def revoke_certificate(
        self, serial: str = "", identity: str = "", note: str = "", *, timeout_seconds: float | None = None
    ) -> RevokeCertificateResponse:
        call = calls.revoke_certificate(serial, identity, note)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def readmit(self, serial: str = "", identity: str = "", *, timeout_seconds: float | None = None) -> ReadmitResponse:
        call = calls.readmit(serial, identity)
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))

    async def revocations(self, *, timeout_seconds: float | None = None) -> Sequence[Revocation]:
        call = calls.list_revocations()
        return call.result(await self._transport.call(call.name, call.request, total_seconds=timeout_seconds))
