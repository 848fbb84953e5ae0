"""The proof that who wants a program in a container, or a port of a pod, knows the token of the node. Pure.

The token is known to the node's agent and to the client; replicas between them are not told. The agent gives a nonce, and the
client answers with HMAC-SHA256 over it and over all that the answer is to be good for, so whoever has the answer can use it for
nothing else, and not again. Each part is preceded by its length, so no two requests have the same bytes.

Who has an answer can try tokens against it, so a token wants to be drawn, not thought of. Cost: about 10 µs.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from rayched.v1.streams_pb2 import ExecStart, PortForwardStart

EXEC: Final = "exec"
PORT_FORWARD: Final = "port-forward"
NONCE_BYTES: Final = 32
_DOMAIN: Final = "rayched node stream 1"
"""A token that serves something else as well proves nothing there by this."""
_LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class ProvenRequest:
    """What a proof is good for."""

    verb: str
    """EXEC or PORT_FORWARD."""
    node: str
    namespace: str
    pod: str
    uid: str
    container: str
    """Of a port-forward empty."""
    details: tuple[str, ...]
    """Of an exec: stdin and tty as 0 or 1, and the words of the command; of a port-forward: the port."""


def proven_request(start: ExecStart | PortForwardStart, node: str, uid: str, container: str) -> ProvenRequest:
    """What is asked for, of the pod that has the name now."""
    if isinstance(start, ExecStart):
        details = (str(int(start.stdin)), str(int(start.tty)), *start.command)
        return ProvenRequest(EXEC, node, start.namespace, start.pod, uid, container, details)
    return ProvenRequest(PORT_FORWARD, node, start.namespace, start.pod, uid, "", (str(start.port),))


def proof_of(token: str, request: ProvenRequest, nonce: bytes) -> bytes:
    """32 bytes."""
    texts = (request.verb, request.node, request.namespace, request.pod, request.uid, request.container)
    parts = (*(text.encode() for text in (_DOMAIN, *texts)), nonce, *(text.encode() for text in request.details))
    told = hmac.new(token.encode(), digestmod=hashlib.sha256)
    for part in parts:
        told.update(len(part).to_bytes(_LENGTH_BYTES, "big") + part)
    return told.digest()


class ProofDemand:
    """One nonce, for one answer, until some time. Owned by whoever asks."""

    def __init__(self, token: str, request: ProvenRequest, nonce: bytes, until: float) -> None:
        """`until`: by the clock of `accepts`. Raises ValueError for a nonce of another length."""
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"nonce: found {len(nonce)} bytes, want {NONCE_BYTES}")
        self.nonce = nonce
        self._wanted: bytes | None = proof_of(token, request, nonce)
        self._until = until

    def accepts(self, answer: bytes, now: float) -> bool:
        """Whether it is the proof, in time; whatever it is, no other answer is accepted after it."""
        wanted, self._wanted = self._wanted, None
        return wanted is not None and now < self._until and hmac.compare_digest(answer, wanted)
