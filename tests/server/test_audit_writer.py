"""Lines are written in a thread of their own: no call waits for long, what is lost is told, and strictness refuses."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rayched.access.audit_line import AuditEntry, ChainFault, verified
from rayched.access.requests import RequestFacts
from rayched.server.admission.write_gate import WriteGate
from rayched.server.audit_log import AuditLog, AuditLogError, StandardOutput
from rayched.server.audit_recorder import AuditRecorder
from rayched.server.audit_writer import WAIT_SECONDS, AuditWriter
from rayched.server.call_guard import INSECURE_ADMIN
from rayched.server.edge.caller import Caller
from rayched.server.errors import ApiFailure
from rayched.server.http.api_metrics import audit_metrics
from rayched.server.rpc import handler_of
from rayched.v1 import services_pb2 as messages
from tests.access.test_audit_line import an_entry
from tests.access.test_call_guard import ContextWith
from tests.server.edge_server import SUBMISSION, EdgeServing, edge_serving
from tests.server.objects import a_pod
from tests.server.serving import until

GET = messages.GetRequest(key=messages.ObjectKey(kind="Pod", name="web"))
PIPE_BYTES = 4_096


class HeldSink:
    """A real log whose disk takes its time: it is written to while `let` is set."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self.let = threading.Event()

    def append(self, *entries: AuditEntry) -> None:
        self.let.wait()
        self._log.append(*entries)

    def close(self) -> None:
        self._log.close()


def values(writer: AuditWriter) -> dict[str, float]:
    samples = (sample for family in audit_metrics(writer) for sample in family.samples)
    return {f"{sample.name} {' '.join(sample.labels.values())}".strip(): sample.value for sample in samples}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_whoever_waits_for_a_line_goes_on_when_it_is_written(tmp_path: Path) -> None:
    writer = AuditWriter(AuditLog(tmp_path / "log"), "replica-0")

    async def play() -> None:
        for _ in range(50):
            number = writer.put(an_entry())
            await writer.written(number)
            assert len(lines_of(tmp_path / "log")) == number
        await asyncio.gather(*(writer.written(writer.put(an_entry())) for _ in range(500)))
        assert len(lines_of(tmp_path / "log")) == 550

    asyncio.run(play())
    writer.close()
    assert values(writer)["rayched_audit_lines_total written"] == 550


def test_a_slow_disk_holds_up_an_answer_for_a_moment_and_no_longer(tmp_path: Path) -> None:
    sink = HeldSink(AuditLog(tmp_path / "log"))
    writer = AuditWriter(sink, "replica-0")

    async def play() -> float:
        began = time.monotonic()
        await writer.written(writer.put(an_entry()))
        return time.monotonic() - began

    assert WAIT_SECONDS * 0.9 < asyncio.run(play()) < WAIT_SECONDS + 5.0
    assert lines_of(tmp_path / "log") == [] and writer.waiting == 1
    sink.let.set()
    writer.close()
    assert len(lines_of(tmp_path / "log")) == 1


def test_what_finds_no_place_is_counted_and_a_line_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = HeldSink(AuditLog(tmp_path / "log"))
    writer = AuditWriter(sink, "replica-0", queue_max=10)
    with caplog.at_level(logging.ERROR):
        taken = [writer.put(an_entry(id=str(number))) for number in range(25)]
    assert [bool(number) for number in taken] == [True] * 10 + [False] * 15
    assert values(writer) == {
        "rayched_audit_lines_total written": 0,
        "rayched_audit_lines_total lost": 15,
        "rayched_audit_lines_waiting": 10,
        "rayched_audit_failing": 0,
    }
    assert [record.message for record in caplog.records] == [
        "audit log: 1 lines are lost: more calls come than can be written down"
    ]
    sink.let.set()
    writer.close()
    lines = lines_of(tmp_path / "log")
    assert [line["id"] for line in lines if "id" in line] == [str(number) for number in range(10)]
    assert sum(line.get("lost", 0) for line in lines) == 15 and {line["stage"] for line in lines} == {"complete", "lost"}


@pytest.fixture
def narrow() -> Iterator[tuple[int, int]]:
    """Two ends of a pipe that takes a page, and refuses what is more as a full disk does."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(writing, False)
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(writing)
    os.close(reading)


def test_where_nothing_can_be_written_it_is_told_and_goes_on_in_the_middle_of_a_line(
    narrow: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    reading, writing = narrow
    writer = AuditWriter(StandardOutput(writing), "replica-0")
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            writer.put(an_entry(id=str(number)))
        until(lambda: bool(writer.failing))
        assert values(writer)["rayched_audit_failing"] == 1
        read = b""
        while read.count(b"\n") < 100:
            try:
                read += os.read(reading, PIPE_BYTES)
            except BlockingIOError:
                time.sleep(0.01)
        until(lambda: not writer.failing)
    writer.close()
    assert "nothing can be written, calls are answered all the same: the standard output: " in caplog.text
    assert "the audit log is written again" in caplog.text
    assert [json.loads(line)["id"] for line in read.splitlines()] == [str(number) for number in range(100)]
    assert not any(isinstance(one, ChainFault) for one in verified([("", line) for line in read.splitlines()]))


def audited(server: EdgeServing, writer: AuditWriter) -> Any:
    """The server's Submission once more, under an audit log; its stub."""
    handler = handler_of(SUBMISSION, server.service, WriteGate(), server.edge, server._guard, AuditRecorder(writer))
    # The first handler that knows a method has it, so this one has a server of its own.
    return server.on_loop(lambda: _second(handler))


