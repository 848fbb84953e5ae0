"""One session with a client, as the agent sees it: frames to and from the replica between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

import grpc

from rayched.v1.streams_pb2 import AgentFrame, ReplicaFrame


class HungUp(Exception):
    """The client, or the replica, has left: nobody is to be told anything."""


class ReplicaStream:
    """Read by one task, written by any number; whoever waits for a frame to read may be cancelled."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._frames: asyncio.Queue[ReplicaFrame | None] = asyncio.Queue(1)
        self._hung_up = asyncio.Event()
        # gRPC takes one message at a time: a second one breaks the call on this side alone, and the replica waits for ever.
        self._writing = asyncio.Lock()
        call.add_done_callback(lambda _: self._hung_up.set())
        # A read of gRPC that is cancelled ends the call, so none of those is.
        self._receiving = asyncio.create_task(self._receive())

    async def read(self) -> ReplicaFrame:
        """Raises HungUp."""
        frame = await self._frames.get()
        if frame is None:
            self._frames.put_nowait(None)
            raise HungUp
        return frame

    async def write(self, frame: AgentFrame) -> None:
        """Waits while the client reads slowly. Raises HungUp."""
        async with self._writing:
            with _hung_up_is_told():
                await self._call.write(frame)

    async def until_hung_up(self) -> None:
        """Also while nothing is read."""
        await self._hung_up.wait()

    def close(self) -> None:
        """Ends the call."""
        self._receiving.cancel()
        self._call.cancel()

    async def _receive(self) -> None:
        with contextlib.suppress(HungUp):
            while True:
                with _hung_up_is_told():
                    frame = await self._call.read()
                if frame is grpc.aio.EOF:
                    break
                await self._frames.put(frame)
        await self._frames.put(None)


@contextlib.contextmanager
def _hung_up_is_told() -> Iterator[None]:
    """A call that was ended says so as if the task that uses it were cancelled."""
    try:
        yield
    except (grpc.RpcError, asyncio.InvalidStateError):
        raise HungUp from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise HungUp from None


async def while_heard(work: Coroutine[Any, Any, None], stream: ReplicaStream) -> None:
    """Ends it when the client hangs up. Raises what it raises, and HungUp."""
    working, hearing = asyncio.create_task(work), asyncio.create_task(stream.until_hung_up())
    try:
        await asyncio.wait({working, hearing}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HungUp
        working.result()
    finally:
        await cancelled(working, hearing)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Returns when they have ended."""
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
