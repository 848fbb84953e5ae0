"""What a client proves to whom: to a server of its own that is no replica, and asks what it likes."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from rayched.api.stream_proof import NONCE_BYTES
from rayched.client import ApiError, AsyncClient, Client
from rayched.client.proving import StreamProof
from rayched.v1.streams_pb2 import (
    ExecRequest,
    ExecResponse,
    PortForwardRequest,
    PortForwardResponse,
    PortForwardStart,
    StreamChallenge,
)
from rayched.v1.streams_pb2_grpc import ExecServicer, add_ExecServicer_to_server
from tests.nodes.streaming import proof_for

TOKEN = "a token that is long enough"
GOOD = StreamChallenge(nonce=bytes(NONCE_BYTES), node="node-1", uid="uid-1", container="main")


class Impostor(ExecServicer):
    """Says that it is the node, and keeps what it hears."""

    def __init__(self, first: ExecResponse) -> None:
        self._first = first
        self.heard: list[ExecRequest] = []
        self.hung_up = threading.Event()

    def Stream(self, requests: Iterator[ExecRequest], context: Any) -> Iterator[ExecResponse]:
        context.add_callback(self.hung_up.set)
        self.heard.append(next(requests))
        yield self._first
        for request in requests:
            self.heard.append(request)
            yield ExecResponse(started=True)
            return


@contextmanager
def served(servicer: ExecServicer) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(4))
    add_ExecServicer_to_server(servicer, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield address
    finally:
        server.stop(None).wait()


@contextmanager
def impostor(first: ExecResponse) -> Iterator[tuple[Impostor, str]]:
    found = Impostor(first)
    with served(found) as address:
        yield found, address


def with_thread(address: str, container: str) -> None:
    with Client(address, timeout_seconds=20.0) as client:
        client.exec("web", ["ls"], container=container, token=TOKEN).close()


def with_loop(address: str, container: str) -> None:
    async def play() -> None:
        async with (
            AsyncClient(address, timeout_seconds=20.0) as client,
            client.exec("web", ["ls"], container=container, token=TOKEN),
        ):
            pass

    asyncio.run(play())


Ask = Callable[[str, str], None]
BOTH = pytest.mark.parametrize("ask", [with_thread, with_loop])


@BOTH
@pytest.mark.row("N124")
def test_whoever_asks_learns_a_proof_for_his_own_nonce_and_no_token(ask: Ask) -> None:
    with impostor(ExecResponse(challenge=GOOD)) as (heard, address):
        ask(address, "")
    start, answer = heard.heard
    assert start.start.proves and not start.start.token
    assert answer.WhichOneof("frame") == "proof" and answer.proof == proof_for(TOKEN, start.start, GOOD)
    for message in heard.heard:
        assert TOKEN.encode() not in message.SerializeToString()


@BOTH
@pytest.mark.parametrize(
    ("first", "text"),
    [
        (ExecResponse(started=True), "no proof was asked for"),
        (
            ExecResponse(challenge=StreamChallenge(nonce=b"short", node="node-1", uid="uid-1", container="main")),
            "the challenge has a nonce of 5 bytes, want 32",
        ),
        (
            # A replica of before there was a proof passes it on as it came from the agent.
            ExecResponse(challenge=StreamChallenge(nonce=bytes(NONCE_BYTES))),
            "the challenge says neither which node nor which pod is meant",
        ),
        (
            ExecResponse(challenge=StreamChallenge(nonce=bytes(NONCE_BYTES), node="node-1", uid="uid-1", container="side")),
            "the challenge is for container side, want main",
        ),
    ],
)
def test_what_no_agent_asks_is_not_answered(ask: Ask, first: ExecResponse, text: str) -> None:
    with impostor(first) as (heard, address):
        with pytest.raises(ApiError, match=re.escape(f"exec of pod web: {text}")) as told:
            ask(address, "main")
        assert told.value.code is grpc.StatusCode.FAILED_PRECONDITION
        assert heard.hung_up.wait(20.0)
    assert [one.WhichOneof("frame") for one in heard.heard] == ["start"]


class OldAgent(ExecServicer):
    """As agents were before there was a proof."""

    def Stream(self, requests: Iterator[ExecRequest], context: Any) -> Iterator[ExecResponse]:
        first = next(requests)
        assert not first.start.token
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "node node-1: exec needs the token of the node (--token-file)")
        yield ExecResponse()


@BOTH
@pytest.mark.row("N124")
def test_an_old_agent_gets_no_token_and_the_user_is_told_that_it_is_old(ask: Ask) -> None:
    with served(OldAgent()) as address, pytest.raises(ApiError, match="so the node's agent is older than this client") as told:
        ask(address, "")
    assert told.value.code is grpc.StatusCode.PERMISSION_DENIED


def test_a_client_without_a_token_says_so() -> None:
    proof = StreamProof("", PortForwardStart(namespace="default", pod="web", port=80))
    assert proof.first_request == PortForwardRequest(start=PortForwardStart(namespace="default", pod="web", port=80))
    assert proof.answer(PortForwardResponse(connected=True)) is None
    with pytest.raises(ApiError, match="node node-1: port-forward needs the token of the node"):
        proof.answer(PortForwardResponse(challenge=GOOD))
