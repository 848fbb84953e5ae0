"""Who may have programs run and reach ports: whoever proves that he knows the token of the node, without sending it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from rayched.api.stream_proof import ProofDemand, proven_request
from rayched.nodes.agent.streams.refusals import refused
from rayched.nodes.agent.streams.replica_stream import ReplicaStream
from rayched.v1.streams_pb2 import (
    AgentFrame,
    ExecResponse,
    ExecStart,
    PortForwardResponse,
    PortForwardStart,
    ReplicaFrame,
    StreamChallenge,
)

PROOF_SECONDS: Final = 10.0
"""From the challenge to its answer, which a program gives at once."""


class TokenGate:
    """Of one node. Used by many sessions; each has a nonce of its own."""

    def __init__(self, node: str, token: str, nonces: Callable[[], bytes], clock: Callable[[], float] = time.monotonic) -> None:
        """Without a token nobody passes. `nonces` gives one that nobody foresees, and never the same twice."""
        self._node = node
        self._token = token
        self._nonces = nonces
        self._clock = clock

    async def let_in(self, first: ReplicaFrame, stream: ReplicaStream) -> None:
        """Returns when the client has proved it. Raises StreamRefusal and HungUp.

        `first` is an exec's or a port-forward's, with its start, and with the pod and the container that the replica found.
        """
        is_exec = first.HasField("exec")
        start: ExecStart | PortForwardStart = first.exec.start if is_exec else first.port_forward.start
        container = first.exec.start.container if is_exec else ""
        request = proven_request(start, self._node, first.uid, container)
        self._check_start(request.verb, start)
        demand = ProofDemand(self._token, request, self._nonces(), self._clock() + PROOF_SECONDS)
        challenge = StreamChallenge(nonce=demand.nonce)
        await stream.write(
            AgentFrame(exec=ExecResponse(challenge=challenge))
            if is_exec
            else AgentFrame(port_forward=PortForwardResponse(challenge=challenge))
        )
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                frame = await stream.read()
        except TimeoutError:
            raise refused(f"node {self._node}: {request.verb}: no proof came within {PROOF_SECONDS:g} s") from None
        answer = frame.exec if is_exec else frame.port_forward
        if answer.WhichOneof("frame") != "proof":
            found = answer.WhichOneof("frame") or "nothing"
            raise refused(f"node {self._node}: {request.verb}: found {found} in answer to the challenge, want the proof")
        if not demand.accepts(answer.proof, self._clock()):
            raise refused(f"node {self._node}: {request.verb} with another token than that of the node")

    def _check_start(self, verb: str, start: ExecStart | PortForwardStart) -> None:
        if not self._token:
            raise refused(f"node {self._node}: {verb} is off, for its agent has no token (rayched node --stream-token-file)")
        if start.token:
            raise refused(f"node {self._node}: {verb} by a client that is too old: it sends the token, and does not prove it")
        if not start.proves:
            raise refused(f"node {self._node}: {verb} needs the token of the node (--token-file)")
