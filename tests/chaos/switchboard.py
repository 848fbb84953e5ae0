"""Rules that are broken and kept again while replicas run, and wall clocks that step: a file that all their processes map.

`planted/sitecustomize.py` reads it in the replicas. A rule holds while its byte is zero; the first words are how far the wall
clock of each replica is ahead, in nanoseconds, as far as the election reads it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.chaos.planted.sitecustomize import BOARD_BYTES, BOARD_RULES_AT, BOARD_VARIABLE, RULES_VARIABLE, SLOT_VARIABLE
from tests.planted_bugs import BUGS, GROUPS, SWITCHES

PLANTED: Final = Path(__file__).parent / "planted"
_RULE_OF: Final = {**BUGS, **GROUPS, **SWITCHES}
_RULES: Final = sorted(_RULE_OF.values())


class Switchboard:
    """Whoever makes it closes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(BOARD_BYTES))
        with path.open("r+b") as file:
            self._board = mmap.mmap(file.fileno(), BOARD_BYTES)

    def close(self) -> None:
        self._board.close()

    def environment(self, replica: int) -> Mapping[str, str]:
        """What a replica has to be started with."""
        path = os.pathsep.join(filter(None, (str(PLANTED), os.environ.get("PYTHONPATH", ""))))
        board = {BOARD_VARIABLE: str(self._path), RULES_VARIABLE: ",".join(_RULES), SLOT_VARIABLE: str(replica)}
        return {"PYTHONPATH": path, **board}

    @contextlib.contextmanager
    def broken(self, *bugs: str) -> Iterator[None]:
        """While inside, the rules of these bugs are broken in every replica."""
        self._set(bugs, 1)
        try:
            yield
        finally:
            self._set(bugs, 0)

    def step_wall_clock(self, replica: int, ahead_ns: int) -> None:
        """The replica's wall clock is so far ahead from now on."""
        struct.pack_into("q", self._board, 8 * replica, ahead_ns)

    def _set(self, bugs: tuple[str, ...], value: int) -> None:
        for bug in bugs:
            self._board[BOARD_RULES_AT + _RULES.index(_RULE_OF[bug])] = value


def wall_clock_at_boottime() -> int:
    """How far ahead a wall clock is that shows the time since the machine started; with it a bug that takes one for the other
    is planted without a step."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_REALTIME)
