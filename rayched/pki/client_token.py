"""What a caller with a bearer token shows: the token from a file, and whom it trusts; read again when the files change.

gRPC adds the token to calls over TLS alone: its credentials cannot be used for a channel without. Used as ClientCertificate is.

Threads: any. Cost: two looks at the file system a second at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from rayched.pki import private_files
from rayched.pki.client_credentials import LOOK_SECONDS, ClientCertificate
from rayched.pki.errors import PkiError
from rayched.pki.tls_files import Stamp, TlsFiles, stamp_of

_BEGINNINGS: Final = {"rt_": 55, "join.": 57}
"""Of a token, and how many characters it has in all."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """Where the authorities are that are trusted, and the token."""

    ca: Path
    token: Path

    def stamp(self) -> Stamp:
        """Differs when a file was replaced or written to."""
        return stamp_of(self.ca, self.token)


CallerFiles: TypeAlias = TlsFiles | TokenFiles
"""What a caller shows, a certificate or a token, and whom it trusts."""


class ClientToken:
    """Read when it is first needed. Shared by all channels of one caller."""

    def __init__(self, files: TokenFiles, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises PkiError where a file cannot be read, holds no token, or others can read it."""
        self.files: Final = files
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: Stamp = files.stamp()
        self._looked_at = clock()
        self._version = 0
        self._credentials = _credentials(files)

    def version(self) -> int:
        """Moves when other files are in force."""
        with self._lock:
            now = self._clock()
            if now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                self._look()
            return self._version

    def credentials(self) -> Any:
        """For `secure_channel`."""
        return self._credentials

    def fault(self) -> str:
        """Nothing is wrong with a token as far as this side can tell."""
        return ""

    def is_newer_than(self, _serial: str) -> bool:
        """No certificate is shown, so none was refused."""
        return False

    def _look(self) -> None:
        stamp = self.files.stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._credentials = _credentials(self.files)
        except PkiError as error:
            _log.error("the token in force stays: %s", error)
            return
        self._version += 1


ShownByCaller: TypeAlias = ClientCertificate | ClientToken


def _credentials(files: TokenFiles) -> Any:
    ca, call = private_files.read(files.ca), grpc.access_token_call_credentials(token_in(files))
    return grpc.composite_channel_credentials(grpc.ssl_channel_credentials(root_certificates=ca), call)


def token_in(files: TokenFiles) -> str:
    """The token. Raises PkiError where it cannot be read, is none, or others can read it."""
    token = private_files.read_private(files.token).decode(errors="replace").strip()
    if not any(token.startswith(begins) and len(token) == count for begins, count in _BEGINNINGS.items()) or not token.isascii():
        # Not what it has: whatever it is, it may be a secret.
        raise PkiError(f"{files.token}: holds no token; `rayched token create` makes one")
    return token
