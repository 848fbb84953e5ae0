"""Sends the calls to a real replica, one after the other, and looks at etcd beside each that was refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
_QUIET_SECONDS: Final = 0.5
_QUIET_SECONDS_MAX: Final = 60.0
_LOOKS: Final = 3


class FuzzSession:
    """`run` it once. `resident`: bytes of the replica and what it started."""

    def __init__(self, callers: Callers, admin: Client, history: EtcdHistory, resident: Callable[[], int]) -> None:
        self._callers = callers
        self._admin = admin
        self._history = history
        self._resident = resident
        self.report = FuzzReport()

    def run(self, calls: Iterator[FuzzedCall], requests: int, told: Callable[[int], None]) -> FuzzReport:
        restore(self._admin, self._callers)
        epoch, revision = self._epoch(), self._history.revision()
        for done in range(requests):
            call = next(calls)
            outcome = self.send(call)
            self.report.add(outcome)
            if outcome.is_refused:
                revision = self._look(call, revision)
            else:
                # What it wrote is its right; what it set off is looked at when it is beside a refused one.
                revision = self._history.revision()
            if (done + 1) % RESTORED_EVERY == 0 or done + 1 == requests:
                restore(self._admin, self._callers)
                self.report.resident.append(self._resident())
                if self._epoch() != epoch:
                    self.report.miss("leader", f"epoch {epoch} was over by call {call.number}")
                    epoch = self._epoch()
                revision = self._history.revision()
                told(done + 1)
        self.report.judge_memory()
        return self.report

    def send(self, call: FuzzedCall) -> FuzzOutcome:
        began = time.monotonic()
        code, details = _answer(self._callers.channels[call.role], call)
        return FuzzOutcome(call, code, details, time.monotonic() - began)

    def _look(self, call: FuzzedCall, before: int) -> int:
        """Whether a refused call wrote; the revision behind it."""
        self.report.checked += 1
        after = self._history.revision()
        if after == before or not unasked(self._history.written(before, after)):
            return after
        # Perhaps something that another call had set off. Made again in silence, it has to leave that as it is.
        self.report.looked_at += 1
        written: Sequence[str] = ()
        for _ in range(_LOOKS):
            before = self._until_quiet()
            outcome = self.send(call)
            after = self._history.revision()
            written = unasked(self._history.written(before, after)) if after > before else ()
            if not written or not outcome.is_refused:
                return after
        self.report.miss("revision", f"{call.path} of {call.role}, number {call.number}: refused, and wrote {', '.join(written)}")
        return after

    def _until_quiet(self) -> int:
        """The revision, once nothing but what is always written has been for a moment."""
        ends_at = time.monotonic() + _QUIET_SECONDS_MAX
        while True:
            before = self._history.revision()
            time.sleep(_QUIET_SECONDS)
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
