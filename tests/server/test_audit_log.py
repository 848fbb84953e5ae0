"""The audit log as files: it goes on after whatever ended the process before, and a disk that is full loses no order."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rayched.access.audit_line import ChainEnd, ChainFault, verified
from rayched.server.audit_log import AuditLog, AuditLogError, AuditUnavailable, numbered
from tests.access.test_audit_line import an_entry
from tests.cli.cluster import run_here


def lines_in(path: Path, files: int = 1) -> list[bytes]:
    return [line for number in reversed(range(files)) for line in numbered(path, number).read_bytes().splitlines()]


def is_whole(lines: list[bytes]) -> bool:
    return not any(isinstance(one, ChainFault) for one in verified([("", line) for line in lines]))


def test_the_next_log_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    ends = []
    for number in range(3):
        audit = AuditLog(path)
        for _ in range(2):
            audit.append(an_entry(id=str(number)))
        ends.append(audit.end.number)
        audit.close()
    assert ends == [2, 4, 6] and is_whole(lines_in(path)) and len(lines_in(path)) == 6
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_nobody_else_may_read_it_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        AuditLog(tmp_path / "audit.jsonl").close()
    finally:
        os.umask(before)
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_files_are_turned_over_by_size_and_the_chain_goes_on_through_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path, file_bytes_max=1_000, files=3)
    for number in range(40):
        audit.append(an_entry(id=str(number)))
    audit.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "audit.jsonl",
        "audit.jsonl.1",
        "audit.jsonl.2",
        "audit.jsonl.lock",
    ]
    lines = lines_in(path, 3)
    assert is_whole(lines) and len(lines) < 40 and b'"n":40,' in lines[-1]
    assert all(numbered(path, number).stat().st_size < 1_500 for number in range(3))
    # The one that follows begins with an empty file, and knows what came before it.
    numbered(path, 1).write_bytes(path.read_bytes())
    path.write_bytes(b"")
    audit = AuditLog(path)
    audit.append(an_entry())
    audit.close()
    assert b'"n":41,' in lines_in(path)[0]


def test_a_last_line_without_an_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    audit.append(an_entry())
    audit.close()
    with path.open("ab") as file:
        file.write(b'{"n":2,"before":')
    audit = AuditLog(path)
    audit.append(an_entry())
    audit.close()
    assert is_whole(lines_in(path)) and len(lines_in(path)) == 2


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"some text\n", 0o600, "its last line is none of an audit log; move the file away, or name another one"),
        (b"", 0o640, "others can read or write it; chmod 600"),
    ],
)
def test_another_file_is_not_gone_on_with(tmp_path: Path, content: bytes, mode: int, words: str) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(AuditLogError, match=words):
        AuditLog(path)
    assert path.read_bytes() == content


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError) as refused:
        AuditLog(tmp_path / "audit.jsonl")
    assert refused.value.errno == errno.ELOOP and not (tmp_path / "elsewhere").exists()


def test_a_full_disk_is_told_and_the_log_goes_on_with_the_next_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that the disk takes a part of, as one does whose last block is the last."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    audit.append(an_entry())
    real = os.write
    room = [20]

    def write(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0], taken = 0, room[0]
        return real(fd, data[:taken])

    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        with pytest.raises(AuditUnavailable, match=f"{path}: No space left on device"):
            audit.append(an_entry())
    assert len(lines_in(path)) == 1
    audit.append(an_entry())
    audit.close()
    assert is_whole(lines_in(path)) and audit.end.number == 2


def test_files_that_cannot_be_turned_over_stay_where_they_are_however_often_it_is_tried(tmp_path: Path) -> None:
    """With a process that may open no more files."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path, file_bytes_max=1_000, files=3)
    while audit._size < 1_000 or not numbered(path, 2).exists():
        audit.append(an_entry())
    before = lines_in(path, 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for _ in range(4):
            with pytest.raises(AuditUnavailable, match="Too many open files"):
                audit.append(an_entry())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert lines_in(path, 3) == before
    audit.append(an_entry())
    audit.close()
    assert lines_in(path)[0] not in before and lines_in(path, 3)[:-1] == before[-len(lines_in(path, 3)) + 1 :]
    assert is_whole(lines_in(path, 3))


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_file_that_cannot_be_moved_costs_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    """The disk fails at one of the three moves, and at the same one again."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path, file_bytes_max=1_000, files=3)
    while audit._size < 1_000 or not numbered(path, 2).exists():
        audit.append(an_entry())
    newest = lines_in(path, 2)
    real, moves = Path.replace, list[Path]()

    def replace(one: Path, other: Path) -> Path:
        if len(moves) == fails - 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        moves.append(other)
        return real(one, other)

    with monkeypatch.context() as failing:
        failing.setattr(Path, "replace", replace)
        for _ in range(4):
            with pytest.raises(AuditUnavailable, match="Input/output error"):
                audit.append(an_entry())
    audit.append(an_entry())
    audit.close()
    assert lines_in(path, 3)[:-1] == newest and is_whole(lines_in(path, 3))


def test_lines_of_many_threads_are_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path, file_bytes_max=10_000, files=99)
    threads = [threading.Thread(target=lambda: [audit.append(an_entry()) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    audit.close()
    count = len(list(tmp_path.glob("*.jsonl*"))) - 1
    lines = lines_in(path, count)
    assert count > 5 and len(lines) == 400 and is_whole(lines)


_WRITES = """
import sys, pathlib
from rayched.server.audit_log import AuditLog
from tests.access.test_audit_line import an_entry
audit = AuditLog(pathlib.Path(sys.argv[1]))
while True:
    audit.append(an_entry())
    print(audit.end.number, flush=True)
"""


def test_what_was_answered_for_is_there_after_the_process_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with subprocess.Popen([sys.executable, "-c", _WRITES, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        process.kill()
        rest = [int(line) for line in process.stdout.read().split()]
    lines = lines_in(path)
    assert is_whole(lines) and len(lines) >= max([50, *rest])


@pytest.mark.row("B110")
def test_the_command_reads_all_files_and_tells_each_fault(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path, file_bytes_max=1_000, files=8)
    for number in range(20):
        audit.append(an_entry(id=str(number)))
    end: ChainEnd = audit.end
    audit.close()
    files = len(list(tmp_path.iterdir())) - 1
    found = run_here(["audit", "verify", str(path)])
    last = f"{end.number}:{end.digest}"
    assert (found.code, found.out) == (0, f"20 lines in {files} files, the last one is {last}\n")
    assert run_here(["audit", "verify", str(path), "--since", last]).code == 0
    older = numbered(path, 1)
    lines = older.read_bytes().splitlines(keepends=True)
    older.write_bytes(b"".join(lines[:1] + lines[2:]))
    found = run_here(["audit", "verify", str(path)])
    assert found.code == 1 and found.out == ""
    assert f"{older}:2: has number" in " ".join(found.errors)
    path.write_bytes(b"")
    found = run_here(["audit", "verify", str(path), "--since", last])
    assert found.code == 1 and f"--since {last}: no such line is there" in " ".join(found.errors)
    assert run_here(["audit", "verify", str(path), "--since", "7:abc"]).code == 2
    found = run_here(["audit", "verify", str(tmp_path / "none")])
    assert (found.code, found.errors) == (1, [f"error: {tmp_path / 'none'}: No such file or directory"])
