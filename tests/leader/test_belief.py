"""The belief cell between two processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leader.belief import Belief, BeliefCell, BeliefCellError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cell"


def test_what_the_elector_publishes_the_worker_reads_and_the_other_way_round(path: Path) -> None:
    elector, worker = BeliefCell.create(path), BeliefCell.open(path)
    assert worker.belief() is None and elector.last_tick() is None
    elector.publish(7, 1_000)
    assert worker.belief() == Belief(7, 1_000)
    elector.publish(7, 2_000)
    elector.publish(9, 2**62)
    assert worker.belief() == Belief(9, 2**62)
    worker.tick(123)
    assert elector.last_tick() == 123 and worker.belief() == Belief(9, 2**62)
    elector.withdraw()
    assert worker.belief() is None


def test_a_new_cell_at_the_same_path_leaves_readers_of_the_old_one_alone(path: Path) -> None:
    first = BeliefCell.create(path)
    first.publish(7, 1_000)
    old_worker = BeliefCell.open(path)
    second = BeliefCell.create(path)
    second.publish(8, 1_000)
    assert old_worker.belief() == Belief(7, 1_000)
    assert BeliefCell.open(path).belief() == Belief(8, 1_000)
    assert [entry.name for entry in path.parent.iterdir()] == ["cell"]


def test_a_file_that_is_no_cell_is_refused(path: Path) -> None:
    path.write_bytes(b"short")
    with pytest.raises(BeliefCellError, match="5 bytes, a belief cell has 4096"):
        BeliefCell.open(path)
    path.write_bytes(bytes(4096))
    with pytest.raises(BeliefCellError, match="not a belief cell"):
        BeliefCell.open(path)
    with pytest.raises(FileNotFoundError):
        BeliefCell.open(path.parent / "none")


def test_a_closed_cell_raises_in_place_of_answering(path: Path) -> None:
    cell = BeliefCell.create(path)
    cell.close()
    with pytest.raises(ValueError):
        cell.belief()


WRITER = """
import sys
from leader.belief import BeliefCell
cell = BeliefCell.open(sys.argv[1])
epoch = 0
while True:
    epoch += 1
    cell.publish(epoch, epoch * 1000 + 1)
    cell.publish(epoch, epoch * 1000 + 2)
    if epoch % 3 == 0:
        cell.withdraw()
"""


@pytest.mark.cluster
def test_a_reader_in_another_process_never_sees_the_time_of_one_epoch_with_another(path: Path) -> None:
    cell = BeliefCell.create(path)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    try:
        seen: set[int] = set()
        until = time.monotonic() + 10
        while len(seen) < 2000 and time.monotonic() < until:
            belief = cell.belief()
            if belief is not None:
                assert belief.valid_until_ns // 1000 == belief.epoch
                seen.add(belief.epoch)
        assert len(seen) > 50
    finally:
        writer.kill()
        writer.wait()


def test_a_file_system_without_room_is_told_before_anything_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        BeliefCell.create(path)
    assert caught.value.filename == str(path) and list(path.parent.iterdir()) == []


def test_a_new_cell_has_its_page_and_no_hole(path: Path) -> None:
    cell = BeliefCell.create(path)
    assert path.stat().st_blocks * 512 >= path.stat().st_size == 4096
    cell.close()
