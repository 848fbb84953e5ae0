"""What an agent says is kept, within bounds, and a disk that does not take it is told of once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayched.raynodes import output_file
from rayched.raynodes.output_file import OutputFile


def test_the_file_is_turned_before_it_grows_beyond_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_file, "FILE_BYTES_MAX", 100)
    path = tmp_path / "agent.log"
    output = OutputFile(path)
    for number in range(30):
        assert output.write(f"line {number:03}\n".encode()) == ""
    assert path.stat().st_size <= 100 and Path(f"{path}.1").stat().st_size <= 100
    kept = (Path(f"{path}.1").read_text() + path.read_text()).splitlines()
    assert kept[-1] == "line 029" and kept == [f"line {number:03}" for number in range(30 - len(kept), 30)]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["agent.log", "agent.log.1"]
    assert path.stat().st_mode & 0o077 == 0


def test_the_last_line_is_what_it_said_last_however_it_comes(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "agent.log")
    assert output.last_line == ""
    for data, wanted in ((b"one\ntw", "tw"), (b"o\n\n  \n", "two"), (b"\xff!", "\ufffd!"), (b"x" * 5000, "x" * 1000)):
        output.write(data)
        assert output.last_line == wanted


def test_a_file_that_cannot_be_written_is_told_of_once(tmp_path: Path) -> None:
    path = tmp_path / "there" / "agent.log"
    output = OutputFile(path)
    assert output.write(b"one\n") == f"{path}: what the agent says is lost (No such file or directory)"
    assert output.write(b"two\n") == "" and output.last_line == "two"
    path.parent.mkdir()
    assert output.write(b"three\n") == "" and path.read_text() == "three\n"
    path.unlink()
    path.parent.rmdir()
    assert "is lost" in output.write(b"four\n"), "a fault that comes again is told of again"
