"""Breaks rules of the production code in every Python process with this folder on PYTHONPATH, as the module with the rule loads.

Real replicas start processes of their own, and those start Ray's, so a rule has to be broken from outside: $CHAOS_BROKEN_RULES
names rules, separated by commas, in the form module:path. Nothing else is imported before its time.

With $CHAOS_BOARD rules are broken and kept again at run time: it names a file (tests/chaos/switchboard.py) that has a byte for
each rule of $CHAOS_BOARD_RULES, and for each replica how far its wall clock is ahead.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import mmap
import os
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType

VARIABLE = "CHAOS_BROKEN_RULES"
BOARD_VARIABLE = "CHAOS_BOARD"
RULES_VARIABLE = "CHAOS_BOARD_RULES"
SLOT_VARIABLE = "CHAOS_BOARD_SLOT"
BOARD_BYTES = 4096
BOARD_RULES_AT = 64
"""Of the first rule's byte; before them lie the clocks."""


class _Switch:
    """Stands in for a rule: true while its byte on the board is zero. Some rules are counted with."""

    def __init__(self, board: mmap.mmap, place: int) -> None:
        self._board, self._place = board, place

    def __bool__(self) -> bool:
        return not self._board[self._place]

    def __radd__(self, other: int) -> int:
        return other + bool(self)


class _Breaking(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module, and breaks its rules once it has run."""

    def __init__(self, rules: Mapping[str, object]) -> None:
        """What each rule becomes."""
        self._rules: dict[str, dict[str, object]] = {}
        for rule, value in rules.items():
            module, _, path = rule.partition(":")
            self._rules.setdefault(module, {})[path] = value

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        paths = self._rules.pop(name, None)
        if paths is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_break(module: ModuleType) -> None:
            run(module)
            for where, value in paths.items():
                *owners, rule = where.split(".")
                owner: object = module
                for part in owners:
                    owner = getattr(owner, part)
                if getattr(owner, rule) is not True:
                    raise ImportError(f"{name} has no unbroken rule {where}")
                setattr(owner, rule, value)

        spec.loader.exec_module = run_and_break  # type: ignore[method-assign]
        return spec


def _on_the_board(path: str) -> dict[str, object]:
    """The switches of all rules; and the wall clock is this replica's from now on, as far as it is read in nanoseconds."""
    with open(path, "r+b") as file:
        board = mmap.mmap(file.fileno(), BOARD_BYTES)
    slot, read = 8 * int(os.environ[SLOT_VARIABLE]), time.clock_gettime_ns

    def clock_gettime_ns(clock: int) -> int:
        ahead: int = struct.unpack_from("q", board, slot)[0] if clock == time.CLOCK_REALTIME else 0
        return read(clock) + ahead

    time.clock_gettime_ns = clock_gettime_ns
    return {rule: _Switch(board, BOARD_RULES_AT + place) for place, rule in enumerate(os.environ[RULES_VARIABLE].split(","))}


_rules: dict[str, object] = {rule: False for rule in os.environ.get(VARIABLE, "").split(",") if rule}
if _board := os.environ.get(BOARD_VARIABLE):
    _rules = {**_on_the_board(_board), **_rules}
if _rules:
    sys.meta_path.insert(0, _Breaking(_rules))
