"""Calls about who may what; a part of Client."""

from __future__ import annotations

from collections.abc import Sequence

from rayched.client import calls
from rayched.client.transport import Transport
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


class AccessCalls:
    """See the module. `_transport` is the client's."""

    _transport: Transport

    def who_am_i(self, *, timeout_seconds: float | None = None) -> WhoAmIResponse:
        """Who the cluster takes the caller for, and the role bindings of that identity."""
        return self._transport.do(calls.who_am_i(), timeout_seconds)

    def can_i(
        self,
        call: str,
        kind: str = "",
        namespace: str = "",
        name: str = "",
        *,
        subject: str = "",
        timeout_seconds: float | None = None,
    ) -> CanIResponse:
        """Whether a call such as "Submission.Delete" may be made; the empty namespace is all of them, or none. Nothing is called.

        `subject` is another identity, about which operators and administrators may ask.
        """
        return self._transport.do(calls.can_i(call, kind, namespace, name, subject), timeout_seconds)

    def grant(self, binding: RoleBinding, *, timeout_seconds: float | None = None) -> GrantResponse:
        """Gives a role. The same subject, role and namespaces again replace what the binding allows."""
        return self._transport.do(calls.grant(binding), timeout_seconds)

    def revoke_grant(self, id: str, *, timeout_seconds: float | None = None) -> RevokeGrantResponse:
        """Takes a role away; FAILED_PRECONDITION for the last binding to the role admin.

        Where an attempt without an answer had taken it away already, NOT_FOUND.
        """
        return self._transport.do(calls.revoke_grant(id), timeout_seconds)

    def grants(self, subject: str = "", *, timeout_seconds: float | None = None) -> Sequence[RoleBinding]:
        """Role bindings of one identity; without one all of them, which operators and administrators may see."""
        return self._transport.do(calls.list_grants(subject), timeout_seconds)

    def issue_token(
        self, subject: str = "", seconds: int = 0, note: str = "", *, timeout_seconds: float | None = None
    ) -> IssueTokenResponse:
        """A bearer token for an identity, the own one where none is named; 0 seconds: 30 days. Its secret is in the answer alone.

        An attempt without an answer may have made one that nobody knows; `tokens` shows it.
        """
        return self._transport.do(calls.issue_token(subject, seconds, note), timeout_seconds)

    def tokens(self, subject: str = "", *, timeout_seconds: float | None = None) -> Sequence[Token]:
        """Tokens of one identity; without one all of them, which administrators may see."""
        return self._transport.do(calls.list_tokens(subject), timeout_seconds)

    def revoke_token(self, id: str, subject: str = "", *, timeout_seconds: float | None = None) -> RevokeTokenResponse:
        """Ends a token of an identity, the own one where none is named.

        Where an attempt without an answer had ended it already, NOT_FOUND.
        """
        return self._transport.do(calls.revoke_token(id, subject), timeout_seconds)

    def sign_certificate(
        self, signing_request: bytes, subject: str = "", *, timeout_seconds: float | None = None
    ) -> SignCertificateResponse:
        """Certifies the key of a request (PKCS 10, PEM), for the own identity where none is named, where the replica signs.

        With a join token, which is spent by it. An attempt without an answer may have spent it: then nobody has the certificate.
        """
        return self._transport.do(calls.sign_certificate(signing_request, subject), timeout_seconds)

    def revoke_certificate(
        self, serial: str = "", identity: str = "", note: str = "", *, timeout_seconds: float | None = None
    ) -> RevokeCertificateResponse:
        """Refuses a certificate by its serial number, or an identity whatever it shows, at all replicas; its streams end."""
        return self._transport.do(calls.revoke_certificate(serial, identity, note), timeout_seconds)

    def readmit(self, serial: str = "", identity: str = "", *, timeout_seconds: float | None = None) -> ReadmitResponse:
        """Takes that back. Where an attempt without an answer had done so already, NOT_FOUND."""
        return self._transport.do(calls.readmit(serial, identity), timeout_seconds)

    def revocations(self, *, timeout_seconds: float | None = None) -> Sequence[Revocation]:
        """Who is refused, which operators and administrators may see."""
        return self._transport.do(calls.list_revocations(), timeout_seconds)
