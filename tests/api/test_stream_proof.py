"""What the proof of a stream is made of, and how often and how long one is good."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest

from rayched.api.stream_proof import EXEC, NONCE_BYTES, PORT_FORWARD, ProofDemand, ProvenRequest, proof_of, proven_request
from rayched.v1.streams_pb2 import ExecStart, PortForwardStart

TOKEN = "a token that is long enough"
NONCE = bytes(range(NONCE_BYTES))
REQUEST = ProvenRequest(EXEC, "node-1", "default", "web", "uid-1", "main", ("0", "0", "ls", "-l"))


def by_hand(token: str, *parts: bytes) -> bytes:
    """As the header of streams.proto says it."""
    text = b"".join(len(part).to_bytes(8, "big") + part for part in (b"rayched node stream 1", *parts))
    return hmac.digest(token.encode(), text, hashlib.sha256)


def test_the_proof_is_what_the_interface_says() -> None:
    start = ExecStart(namespace="default", pod="web", container="main", command=["ls", "-ä"], stdin=True)
    found = proof_of(TOKEN, proven_request(start, "node-1", "uid-1", "main"), NONCE)
    words = (b"exec", b"node-1", b"default", b"web", b"uid-1", b"main", NONCE, b"1", b"0", b"ls", "-ä".encode())
    assert found == by_hand(TOKEN, *words)
    port = PortForwardStart(namespace="default", pod="web", port=80)
    found = proof_of(TOKEN, proven_request(port, "node-1", "uid-1", ""), NONCE)
    assert found == by_hand(TOKEN, b"port-forward", b"node-1", b"default", b"web", b"uid-1", b"", NONCE, b"80")


def others() -> list[tuple[str, ProvenRequest, bytes]]:
    """Each differs from what was asked for in one thing."""
    changes: list[dict[str, object]] = [
        {"verb": PORT_FORWARD},
        {"node": "node-2"},
        {"namespace": "other"},
        {"pod": "web-2"},
        {"uid": "uid-2"},
        {"container": "side"},
        {"details": ("0", "0", "ls")},
        {"details": ("1", "0", "ls", "-l")},
        {"details": ("0", "1", "ls", "-l")},
        # The same letters, cut elsewhere.
        {"details": ("0", "0", "ls-l")},
        {"namespace": "defaultw", "pod": "eb"},
        {"container": "", "details": ("main", "0", "0", "ls", "-l")},
    ]
    found = [(TOKEN, replace(REQUEST, **change), NONCE) for change in changes]  # type: ignore[arg-type]
    return [*found, (TOKEN, REQUEST, bytes(NONCE_BYTES)), (TOKEN + "!", REQUEST, NONCE)]


@pytest.mark.row("N124")
@pytest.mark.parametrize(("token", "request_", "nonce"), others())
def test_a_recorded_proof_is_refused_for_anything_else(token: str, request_: ProvenRequest, nonce: bytes) -> None:
    recorded = proof_of(TOKEN, REQUEST, NONCE)
    assert ProofDemand(TOKEN, REQUEST, NONCE, 10.0).accepts(recorded, 0.0)
    assert not ProofDemand(token, request_, nonce, 10.0).accepts(recorded, 0.0)


@pytest.mark.row("N124")
def test_a_demand_takes_one_answer_in_its_time() -> None:
    proof = proof_of(TOKEN, REQUEST, NONCE)
    once = ProofDemand(TOKEN, REQUEST, NONCE, 10.0)
    assert once.accepts(proof, 9.9) and not once.accepts(proof, 9.9)
    wrong = ProofDemand(TOKEN, REQUEST, NONCE, 10.0)
    assert not wrong.accepts(proof[:-1], 0.0) and not wrong.accepts(proof, 0.0)
    assert not ProofDemand(TOKEN, REQUEST, NONCE, 10.0).accepts(proof, 10.0)
    assert not ProofDemand(TOKEN, REQUEST, NONCE, 10.0).accepts(b"", 0.0)


@pytest.mark.parametrize("length", [0, NONCE_BYTES - 1, NONCE_BYTES + 1])
def test_a_nonce_of_another_length_is_a_mistake(length: int) -> None:
    with pytest.raises(ValueError, match=f"nonce: found {length} bytes, want {NONCE_BYTES}"):
        ProofDemand(TOKEN, REQUEST, bytes(length), 10.0)
