"""A certificate for a key that was made here, asked of one replica after another, as not each signs.

What is shown there is a token, or the certificate that is to be renewed. Whose it is to be is named, or is who the cluster takes
the caller for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import grpc

from rayched.access.identity import Identity
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.pki.client_token import CallerFiles

if TYPE_CHECKING:
    from rayched.pki.held_certificate import HeldCertificate

_PATIENCE_SECONDS: Final = 10.0
_NOT_HERE: Final = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""A replica that has no key, or does not answer, says nothing about the others."""


class NotCertified(Exception):
    """No replica has signed; what each said, in one line."""


def certified(
    held: HeldCertificate, servers: Sequence[str], files: CallerFiles, identity: Identity | None = None
) -> tuple[Identity, float]:
    """Writes the certificate where `held` has it. Whose it is, and until when it counts, in seconds since 1970.

    `servers`: host:port each, where what `files` has is shown. Raises NotCertified, PkiError.
    """
    faults: list[str] = []
    for server in servers:
        with Client(server, tls=files, timeout_seconds=_PATIENCE_SECONDS) as client:
            try:
                whose = identity or Identity.parse(client.who_am_i().identity)
                answer = client.sign_certificate(held.request(), str(whose))
            except ApiError as error:
                faults.append(f"{server}: {error}")
                if error.code not in _NOT_HERE:
                    break
                continue
        held.take(answer.certificate, answer.authorities, whose)
        return whose, answer.signed.not_after_ms / 1e3
    raise NotCertified("; ".join(faults) or "there is no replica to ask")
