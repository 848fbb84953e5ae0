"""The command in processes of its own, for what it does with standard input and output as they are."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rayched.api.stream_proof import proof_of, proven_request
from rayched.v1.streams_pb2 import ExecRequest, ExecResponse, ExecStart, StreamChallenge
from rayched.v1.streams_pb2_grpc import ExecStub
from tests.nodes.real_node import AgentProcess

SECONDS_MAX = 240.0


def rayched(address: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rayched.cli.main", *words]
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen(command, env={**os.environ, "RAYCHED_SERVER": address}, **options)


def done(process: subprocess.Popen[bytes], data: bytes | None = None) -> tuple[int, bytes, str]:
    """Its exit code, what it wrote, and its errors."""
    out, errors = process.communicate(data, timeout=SECONDS_MAX)
    return process.returncode, out, errors.decode()


def run(address: str, *words: str) -> tuple[int, bytes, str]:
    return done(rayched(address, *words))


@contextmanager
def running(address: str, *words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A command that is killed at the end, if it still runs."""
    process = rayched(address, *words, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class RawExec:
    """An exec by hand, whose requests are what the test wants them to be."""

    def __init__(self, channel: Any, start: ExecStart) -> None:
        self._requests: queue.SimpleQueue[ExecRequest | None] = queue.SimpleQueue()
        self._call = ExecStub(channel).Stream(iter(self._requests.get, None), timeout=60)
        self.send(ExecRequest(start=start))

    def __enter__(self) -> RawExec:
        return self

    def __exit__(self, *error: object) -> None:
        self._requests.put(None)
        self._call.cancel()

    def send(self, request: ExecRequest) -> None:
        self._requests.put(request)

    def read(self) -> ExecResponse:
        """Raises grpc.RpcError."""
        found: ExecResponse = next(self._call)
        return found

    def challenge(self) -> StreamChallenge:
        found = self.read()
        assert found.HasField("challenge"), found
        return found.challenge


def proof_for(token: str, start: ExecStart, challenge: StreamChallenge) -> bytes:
    request = proven_request(start, challenge.node, challenge.uid, challenge.container)
    return proof_of(token, request, challenge.nonce)


class Agents:
    """Agents in processes of their own; those that run at the end are killed."""

    def __init__(self) -> None:
        self._begun: list[AgentProcess] = []

    def __call__(self, root: Path, node: str, address: str, *options: str) -> AgentProcess:
        self._begun.append(AgentProcess(root, node, address, *options))
        return self._begun[-1]

    def __enter__(self) -> Agents:
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._begun:
            if one.process.poll() is None:
                one.kill()
