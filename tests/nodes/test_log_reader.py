"""Logs as they lie on the disk, read from place to place: written and rotated by the shim's own code."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rayched.nodes.agent.shim.log_file import LogFile
from rayched.nodes.agent.streams.log_reader import LogPlace, LogReader, LogText
from rayched.nodes.agent.streams.log_session import LogSession
from rayched.nodes.agent.streams.replica_stream import ReplicaStream
from rayched.nodes.agent.streams.targets import AttemptLog, StreamTargets
from rayched.v1.streams_pb2 import AgentFrame, LogsRequest

SMALL = 4_000
"""Bytes of a file."""
FILES = 5
"""Of a log, as kubelet has it."""


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last))


def all_of(path: Path, place: LogPlace | None = None, text: LogText | None = None) -> tuple[bytes, LogReader]:
    """What there is from the place on, and the reader at its end."""
    reader, found = LogReader(path, place), []
    text = text or LogText(b"", timestamps=False)
    while entries := reader.read():
        found.append(text.of(entries))
    return b"".join(found), reader


def size_of(path: Path) -> int:
    return sum(one.stat().st_size for one in path.parent.iterdir())


def test_a_reader_that_comes_back_gets_each_line_once_over_all_files(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log, place, found = LogFile(str(path), SMALL), None, b""
    for block in range(60):
        log.write("stdout", numbered(block * 50, block * 50 + 50))
        data, reader = all_of(path, place)
        found, place = found + data, reader.place
        assert not reader.lost
    assert found == numbered(0, 3000)
    assert len(list(tmp_path.iterdir())) == FILES


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=30))
def test_what_a_reader_gets_is_what_was_written_whenever_it_reads(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "0.log"
    log, place, found, number, unread = LogFile(str(path), SMALL), None, b"", 0, 0
    for lines, reads in steps:
        log.write("stderr", numbered(number, number + lines))
        number, unread = number + lines, unread + lines
        if reads or unread > 150:
            data, reader = all_of(path, place)
            found, place, unread = found + data, reader.place, 0
            assert not reader.lost
    assert found + all_of(path, place)[0] == numbered(0, number)


def test_lines_that_rotation_removed_are_told_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = LogFile(str(path), SMALL)
    log.write("stdout", numbered(0, 10))
    first, reader = all_of(path)
    for block in range(1, 100):
        log.write("stdout", numbered(block * 50, block * 50 + 50))
    rest, later = all_of(path, reader.place)
    assert first == numbered(0, 10) and later.lost
    begun = int(rest.split(b"\n", 1)[0])
    assert rest == numbered(begun, 5000) and begun > 50


def test_a_file_that_has_the_number_of_one_that_was_removed_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = LogFile(str(path), SMALL)
    log.write("stdout", numbered(0, 20))
    _, reader = all_of(path)
    other = LogPlace(reader.place.file, b"2001-01-01T00:00:00.000000000Z", reader.place.offset)
    found, later = all_of(path, other)
    assert found == numbered(0, 20) and later.lost


@pytest.mark.row("N121")
def test_a_log_takes_no_more_than_its_files_whatever_is_written(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = LogFile(str(path), SMALL)
    most = 0
    for block in range(1500):
        log.write("stdout", numbered(block * 10, block * 10 + 10))
        most = max(most, size_of(path))
    assert FILES * SMALL * 0.8 < most <= FILES * SMALL


@pytest.mark.row("N120")
@pytest.mark.parametrize("lines", [0, 1, 3, 90, 300, 1_000_000])
def test_a_tail_is_counted_over_files(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "0.log"
    log = LogFile(str(path), SMALL)
    for block in range(30):
        log.write("stdout", numbered(block * 10, block * 10 + 10))
    reader = LogReader(path)
    reader.begin_at_tail(lines)
    found, _ = all_of(path, reader.place)
    assert found == numbered(max(300 - lines, 0), 300) and len(list(tmp_path.iterdir())) == 4


def test_the_tail_of_a_log_that_is_not_there_is_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    reader = LogReader(path)
    reader.begin_at_tail(0)
    assert reader.bytes_left() == 0 and reader.read() == b""
    LogFile(str(path)).write("stdout", b"first\n")
    assert all_of(path, reader.place)[0] == b"first\n" and not reader.lost


@pytest.mark.row("N120")
def test_times_and_parts_of_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = LogFile(str(path), 1 << 20)
    long = b"x" * 40_000
    log.write("stdout", long + b"\nshort\n\n")
    assert all_of(path)[0] == long + b"\nshort\n\n"
    timed = all_of(path, text=LogText(b"", timestamps=True))[0].split(b"\n")
    assert [line[31:] for line in timed] == [long, b"short", b"", b""]
    stamp = timed[1][:30]
    assert len(timed[1].split(b" ", 1)[0]) == 30
    # The comparison takes in the moment itself.
    assert all_of(path, text=LogText(stamp, timestamps=False))[0].endswith(b"short\n\n")
    assert all_of(path, text=LogText(b"2999-01-01T00:00:00.000000000Z", timestamps=False))[0] == b""


def test_what_a_full_disk_tore_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = LogFile(str(path), SMALL)
    log.write("stdout", b"whole\n")
    with open(path, "ab") as file:
        file.write(b"2026-11-23T06:39:40.1234")
    log.write("stdout", b"joined\nafter\n")
    assert all_of(path)[0] == b"whole\nafter\n"


def test_an_unfinished_entry_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    LogFile(str(path), SMALL).write("stdout", b"whole\n")
    found, reader = all_of(path)
    with open(path, "ab") as file:
        file.write(b"2026-11-23T06:39:40.123456789Z stdout F half")
        file.flush()
        assert reader.read() == b"" and found == b"whole\n"
        file.write(b" more\n")
    assert LogText(b"", timestamps=False).of(reader.read()) == b"half more\n"


def test_who_has_begun_with_a_log_that_is_gone_has_lost_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    nothing = LogReader(path)
    assert nothing.read() == b"" and not nothing.lost
    path.write_bytes(b"")
    reader = LogReader(path)
    assert reader.read() == b"" and not reader.lost
    path.unlink()
    assert reader.read() == b"" and reader.lost


def test_no_file_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    LogFile(str(path), SMALL).write("stdout", numbered(0, 20))
    before = len(os.listdir("/proc/self/fd"))
    reader = LogReader(path)
    reader.begin_at_tail(5)
    assert reader.read() and len(os.listdir("/proc/self/fd")) == before


class Received(ReplicaStream):
    """What a session sends, without a replica."""

    def __init__(self) -> None:
        self.data = b""

    async def write(self, frame: AgentFrame) -> None:
        self.data += frame.logs.data


class WritesWhenLookedAt(AttemptLog):
    """An attempt that writes its last line, and ends, between a reader's look at the log and the one at its end."""

    def is_over(self) -> bool:
        if not self.directory.exists():
            LogFile(str(self.path)).write("stdout", b"last\n")
            self.directory.mkdir()
            (self.directory / "exit.json").touch()
        return super().is_over()


@pytest.mark.row("N119")
def test_what_is_written_right_before_the_end_is_followed(tmp_path: Path) -> None:
    target = WritesWhenLookedAt(0, tmp_path / "0.log", tmp_path / "attempt")
    LogFile(str(target.path)).write("stdout", b"first\n")

    async def ask(_: object) -> AttemptLog:
        return target

    async def play() -> bytes:
        stream = Received()
        with ThreadPoolExecutor(1) as readers:
            await LogSession("uid", LogsRequest(follow=True), stream, readers).run(StreamTargets({}), ask)
        return stream.data

    assert asyncio.run(play()) == b"first\nlast\n"
