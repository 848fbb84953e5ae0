"""From a record in an actor to a line of the replica's log."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayched.actors import log_sending
from rayched.actors.log_sending import LogTarget, SendingHandler, send_logs
from rayched.replica.log_lines import JsonLine, TextLine
from rayched.replica.log_receiving import LogReceiver
from tests.replica.clusters import until_true

NAME = "rayched.tests.logs"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def received(tmp_path: Path) -> Iterator[tuple[LogReceiver, Kept]]:
    """A receiver; whatever it writes is kept. What this process sends comes from another logger than it is written by."""
    kept = Kept()
    logger = logging.getLogger(NAME)
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    with LogReceiver(tmp_path / "logs", logging.INFO) as receiver:
        yield receiver, kept
    logger.removeHandler(kept)


def a_sender(receiver: LogReceiver, context: Callable[[], dict[str, int]] = dict) -> SendingHandler:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(receiver.target.path)
    connection.setblocking(False)
    return SendingHandler(connection, "scheduler", context)


def a_record(message: str, *arguments: object, level: int = logging.WARNING, **extra: object) -> logging.LogRecord:
    return logging.getLogger(NAME).makeRecord(NAME, level, "", 0, message, arguments, None, extra=extra)


def test_a_record_arrives_with_its_time_its_fields_and_nothing_else(received: tuple[LogReceiver, Kept]) -> None:
    receiver, kept = received
    sender = a_sender(receiver, lambda: {"epoch": 17})
    record = a_record("pod %s is\nodd", "a/b", pod="a/b", attempt=2, cycle=0, password="hunter2")
    sender.emit(record)
    until_true(lambda: bool(kept.records), 5, "nothing arrived")
    line = json.loads(JsonLine().format(kept.records[0]))
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.created * 1000) % 1000:03}Z"
    assert line == {
        "time": when,
        "level": "WARNING",
        "logger": NAME,
        "message": "pod a/b is\nodd",
        "component": "scheduler",
        "pod": "a/b",
        "attempt": 2,
        "cycle": 0,
        "epoch": 17,
    }
    text = TextLine().format(kept.records[0])
    assert re.fullmatch(r"\S+ \S+ WARNING scheduler: pod a/b is\\nodd", text)
    sender.close()


def test_an_exception_is_told_with_its_story_in_one_line(received: tuple[LogReceiver, Kept]) -> None:
    receiver, kept = received
    sender = a_sender(receiver)
    record = a_record("the loop failed")
    try:
        raise ValueError("lost")
    except ValueError:
        record.exc_info = sys.exc_info()
    sender.emit(record)
    until_true(lambda: bool(kept.records), 5, "nothing arrived")
    line = JsonLine().format(kept.records[0])
    assert "\n" not in line
    assert json.loads(line)["error"].endswith("ValueError: lost")
    sender.close()


HOSTILE = "web\x1b[2J\x1b]0;owned\x07\r\n2026-01-31 12:00:00,000 INFO all is well\u202e\x9b31m\U000e0041"


@pytest.mark.parametrize("exception", [False, True])
def test_no_text_of_a_client_clears_a_screen_or_forges_a_line_of_the_log(exception: bool) -> None:
    record = a_record("pod %s cannot be read", HOSTILE)
    if exception:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            record.exc_info = sys.exc_info()
    text = TextLine().format(record)
    assert "cannot be read" in text and all(line.isprintable() for line in text.split("\n"))
    assert [line.startswith("    ") for line in text.split("\n")] == [False] + [True] * text.count("\n")
    assert (text.count("\n") > 0) is exception
    line = JsonLine().format(record)
    assert line.isprintable() and json.loads(line)["message"] == f"pod {HOSTILE} cannot be read"


def test_whoever_logs_does_not_wait_and_what_was_lost_is_counted(tmp_path: Path, received: tuple[LogReceiver, Kept]) -> None:
    _, kept = received
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "deaf"))
    listener.listen()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(tmp_path / "deaf"))
    connection.setblocking(False)
    sender = SendingHandler(connection, "queue", dict)
    began = time.monotonic()
    for number in range(2_000):
        sender.emit(a_record("%d %s", number, "x" * 500))
    assert time.monotonic() - began < 5
    reader, _ = listener.accept()
    reader.settimeout(0.2)
    arrived = 0
    with pytest.raises(TimeoutError):
        while reader.recv(1 << 18):
            arrived += 1
    assert 0 < arrived < 2_000
    sender.emit(a_record("the next one"))
    assert json.loads(reader.recv(1 << 18))["lost"] == 2_000 - arrived
    sender.emit(a_record("and the one after"))
    assert "lost" not in json.loads(reader.recv(1 << 18))
    for one in (sender, reader, listener):
        one.close()
    assert kept.records == []


def test_a_packet_that_is_no_record_stops_nothing(received: tuple[LogReceiver, Kept]) -> None:
    receiver, kept = received
    sender = a_sender(receiver)
    for packet in (b"{", b"[]", b'{"level": "x"}', b"\xff"):
        sender._connection.send(packet)
    sender.emit(a_record("still here"))
    until_true(lambda: [record.getMessage() for record in kept.records] == ["still here"], 5, "nothing arrived")
    sender.close()


def test_levels_hold_on_both_sides_and_a_replica_that_is_not_there_is_no_fault(
    received: tuple[LogReceiver, Kept], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    receiver, kept = received
    sender = a_sender(receiver)
    sender.emit(a_record("too much", level=logging.DEBUG))
    sender.emit(a_record("enough", level=logging.INFO))
    until_true(lambda: [record.getMessage() for record in kept.records] == ["enough"], 5, "nothing arrived")
    sender.close()
    monkeypatch.setattr(log_sending, "_LOGGERS", ("rayched.tests.sent",))
    send_logs(None, "queue")
    send_logs(LogTarget(str(tmp_path / "nobody"), logging.DEBUG), "queue")
    assert logging.getLogger("rayched.tests.sent").handlers == []
    send_logs(LogTarget(receiver.target.path, logging.WARNING), "queue")
    (handler,) = logging.getLogger("rayched.tests.sent").handlers
    assert logging.getLogger("rayched.tests.sent").level == logging.WARNING
    logging.getLogger("rayched.tests.sent").removeHandler(handler)
    handler.close()


def test_fields_of_the_replica_itself_come_from_its_context() -> None:
    line = json.loads(JsonLine(lambda: {"epoch": 5}).format(a_record("leads")))
    assert (line["component"], line["epoch"]) == ("replica", 5)