def _second(handler: Any) -> Any:
    second = grpc.aio.server()
    second.add_generic_rpc_handlers((handler,))
    return second, second.add_insecure_port("127.0.0.1:0")


@pytest.mark.parametrize("strict", [False, True])
def test_on_a_full_disk_calls_are_answered_at_once_unless_they_have_to_be_written_down(strict: bool) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    writer = AuditWriter(StandardOutput(full), "replica-0", strict=strict)
    with edge_serving() as server:
        second, port = audited(server, writer)
        server.run(second.start())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            get = channel.unary_unary("/rayched.v1.Submission/Get", messages.GetRequest.SerializeToString)
            submit = channel.unary_unary("/rayched.v1.Submission/Submit", messages.SubmitRequest.SerializeToString)
            get(GET, timeout=10)
            until(lambda: bool(writer.failing))
            assert "No space left on device" in writer.failing
            get(GET, timeout=10)
            request = messages.SubmitRequest()
            request.object.pod.CopyFrom(a_pod("web"))
            if strict:
                with pytest.raises(grpc.RpcError) as raised:
                    submit(request, timeout=10)
                assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
                assert raised.value.details() == "this replica cannot write its audit log, nothing of this call was done"
            else:
                submit(request, timeout=10)
            assert server.service.begun.count("submit") == (0 if strict else 1)
        server.run(second.stop(0))
    writer.close()
    os.close(full)
    assert writer.waiting == 3


class SteppedSink(HeldSink):
    """It writes once for each step that it is let."""

    def __init__(self, log: AuditLog) -> None:
        super().__init__(log)
        self.let.set()
        self.steps = threading.Semaphore(0)

    def append(self, *entries: AuditEntry) -> None:
        self.steps.acquire()
        super().append(*entries)


def is_refused(recorder: AuditRecorder, call: str) -> bool:
    try:
        recorder.check(call)
    except ApiFailure as failure:
        assert failure.code is grpc.StatusCode.UNAVAILABLE
        return True
    return False


@pytest.mark.parametrize("call", ["Submission.Submit", "Scheduling.Bind", "Exec.Stream"])
def test_what_changes_something_is_refused_while_the_disk_holds_and_until_what_is_lost_is_told(tmp_path: Path, call: str) -> None:
    sink = SteppedSink(AuditLog(tmp_path / "log"))
    writer = AuditWriter(sink, "replica-0", strict=True, queue_max=2)
    recorder = AuditRecorder(writer)
    writer.put(an_entry())
    # The thread has that one, and knows of no loss.
    until(lambda: not writer._queue)
    assert not is_refused(recorder, call)
    writer.put(an_entry())
    assert writer.waiting == 2 and not writer.failing and is_refused(recorder, call), "no place is left"
    assert not writer.put(an_entry())
    sink.steps.release()
    until(lambda: writer.waiting == 1)
    assert is_refused(recorder, call) and not is_refused(recorder, "Submission.Get"), "no line tells of the lost one"
    sink.steps.release()
    until(lambda: not is_refused(recorder, call))
    writer.close()
    assert [line.get("lost", 0) for line in lines_of(tmp_path / "log")] == [0, 0, 1]


def test_a_binding_has_its_revision_in_its_line(tmp_path: Path) -> None:
    writer = AuditWriter(AuditLog(tmp_path / "log"), "replica-0")
    record = AuditRecorder(writer).begin("Scheduling.Bind", ContextWith())
    caller = Caller(INSECURE_ADMIN, "ipv4:127.0.0.1:40000", "127.0.0.1")
    caller.facts = (RequestFacts("Pod", "team-a", "web"),)
    record.caller = caller
    record.judged(messages.BindRequest(namespace="team-a", name="web", node="node-1"), lasts=False)
    record.answered(messages.BindResponse(uid="uid-1", revision=42))
    writer.close()
    (line,) = lines_of(tmp_path / "log")
    assert (line["call"], line["name"], line["uid"], line["revision"]) == ("Scheduling.Bind", "web", "uid-1", 42)


def test_two_replicas_do_not_write_one_file(tmp_path: Path) -> None:
    first = AuditLog(tmp_path / "log")
    with pytest.raises(AuditLogError, match=f"{tmp_path / 'log'}: another replica writes it; name another file"):
        AuditLog(tmp_path / "log")
    first.close()
    AuditLog(tmp_path / "log").close()
    assert (tmp_path / "log.lock").stat().st_mode & 0o777 == 0o600
