"""A log that somebody goes on appending to, cut while he does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayched.replica.log_file import cut, former


def test_a_log_that_is_too_large_is_cut_under_its_writer_and_its_last_part_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "etcd.log"
    with path.open("ab", buffering=0) as log:
        for number in range(4):
            log.write(b"%d" % number * 101)
            assert cut(path, 100)
            # Nothing but that part: the writer goes on at the beginning, and leaves no hole.
            assert path.read_bytes() == b"" and former(path).read_bytes() == b"%d" % number * 101
        log.write(b"x" * 100)
        assert not cut(path, 100)
    assert path.read_bytes() == b"x" * 100 and former(path).read_bytes() == b"3" * 101
    assert {one.name for one in tmp_path.iterdir()} == {"etcd.log", "etcd.log.1"}


def test_a_log_that_cannot_be_copied_is_cut_all_the_same_and_told(tmp_path: Path) -> None:
    path = tmp_path / "etcd.log"
    path.write_bytes(b"x" * 101)
    # Nothing can take the place of a directory that is not empty.
    (former(path) / "in the way").mkdir(parents=True)
    with pytest.raises(OSError):
        cut(path, 100)
    assert path.read_bytes() == b"" and {one.name for one in tmp_path.iterdir()} == {"etcd.log", "etcd.log.1"}


def test_a_log_that_is_not_there_yet_is_not_cut(tmp_path: Path) -> None:
    assert not cut(tmp_path / "etcd.log")
