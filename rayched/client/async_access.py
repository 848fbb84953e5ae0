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
        return await self._transport.do(calls.who_am_i(), timeout_seconds)

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
        return await self._transport.do(calls.can_i(call, kind, namespace, name, subject), timeout_seconds)

    async def grant(self, binding: RoleBinding, *, timeout_seconds: float | None = None) -> GrantResponse:
        return await self._transport.do(calls.grant(binding), timeout_seconds)

    async def revoke_grant(self, id: str, *, timeout_seconds: float | None = None) -> RevokeGrantResponse:
        return await self._transport.do(calls.revoke_grant(id), timeout_seconds)

    async def grants(self, subject: str = "", *, timeout_seconds: float | None = None) -> Sequence[RoleBinding]:
        return await self._transport.do(calls.list_grants(subject), timeout_seconds)

    async def issue_token(
        self, subject: str = "", seconds: int = 0, note: str = "", *, timeout_seconds: float | None = None
    ) -> IssueTokenResponse:
        return await self._transport.do(calls.issue_token(subject, seconds, note), timeout_seconds)

    async def tokens(self, subject: str = "", *, timeout_seconds: float | None = None) -> Sequence[Token]:
        return await self._transport.do(calls.list_tokens(subject), timeout_seconds)

    async def revoke_token(self, id: str, subject: str = "", *, timeout_seconds: float | None = None) -> RevokeTokenResponse:
        return await self._transport.do(calls.revoke_token(id, subject), timeout_seconds)

    async def sign_certificate(
        self, signing_request: bytes, subject: str = "", *, timeout_seconds: float | None = None
    ) -> SignCertificateResponse:
        return await self._transport.do(calls.sign_certificate(signing_request, subject), timeout_seconds)

    async def revoke_certificate(
        self, serial: str = "", identity: str = "", note: str = "", *, timeout_seconds: float | None = None
    ) -> RevokeCertificateResponse:
        return await self._transport.do(calls.revoke_certificate(serial, identity, note), timeout_seconds)

    async def readmit(self, serial: str = "", identity: str = "", *, timeout_seconds: float | None = None) -> ReadmitResponse:
        return await self._transport.do(calls.readmit(serial, identity), timeout_seconds)

    async def revocations(self, *, timeout_seconds: float | None = None) -> Sequence[Revocation]:
        return await self._transport.do(calls.list_revocations(), timeout_seconds)
