"""What a client answers to the challenge of a node, so that its token stays here. Pure; both clients use it."""

from __future__ import annotations

from typing import Any, Final

import grpc

from rayched.api.stream_proof import EXEC, NONCE_BYTES, PORT_FORWARD, proof_of, proven_request
from rayched.client.errors import ApiError
from rayched.v1.streams_pb2 import ExecRequest, ExecStart, PortForwardRequest, PortForwardStart, StreamChallenge

_NEEDS: Final = "needs the token of the node"
_DOUBT: Final = "whoever answers is older than this client, or is not the node"


class StreamProof:
    """Of one exec, or of the connections of one port-forward."""

    def __init__(self, token: str, start: ExecStart | PortForwardStart) -> None:
        """An empty token: the client has none, and proves nothing. `start` is to be sent as it is from here on."""
        self._token = token
        self._start = start
        self._verb = EXEC if isinstance(start, ExecStart) else PORT_FORWARD
        start.proves = bool(token)

    @property
    def first_request(self) -> ExecRequest | PortForwardRequest:
        """What a stream begins with."""
        start = self._start
        return ExecRequest(start=start) if isinstance(start, ExecStart) else PortForwardRequest(start=start)

    def answer(self, response: Any) -> ExecRequest | PortForwardRequest | None:
        """To the first message that came; None: it asks nothing. Raises ApiError where it is not what a node's agent asks."""
        if response.WhichOneof("frame") != "challenge":
            if self._token:
                raise self._refusal(f"no proof was asked for; {_DOUBT}")
            return None
        challenge: StreamChallenge = response.challenge
        self._check(challenge)
        request = proven_request(self._start, challenge.node, challenge.uid, challenge.container)
        proof = proof_of(self._token, request, challenge.nonce)
        return ExecRequest(proof=proof) if isinstance(self._start, ExecStart) else PortForwardRequest(proof=proof)

    def explained(self, error: ApiError) -> ApiError:
        """Why a stream did not begin. Only agents of before there was a proof say to who proves that he needs the token."""
        if self._token and error.code is grpc.StatusCode.PERMISSION_DENIED and _NEEDS in error.message:
            error.message += "; this client proves it and does not send it, so the node's agent is older than this client"
        return error

    def _check(self, challenge: StreamChallenge) -> None:
        if not self._token:
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, f"node {challenge.node}: {self._verb} {_NEEDS}")
        if len(challenge.nonce) != NONCE_BYTES:
            raise self._refusal(f"the challenge has a nonce of {len(challenge.nonce)} bytes, want {NONCE_BYTES}; {_DOUBT}")
        if not challenge.node or not challenge.uid:
            raise self._refusal(f"the challenge says neither which node nor which pod is meant; {_DOUBT}")
        wanted = self._start.container if isinstance(self._start, ExecStart) else ""
        if wanted and challenge.container != wanted:
            raise self._refusal(f"the challenge is for container {challenge.container}, want {wanted}; {_DOUBT}")

    def _refusal(self, why: str) -> ApiError:
        return ApiError(grpc.StatusCode.FAILED_PRECONDITION, f"{self._verb} of pod {self._start.pod}: {why}")
