"""The belief cell: what a worker process reads before it writes, and how it shows that it lives.

A file of one page, mapped by the elector's process and by the worker's. Writing and reading it is a few machine
instructions; no call has to reach the other process, so a belief ends by the clock even if everybody hangs.

    word  0   epoch            written by the elector alone; 0: none
    word  1   valid_until_ns   written by the elector alone; 0: withdrawn
    word  8   last_tick_ns     written by the worker alone, on a cache line of its own; 0: never
    word 16   what the file is

Times are CLOCK_BOOTTIME in nanoseconds, the same in all processes of a machine. Words are aligned int64, each stored by one
machine instruction. Two words together are kept whole by order: before the epoch changes, valid_until_ns is zeroed; a reader
reads the epoch, valid_until_ns, and the epoch again. Epochs never come back, so equal epochs prove that valid_until_ns
belongs to them. Processors that reorder stores could break that in theory; then the worker writes under an old epoch, and
the store refuses it. The cell saves attempts; safety is in the guard.

A new cell replaces the file at its path and does not touch the old one: whoever has that mapped sees its belief run out.

Cost: under a microsecond a call.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_SIZE: Final = 4096
_EPOCH: Final = 0
_VALID_UNTIL: Final = 1
_LAST_TICK: Final = 8
_KIND: Final = 16
_KIND_VALUE: Final = int.from_bytes(b"BELIEF1\0", "little")
_READS_MAX: Final = 100
"""A reader that meets so many changes of epoch in a row is not reading a sane cell."""


class BeliefCellError(ValueError):
    """The file is not a belief cell."""


@dataclass(frozen=True, slots=True)
class Belief:
    """Under `epoch` it may be written until `valid_until_ns`."""

    epoch: int
    valid_until_ns: int


class BeliefCell:
    """A mapped cell. Whoever made it closes it; a closed cell raises ValueError."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._words = memoryview(mapping).cast("q")

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """A new empty cell at `path`; for the elector's process. Use a file system in memory. Raises OSError."""
        target = Path(path)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Where the file system is full this says so; a page that is not there would end the process at the first store.
            os.posix_fallocate(descriptor, 0, _SIZE)
            cell = cls(mmap.mmap(descriptor, _SIZE))
        except OSError as error:
            draft.unlink()
            raise OSError(error.errno, error.strerror, str(target)) from error
        finally:
            os.close(descriptor)
        cell._words[_KIND] = _KIND_VALUE
        draft.replace(target)
        return cell

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The cell that was created at `path`; for the worker's process."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size != _SIZE:
                raise BeliefCellError(f"{os.fspath(path)}: {os.fstat(descriptor).st_size} bytes, a belief cell has {_SIZE}")
            cell = cls(mmap.mmap(descriptor, _SIZE))
        finally:
            os.close(descriptor)
        if cell._words[_KIND] != _KIND_VALUE:
            cell.close()
            raise BeliefCellError(f"{os.fspath(path)}: not a belief cell")
        return cell

    def belief(self) -> Belief | None:
        """What is believed; None where nothing is. Whether it is still valid is for the reader's clock to say."""
        words = self._words
        for _ in range(_READS_MAX):
            epoch = words[_EPOCH]
            valid_until_ns = words[_VALID_UNTIL]
            if words[_EPOCH] == epoch:
                return Belief(epoch, valid_until_ns) if epoch and valid_until_ns else None
        return None

    def publish(self, epoch: int, valid_until_ns: int) -> None:
        """For the elector alone."""
        words = self._words
        if words[_EPOCH] != epoch:
            words[_VALID_UNTIL] = 0
            words[_EPOCH] = epoch
        words[_VALID_UNTIL] = valid_until_ns

    def withdraw(self) -> None:
        """For the elector alone."""
        self._words[_VALID_UNTIL] = 0

    def tick(self, now_ns: int) -> None:
        """A sign of life; for the worker alone."""
        self._words[_LAST_TICK] = now_ns

    def last_tick(self) -> int | None:
        """When the worker last gave a sign of life; None: never."""
        return self._words[_LAST_TICK] or None

    def close(self) -> None:
        self._words.release()
        self._mapping.close()
