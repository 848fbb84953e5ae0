"""Carries one exec: the client's input to the process, its output to the client, and its exit at last."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from rayched.nodes.agent.streams.container_process import ContainerProcess
from rayched.nodes.agent.streams.descriptors import DescriptorReader, write_all
from rayched.nodes.agent.streams.replica_stream import ReplicaStream, cancelled
from rayched.nodes.agent.streams.targets import RunningTarget
from rayched.v1.streams_pb2 import AgentFrame, ExecExit, ExecResponse, ExecStart

_LEFT_SECONDS: Final = 1.0
"""So long the output of a process that has ended is waited for, when something that it left behind has it open."""
_POLL_SECONDS: Final = 0.05


class ExecSession:
    """One of them for each call."""

    def __init__(self, start: ExecStart, target: RunningTarget, stream: ReplicaStream) -> None:
        self._start = start
        self._target = target
        self._stream = stream

    async def run(self) -> None:
        """Until the process has ended. Cancelled, it kills the process. Raises StreamRefusal and HungUp."""
        process = ContainerProcess(self._target, stdin=self._start.stdin, tty=self._start.tty)
        try:
            if self._start.HasField("size"):
                process.resize(self._start.size)
            await process.start(self._start.command)
            await self._send(ExecResponse(started=True))
            await self._send(ExecResponse(exit=await self._exit(process)))
        finally:
            process.close()

    async def _exit(self, process: ContainerProcess) -> ExecExit:
        """Once it has ended, and its output was sent."""
        readers = [(name, DescriptorReader(fd)) for name, fd in process.outputs]
        outputs = {asyncio.create_task(self._output(name, reader)): reader for name, reader in readers}
        inputs = asyncio.create_task(self._input(process))
        try:
            code, number = await process.exit()
            while left := [reader for task, reader in outputs.items() if not task.done()]:
                if all(map(_is_left_behind, left)):
                    break
                await asyncio.wait(outputs, timeout=_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for task in filter(asyncio.Task.done, outputs):
                task.result()
        finally:
            await cancelled(*outputs, inputs)
        return ExecExit(code=code, signal=number)

    async def _output(self, name: str, reader: DescriptorReader) -> None:
        while data := await reader.read():
            await self._send(ExecResponse(stdout=data) if name == "stdout" else ExecResponse(stderr=data))

    async def _input(self, process: ContainerProcess) -> None:
        while True:
            frame = (await self._stream.read()).exec
            data = b""
            match frame.WhichOneof("frame"):
                case "stdin":
                    data = frame.stdin
                case "resize":
                    process.resize(frame.resize)
                case "end_of_input":
                    data = process.end_input()
            if data and process.stdin is not None and not await write_all(process.stdin, data):
                process.end_input()

    async def _send(self, response: ExecResponse) -> None:
        await self._stream.write(AgentFrame(exec=response))


def _is_left_behind(reader: DescriptorReader) -> bool:
    """Nothing has come for a while, and that is not for the client's sake."""
    return reader.waiting_since is not None and time.monotonic() - reader.waiting_since > _LEFT_SECONDS
