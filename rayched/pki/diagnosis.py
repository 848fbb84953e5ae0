"""Why no TLS connection comes about, as the caller can find out: gRPC says no more than that the socket was closed.

First what can be told from the caller's own files; then a handshake with the standard library's TLS, which says what it is about
the other side's certificate. What the other side does not say is left open.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

from rayched.api.moments import moment_text
from rayched.pki import private_files
from rayched.pki.certificates import check_pair, facts_of, read_bundle, signer_of
from rayched.pki.errors import PkiError
from rayched.pki.tls_files import TlsFiles

_SECONDS: Final = 2.0
_ISSUE: Final = "`rayched pki issue` makes a new one"


def own_fault(files: TlsFiles, now: float) -> str:
    """What is wrong with a caller's own certificate, and what to do; empty: nothing is. `now`: seconds since 1970."""
    try:
        bundle = read_bundle(private_files.read(files.ca), str(files.ca))
        certificate = check_pair(
            private_files.read(files.certificate), private_files.read_private(files.key), str(files.certificate), str(files.key)
        )
        facts = facts_of(certificate)
    except PkiError as error:
        return str(error)
    if facts.not_after <= now:
        return f"{files.certificate}: has expired, at {moment_text(facts.not_after)}; {_ISSUE}"
    if facts.not_before > now:
        return f"{files.certificate}: is not valid before {moment_text(facts.not_before)}, or the clock of this host is behind"
    if facts.is_authority:
        return f"{files.certificate}: is that of a certificate authority; {_ISSUE} for a caller"
    if not facts.calls:
        return f"{files.certificate}: is not for callers (no clientAuth in its extended key usage); {_ISSUE}"
    if len(facts.uris) != 1:
        return f"{files.certificate}: has {len(facts.uris)} URIs among its names, want exactly one; {_ISSUE}"
    if signer_of(certificate, bundle) is None:
        return f"{files.certificate}: is signed by none of the authorities in {files.ca}; both come from one `rayched pki issue`"
    return ""


def server_fault(endpoint: str, files: TlsFiles | None, seconds: float = _SECONDS) -> str:
    """What a handshake with a server says; empty: nothing. Without files: whether it wants a certificate."""
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    try:
        context = _context(files)
        with (
            socket.create_connection((host, int(port)), seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            if files is None:
                return "it wants a certificate, and no context lists it: name one with --context"
            # With TLS 1.3 what the server thinks of our certificate comes behind the handshake.
            with contextlib.suppress(TimeoutError):
                secure.recv(1)
            return ""
    except ssl.SSLCertVerificationError as error:
        return f"its certificate does not pass: {error.verify_message}"
    except ssl.SSLError as error:
        return _meaning(error, files)
    except OSError:
        return ""


def _context(files: TlsFiles | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if files is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(files.ca)
        context.load_cert_chain(files.certificate, files.key)
    return context


def _meaning(error: ssl.SSLError, files: TlsFiles | None) -> str:
    reason = error.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING") and "ALERT" not in reason:
        return "" if files is None else "it speaks no TLS, while the context has a certificate: --context none goes without"
    if files is not None and "ALERT" in reason:
        return f"it refuses the certificate {files.certificate} ({reason.replace('_', ' ').lower()})"
    return ""
