"""Sends one log: from its beginning, its tail or where an earlier stream was, to its end or for as long as the container runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from rayched.nodes.agent.streams.log_reader import LogPlace, LogReader, LogText
from rayched.nodes.agent.streams.refusals import Code, StreamRefusal, forbidden, not_there
from rayched.nodes.agent.streams.replica_stream import ReplicaStream
from rayched.nodes.agent.streams.targets import AttemptLog, NotStarted, StreamTargets
from rayched.v1.streams_pb2 import AgentFrame, LogPosition, LogsRequest, LogsResponse

_POLL_SECONDS: Final = 0.1
_START_POLL_SECONDS: Final = 0.3
_UNKNOWN_SECONDS: Final = 10.0
"""So long a pod of which the agent has not heard is waited for without a further look at whether it is there."""

_T = TypeVar("_T")

Ask = Callable[[Callable[[], AttemptLog]], Awaitable[AttemptLog]]
"""Carries something out in the agent's loop."""


class LogSession:
    """One of them for each call."""

    def __init__(self, uid: str, request: LogsRequest, stream: ReplicaStream, readers: Executor) -> None:
        self._uid = uid
        self._request = request
        self._stream = stream
        self._readers = readers
        self._since = b""
        self._says_it_waits = False
        self._left = request.limit_bytes if request.HasField("limit_bytes") else None

    async def run(self, targets: StreamTargets, ask: Ask) -> None:
        """Until its end. Raises StreamRefusal and HungUp."""
        request = self._request
        target = await self._target(targets, ask)
        reader = LogReader(target.path, _place(request.resume))
        resumed = request.HasField("resume")
        # A log that was not there yet has no tail to begin at: all of it is younger than the request.
        if not resumed and request.HasField("tail_lines"):
            await self._in_thread(lambda: reader.begin_at_tail(request.tail_lines))
        self._since = request.resume.since if resumed else _since(request)
        text = LogText(self._since, timestamps=request.timestamps, in_line=resumed and request.resume.in_line)
        await self._send(LogsResponse(position=self._position(target, reader, text)))
        if request.follow:
            await self._follow(target, reader, text)
        else:
            await self._read(target, reader, text)
        await self._send(LogsResponse(end=True))

    async def _target(self, targets: StreamTargets, ask: Ask) -> AttemptLog:
        request, uid = self._request, self._uid
        if request.HasField("resume"):
            attempt = request.resume.attempt
            return await ask(lambda: targets.log_of_attempt(uid, request.pod, request.container, attempt))
        is_known, unknown_until = False, time.monotonic() + _UNKNOWN_SECONDS
        while True:
            try:
                target = await ask(lambda: targets.log(uid, request.pod, request.container, previous=request.previous))
            except NotStarted as waits:
                if not request.follow:
                    text = f'container "{request.container}" in pod "{request.pod}" is waiting to start: {waits}'
                    raise forbidden(text) from None
                is_known = is_known or waits.is_known
                if is_known and not waits.is_known:
                    raise not_there(f'pod "{request.pod}" is not on this node any more') from None
            else:
                return target
            if not is_known and time.monotonic() > unknown_until:
                # The client asks again, and the replica looks whether there is such a pod still.
                raise StreamRefusal(Code.UNAVAILABLE, f'pod "{request.pod}" has not come to this node yet')
            if not self._says_it_waits:
                # The stream is open: the client's patience is for streams that are not.
                self._says_it_waits = True
                await self._send(LogsResponse())
            await asyncio.sleep(_START_POLL_SECONDS)

    async def _read(self, target: AttemptLog, reader: LogReader, text: LogText) -> None:
        """What there is now; what is written meanwhile is not waited for."""
        left = await self._in_thread(reader.bytes_left)
        if not left and target.is_over() and not target.path.exists():
            raise not_there(f'the log of container "{self._request.container}" in pod "{self._request.pod}" was removed')
        while left > 0 and self._goes_on():
            n_bytes = await self._part(target, reader, text)
            if not n_bytes:
                await self._tell_lost(target, reader, text)
                return
            left -= n_bytes

    async def _follow(self, target: AttemptLog, reader: LogReader, text: LogText) -> None:
        is_over = False
        while self._goes_on():
            if await self._part(target, reader, text):
                continue
            if is_over:
                await self._tell_lost(target, reader, text)
                return
            # Once it is over, what was written before is still to be read.
            is_over = target.is_over()
            if not is_over:
                await asyncio.sleep(_POLL_SECONDS)

    async def _tell_lost(self, target: AttemptLog, reader: LogReader, text: LogText) -> None:
        """At the end. Who is behind when the log is removed does not get all of it, and has to know. Raises StreamRefusal."""
        if not target.directory.exists() and not reader.place.file:
            raise not_there(f'the log of container "{self._request.container}" in pod "{self._request.pod}" was removed')
        if reader.lost:
            await self._send(LogsResponse(position=self._position(target, reader, text), lost=True))

    def _goes_on(self) -> bool:
        return self._left is None or self._left > 0

    async def _part(self, target: AttemptLog, reader: LogReader, text: LogText) -> int:
        """Sends what can be read at once; how many bytes of the file that was."""

        def read() -> tuple[int, bytes]:
            entries = reader.read()
            return len(entries), text.of(entries)

        n_bytes, data = await self._in_thread(read)
        if not n_bytes:
            return 0
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        lost, reader.lost = reader.lost, False
        await self._send(LogsResponse(data=data, position=self._position(target, reader, text), lost=lost))
        return n_bytes

    def _position(self, target: AttemptLog, reader: LogReader, text: LogText) -> LogPosition:
        place = reader.place
        return LogPosition(
            uid=self._uid,
            attempt=target.attempt,
            file=place.file,
            begin=place.begin,
            offset=place.offset,
            in_line=text.in_line,
            since=self._since,
        )

    async def _send(self, response: LogsResponse) -> None:
        await self._stream.write(AgentFrame(logs=response))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)


def _place(position: LogPosition) -> LogPlace:
    return LogPlace(position.file, position.begin, position.offset)


def _since(request: LogsRequest) -> bytes:
    """As entries have it; empty: since ever."""
    if request.HasField("since_seconds"):
        nanoseconds = time.time_ns() - int(min(request.since_seconds, time.time()) * 1_000_000_000)
    elif request.HasField("since_time"):
        nanoseconds = request.since_time.ToNanoseconds()
    else:
        return b""
    seconds, rest = divmod(max(nanoseconds, 0), 1_000_000_000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}Z", time.gmtime(seconds)).encode()
