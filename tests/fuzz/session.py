"""Sends the calls to a real replica, one after the other, and looks at etcd beside each that was refused.

A stream that was not refused at once is listened to beside the calls that follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import grpc

from rayched.client.client import Client
from tests.fuzz.callers import Callers
from tests.fuzz.calls import FuzzedCall
from tests.fuzz.history import EtcdHistory
from tests.fuzz.judging import FuzzOutcome, FuzzReport, unasked
from tests.fuzz.world import restore

UNARY_SECONDS: Final = 60.0
STREAM_SECONDS: Final = 0.15
"""So long a stream is listened to."""
RESTORED_EVERY: Final = 2_000
_AT_ONCE_SECONDS: Final = 0.01
_STREAMS_MAX: Final = 32
_CONNECTION_OLD: Final = "max_age"
"""In what gRPC says of a connection that the server has ended for its age."""
_QUIET_SECONDS: Final = (0.1, 0.5, 1.0)
"""At each look nothing has been written for so long: what others set off may take a while."""
_QUIET_SECONDS_MAX: Final = 60.0


class FuzzSession:
    """`run` it once. `resident`: bytes of the replica and what it started."""

    def __init__(self, callers: Callers, admin: Client, history: EtcdHistory, resident: Callable[[], int]) -> None:
        self._callers = callers
        self._admin = admin
        self._history = history
        self._resident = resident
        self._pool = ThreadPoolExecutor(_STREAMS_MAX, thread_name_prefix="fuzzed-stream")
        self._open: list[tuple[Future[FuzzOutcome], int]] = []
        """Streams that are listened to, and etcd's revision before each."""
        self.report = FuzzReport()

    def run(self, calls: Iterator[FuzzedCall], requests: int, told: Callable[[int], None]) -> FuzzReport:
        restore(self._admin, self._callers)
        epoch, revision = self._epoch(), self._history.revision()
        for done in range(requests):
            call = next(calls)
            outcome = self._sent(call, revision)
            # What an answered one wrote is its right; what it set off is looked at when it is beside a refused one.
            revision = self._history.revision() if outcome is None else self._judged(outcome, revision)
            is_over = (done + 1) % RESTORED_EVERY == 0 or done + 1 == requests
            self._hear_streams(until_ended=is_over)
            if is_over:
                restore(self._admin, self._callers)
                self.report.resident.append(self._resident())
                if self._epoch() != epoch:
                    self.report.miss("leader", f"epoch {epoch} was over by call {call.number}")
                    epoch = self._epoch()
                revision = self._history.revision()
                told(done + 1)
        self._pool.shutdown()
        self.report.judge_memory()
        return self.report

    def send(self, call: FuzzedCall) -> FuzzOutcome:
        began = time.monotonic()
        code, details = _answer(self._callers.channels[call.role], call)
        if code is grpc.StatusCode.UNAVAILABLE and _CONNECTION_OLD in details:
            # The server had closed it before it saw the call. gRPC's own repetition, which others have, is off here.
            code, details = _answer(self._callers.channels[call.role], call)
        return FuzzOutcome(call, code, details, time.monotonic() - began)

    def _sent(self, call: FuzzedCall, revision: int) -> FuzzOutcome | None:
        """What it was answered; None: it is a stream that goes on."""
        if not call.streams_out:
            return self.send(call)
        answer = self._pool.submit(self.send, call)
        try:
            return answer.result(_AT_ONCE_SECONDS)
        except TimeoutError:
            self._open.append((answer, revision))
            return None

    def _hear_streams(self, *, until_ended: bool) -> None:
        """Of those that have ended, or of all once they have."""
        heard, self._open = self._open, []
        for answer, revision in heard:
            if until_ended or answer.done():
                self._judged(answer.result(), revision)
            else:
                self._open.append((answer, revision))

    def _judged(self, outcome: FuzzOutcome, before: int) -> int:
        """The revision behind it."""
        self.report.add(outcome)
        return self._look(outcome.call, before) if outcome.is_refused else self._history.revision()

    def _look(self, call: FuzzedCall, before: int) -> int:
        """Whether a refused call wrote; the revision behind it."""
        self.report.checked += 1
        after = self._history.revision()
        if after == before or not unasked(self._history.written(before, after)):
            return after
        # Perhaps something that another call had set off. Made again in silence, it has to leave that as it is.
        self.report.looked_at += 1
        written: Sequence[str] = ()
        for quiet_seconds in _QUIET_SECONDS:
            before = self._until_quiet(quiet_seconds)
            outcome = self.send(call)
            after = self._history.revision()
            written = unasked(self._history.written(before, after)) if after > before else ()
            if not written or not outcome.is_refused:
                return after
        self.report.miss("revision", f"{call.path} of {call.role}, number {call.number}: refused, and wrote {', '.join(written)}")
        return after

    def _until_quiet(self, seconds: float) -> int:
        """The revision, once nothing but what is always written has been for so long."""
        ends_at = time.monotonic() + _QUIET_SECONDS_MAX
        while True:
            before = self._history.revision()
            time.sleep(seconds)
            after = self._history.revision()
            if after == before or not unasked(self._history.written(before, after)) or time.monotonic() > ends_at:
                return after

    def _epoch(self) -> int:
        return self._admin.leader().epoch


def _answer(channel: grpc.Channel, call: FuzzedCall) -> tuple[grpc.StatusCode | None, str]:
    """Its code, and what was said with it; None: a stream that was left open."""
    seconds = STREAM_SECONDS if call.streams_out else UNARY_SECONDS
    options: dict[str, Any] = {"metadata": call.metadata, "timeout": seconds}
    if call.is_compressed:
        options["compression"] = grpc.Compression.Gzip
    try:
        if call.streams_in and call.streams_out:
            answers = channel.stream_stream(call.path)(iter(call.messages), **options)
        elif call.streams_out:
            answers = channel.unary_stream(call.path)(call.messages[0], **options)
        elif call.streams_in:
            channel.stream_unary(call.path)(iter(call.messages), **options)
            return grpc.StatusCode.OK, ""
        else:
            channel.unary_unary(call.path)(call.messages[0], **options)
            return grpc.StatusCode.OK, ""
        try:
            for _ in answers:
                pass
            return grpc.StatusCode.OK, ""
        finally:
            with suppress(grpc.RpcError):
                answers.cancel()
    except grpc.RpcError as error:
        code = error.code()
        if call.streams_out and code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return None, ""
        return code, str(error.details())
