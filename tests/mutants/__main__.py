"""Plant small changes into the code, one at a time, and count how many of them a test notices.

A sample of the mutants of each room is drawn from a seed. A mutant is killed when a test fails, or takes many times as long as
without it. Exit code 1: a room's score is below its target, or `equivalent.toml` is out of date.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import tomllib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.mutants import trial
from tests.mutants.operators import Mutant
from tests.mutants.rooms import ROOMS, ROOT
from tests.sampling import ALL_EXAMPLES

EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
TARGET_PERCENT: Final = 85.0


class Verdict(Enum):
    KILLED = "killed"
    TIMEOUT = "timeouts"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"


@dataclass
class Job:
    room: str
    mutant: Mutant
    stages: list[list[trial.Test]]
    """What is left to run: the next tests last."""
    killer: str = ""
    """The test that failed, while it is tried without the mutant."""


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    rooms = options.room or list(ROOMS)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return Run(Path(folder), options, rooms).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default 1)")
    parser.add_argument("--count", type=int, default=200, help="mutants, spread evenly over the rooms (default 200)")
    parser.add_argument("--all", action="store_true", help="all mutants of the rooms")
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this one; may be repeated")
    parser.add_argument("--at", action="append", default=[], metavar="FILE[:LINE]", help="all mutants there; may be repeated")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time (default 2)")
    parser.add_argument("--verbose", action="store_true", help="tell each mutant and the test that killed it")
    return parser


class Run:
    def __init__(self, folder: Path, options: argparse.Namespace, rooms: list[str]) -> None:
        self._folder = folder
        self._options = options
        self._equivalent, self._out_of_date = _equivalent(rooms)
        self._sample = {room: self._drawn(room, -(-options.count // len(rooms))) for room in rooms}
        self._recordings: dict[str, trial.Recording] = {}
        self._verdicts: dict[str, Counter[Verdict]] = {room: Counter() for room in rooms}
        self._survivors: list[tuple[Mutant, str]] = []
        self._judges = {""}

    def _drawn(self, room: str, count: int) -> list[Mutant]:
        found = ROOMS[room].mutants
        if self._options.at:
            return [mutant for mutant in found if {mutant.file, f"{mutant.file}:{mutant.line}"} & set(self._options.at)]
        if self._options.all:
            return found
        return random.Random(f"{self._options.seed} {room}").sample(found, min(count, len(found)))

    def run(self) -> int:
        began = time.monotonic()
        for room in self._sample:
            print(f"{room}: {len(self._sample[room])} of {len(ROOMS[room].mutants)} mutants", flush=True)
        if not self._run_without_mutant():
            return 2
        self._run_mutants()
        for mutant, why in sorted(self._survivors, key=lambda one: (one[0].file, one[0].line)):
            print(f"\nsurvived: {mutant}{why}\n{mutant.diff()}")
        met = self._table()
        for entry in self._out_of_date:
            print(f"{EQUIVALENT.name}: {entry}")
        print(f"seed {self._options.seed}, {time.monotonic() - began:.0f} s")
        return 0 if met and not self._out_of_date else 1

    def _run_without_mutant(self) -> bool:
        starts = deque((room, partial(trial.start_without_mutant, ROOMS[room])) for room, drawn in self._sample.items() if drawn)
        for room, code, result in trial.run_all(starts, self._folder, self._options.workers):
            if code:
                print(f"the tests of {room} fail without a mutant:\n{_tail(result, 40)}")
                return False
            self._recordings[room] = trial.recording_of(result)
        return True

    def _run_mutants(self) -> None:
        starts: deque[tuple[Job, Callable[[Path], int]]] = deque()
        for room, drawn in self._sample.items():
            for mutant in drawn:
                if (mutant.file, mutant.within, *mutant.change) in self._equivalent:
                    self._verdicts[room][Verdict.EQUIVALENT] += 1
                    continue
                self._go_on(Job(room, mutant, self._recordings[room].stages(mutant)[::-1]), starts, last=True)
        for job, code, result in trial.run_all(starts, self._folder, self._options.workers):
            if job.killer:
                if code != pytest.ExitCode.OK:
                    raise RuntimeError(f"{job.killer} fails without a mutant too:\n{_tail(result, 40)}")
                self._judges.add(job.killer)
                self._settle(job, Verdict.KILLED, job.killer)
            elif code == pytest.ExitCode.OK:
                self._go_on(job, starts)
            elif code in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.INTERNAL_ERROR):
                raise RuntimeError(f"{job.mutant} could not be tried:\n{job.mutant.diff()}\n{_tail(result, 40)}")
            elif -code in trial.STOPPED:
                self._settle(job, Verdict.TIMEOUT, "")
            else:
                self._confirm(job, result.read_text() if result.exists() else "", starts)

    def _confirm(self, job: Job, killer: str, starts: deque[tuple[Job, Callable[[Path], int]]]) -> None:
        """Each test that kills has to pass by itself without the mutant, once. No test is named where the import failed."""
        if killer in self._judges:
            self._settle(job, Verdict.KILLED, killer)
        else:
            job.killer = killer
            tests = [test for test in self._recordings[job.room].tests if test.name == killer]
            starts.appendleft((job, partial(trial.start_with_mutant, ROOMS[job.room], None, tests)))

    def _go_on(self, job: Job, starts: deque[tuple[Job, Callable[[Path], int]]], last: bool = False) -> None:
        """Whoever outlives the tests that enter its function meets the others that may tell it."""
        if job.stages:
            start = job, partial(trial.start_with_mutant, ROOMS[job.room], job.mutant, job.stages.pop())
            (starts.append if last else starts.appendleft)(start)
        else:
            reached = "" if self._recordings[job.room].enters(job.mutant) else ", whose function no test enters"
            self._survivors.append((job.mutant, reached))
            self._settle(job, Verdict.SURVIVED, reached)

    def _settle(self, job: Job, verdict: Verdict, why: str) -> None:
        self._verdicts[job.room][verdict] += 1
        if self._options.verbose:
            print(f"{verdict.value} {job.mutant} {why}\n{job.mutant.diff()}", flush=True)

    def _table(self) -> bool:
        print(f"\n{'room':<10} {'mutants':>8} {'killed':>8} {'timeouts':>8} {'survived':>8} {'equivalent':>10} {'score':>7}")
        rows = {**self._verdicts, "all": sum(self._verdicts.values(), Counter())}
        scores = {room: _score(counts) for room, counts in rows.items()}
        for room, counts in rows.items():
            shown = [counts[Verdict.KILLED], counts[Verdict.TIMEOUT], counts[Verdict.SURVIVED]]
            columns = " ".join(f"{count:>8}" for count in (counts.total(), *shown))
            print(f"{room:<10} {columns} {counts[Verdict.EQUIVALENT]:>10} {scores[room]:>5.1f} %")
        return all(score >= TARGET_PERCENT for score in scores.values())


def _score(counts: Counter[Verdict]) -> float:
    counted = counts.total() - counts[Verdict.EQUIVALENT]
    return 100.0 * (counts[Verdict.KILLED] + counts[Verdict.TIMEOUT]) / counted if counted else 100.0


def _equivalent(rooms: list[str]) -> tuple[set[tuple[str, str, str, str]], list[str]]:
    """The reviewed mutants of these rooms, and what is wrong with the list: each entry is about exactly one mutant."""
    found = Counter((mutant.file, mutant.within, *mutant.change) for room in rooms for mutant in ROOMS[room].mutants)
    entries = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    keys = {(entry["file"], entry["within"], entry["was"], entry["becomes"]) for entry in entries if entry["reason"]}
    elsewhere = {str(path.relative_to(ROOT)) for name, room in ROOMS.items() if name not in rooms for path in room.files}
    wrong = [key for key in keys if found[key] != 1 and key[0] not in elsewhere]
    return keys - set(wrong), [f"{found[key]} mutants fit {key[0]} ({key[1]}): {key[2]}" for key in wrong]


def _tail(result: Path, lines: int) -> str:
    return "\n".join(trial.output_of(result).read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ[ALL_EXAMPLES] = "1"
    sys.exit(main(sys.argv[1:]))
