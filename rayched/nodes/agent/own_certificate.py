"""The certificate of one node's agent: got with a join token, and renewed with itself, as long as there are replicas that sign.

    <root>/pki/     tls.key, made here; tls.crt, ca.crt; context.yaml, by which the agent and `--context` reach the replicas

A token is used where there is no certificate of this node that still counts: an agent that is started again needs none. Which
cluster it is, is what the authority's certificate says, so the certificate is asked for in that name, and no other one is taken.
From the last third of its time on a new one is asked for, with a new key, of one replica after another, as not each signs.

Threads: `join` in the caller's; one for renewals from `start` to `stop`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rayched.access.identity import SCHEME, Identity, IdentityError, IdentityKind
from rayched.client.contexts import CONTEXT_FILE, write_context_file
from rayched.client.signing import NotCertified, certified
from rayched.pki import private_files
from rayched.pki.certificates import facts_of, read_bundle
from rayched.pki.client_token import CallerFiles, TokenFiles
from rayched.pki.errors import PkiError
from rayched.pki.held_certificate import HeldCertificate

LOOK_SECONDS: Final = 3600.0
"""Between two looks at a certificate that has time."""
AGAIN_SECONDS: Final = 60.0
"""After a first failure; twice as long after each further one, up to LOOK_SECONDS."""

log = logging.getLogger(__name__)


class JoinFault(Exception):
    """No certificate was got; one line."""


class NodeCertificate:
    """Of the agent of one node."""

    def __init__(self, root: Path, node: str, held: HeldCertificate | None = None) -> None:
        """`root`: the agent's directory."""
        self._directory = root / "pki"
        self._node = node
        self._held = held or HeldCertificate(self._directory)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="node-certificate", daemon=True)
        self._endpoints: tuple[str, ...] = ()
        self._look_seconds = LOOK_SECONDS

    @property
    def context(self) -> str:
        """The path of the file, for whoever takes a context."""
        return str(self._directory / CONTEXT_FILE)

    def is_there(self) -> bool:
        """One of this node, which counts as far as its time goes."""
        try:
            return self._held.counts_for(self._named_by(self._held.files.ca))
        except (PkiError, JoinFault):
            return False

    def join(self, servers: Sequence[str], files: TokenFiles) -> None:
        """`servers`: where tokens are taken, host:port each. Raises JoinFault, PkiError."""
        self._ask(self._named_by(files.ca), servers, files)
        log.info("node %s has joined, with a certificate of its own", self._node)

    def write_context(self, servers: Sequence[str]) -> None:
        """Of the replicas that the agent works with. Raises PkiError."""
        write_context_file(self._directory / CONTEXT_FILE, servers, self._held.files)

    def start(self, endpoints: Sequence[str], look_seconds: float = LOOK_SECONDS) -> None:
        """Renews it from now on; `endpoints`: of replicas, where certificates are shown."""
        self._endpoints, self._look_seconds = tuple(endpoints), look_seconds
        self._thread.start()

    def stop(self) -> None:
        """A call under way ends by itself."""
        self._stopped.set()

    def renew(self) -> None:
        """Raises JoinFault, PkiError."""
        self._ask(self._named_by(self._held.files.ca), self._endpoints, self._held.files)
        log.info("node %s has a new certificate", self._node)

    def _keep(self) -> None:
        failures = 0
        wait = 0.0
        while not self._stopped.wait(wait):
            wait = self._look_seconds
            if not self._held.is_due():
                failures = 0
                continue
            try:
                self.renew()
                failures = 0
            except (JoinFault, PkiError) as error:
                wait = min(self._look_seconds, AGAIN_SECONDS * 2.0 ** min(failures, 16))
                failures += 1
                log.warning("node %s has no new certificate yet, the old one stays: %s", self._node, error)
            except Exception:
                # A bug here must not end the renewals of an agent that runs for months.
                log.exception("node %s: its certificate could not be renewed", self._node)

    def _named_by(self, authority: Path) -> Identity:
        """The node, in the trust domain of this ca.crt. Raises PkiError, JoinFault."""
        return _identity(private_files.read(authority), str(authority), self._node)

    def _ask(self, identity: Identity, servers: Sequence[str], files: CallerFiles) -> None:
        """Raises JoinFault where nobody has signed."""
        try:
            certified(self._held, servers, files, identity)
        except NotCertified as error:
            raise JoinFault(f"no replica has certified node {self._node}: {error}") from None


def _identity(bundle: bytes, what: str, node: str) -> Identity:
    """Of the node, in the trust domain of the authority. Raises PkiError, JoinFault."""
    uris = {uri for one in read_bundle(bundle, what) for uri in facts_of(one).uris if uri.startswith(SCHEME)}
    if len(uris) != 1:
        raise JoinFault(f"{what}: names {len(uris)} trust domains, want the ca.crt of `rayched pki init`, which names one")
    try:
        return Identity(uris.pop().removeprefix(SCHEME), IdentityKind.NODE, node)
    except IdentityError as error:
        raise JoinFault(f"{what}: {error}") from None
