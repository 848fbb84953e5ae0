"""Runs of tests in forked processes: one without a mutant that tells which test runs which code, and one for each mutant.

A mutant is planted where its module is imported, so no file changes and nothing of it stays: the process that imports it is
forked for this one run. The parent has imported only what is no part of the project. A test that takes several times as long as
without a mutant ends the run.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Final, NoReturn, TypeVar

import pytest
from hypothesis import Phase, settings

from tests.mutants.operators import Mutant
from tests.mutants.rooms import ROOT, Room

IMPORT_SECONDS: Final = 60.0
CPU_SECONDS_MIN, CPU_FACTOR = 5.0, 5.0
WALL_SECONDS_MIN, WALL_FACTOR = 60.0, 20.0
"""Wall time ends only what waits for ever: other work may run beside."""
Job = TypeVar("Job")

STOPPED: Final = (signal.SIGPROF, signal.SIGALRM)


@dataclass
class Test:
    name: str
    cpu_seconds: float
    wall_seconds: float
    reached: set[tuple[str, int]] = field(default_factory=set)
    """Which functions it entered: file and first line."""

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


def told_apart(mutant: Mutant, tests: Sequence[Test]) -> tuple[list[Test], list[Test]]:
    """The tests that enter the function with the mutant, and others that enter something else of its module."""
    near = [test for test in tests if (mutant.file, mutant.function_line) in test.reached]
    names = {test.name for test in near}
    far = [test for test in tests if test.name not in names and any(file == mutant.file for file, _ in test.reached)]
    if not mutant.function_line and not far:
        # What runs at the import alone shows where it is imported.
        far = list(tests)
    return _fastest_first(near), _fastest_first(far)


def _fastest_first(tests: Sequence[Test]) -> list[Test]:
    """File by file, for what a file sets up."""
    files: dict[str, float] = {}
    for test in tests:
        files[test.file] = files.get(test.file, 0.0) + test.wall_seconds
    return sorted(tests, key=lambda test: (files[test.file], test.file, test.wall_seconds, test.name))


def run_all(starts: deque[tuple[Job, Callable[[Path], int]]], folder: Path, workers: int) -> Iterator[tuple[Job, int, Path]]:
    """Forks what `starts` holds, which may grow meanwhile; tells the exit code of each, or its signal as a negative number."""
    active: dict[int, tuple[Job, Path]] = {}
    numbers = itertools.count()
    try:
        while starts or active:
            while starts and len(active) < workers:
                job, start = starts.popleft()
                result = folder / str(next(numbers))
                active[start(result)] = job, result
            pid, status = os.wait()
            _end_group(pid)
            job, result = active.pop(pid)
            yield job, os.waitstatus_to_exitcode(status), result
    finally:
        for pid in active:
            _end_group(pid)


def _end_group(pid: int) -> None:
    """A run with whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def start_without_mutant(room: Room, result: Path) -> int:
    """Writes what `tests_of` reads."""
    return _fork(result, lambda: _pytest(room, room.tests, _Recorder(result), result))


def tests_of(result: Path) -> list[Test]:
    told = json.loads(result.read_text())
    return [Test(name, cpu, wall, {(file, line) for file, line in reached}) for name, cpu, wall, reached in told]


def start_with_mutant(room: Room, mutant: Mutant | None, tests: Sequence[Test], result: Path) -> int:
    """None: the same without a mutant, to see whether it was the mutant that a test noticed."""

    def run() -> int:
        if mutant is not None:
            sys.meta_path.insert(0, _Planted(mutant))
        _limit(IMPORT_SECONDS, IMPORT_SECONDS * 4)
        files = list(dict.fromkeys(test.file for test in tests))
        return _pytest(room, files, _Chosen(tests, result), result)

    return _fork(result, run)


def _fork(result: Path, run: Callable[[], int]) -> int:
    """The child's pid. What it prints is in `output_of(result)`."""
    pid = os.fork()
    if not pid:
        _be_a_child(output_of(result), run)
    return pid


def output_of(result: Path) -> Path:
    return result.with_suffix(".out")


def _be_a_child(output: Path, run: Callable[[], int]) -> NoReturn:
    code = int(pytest.ExitCode.INTERNAL_ERROR)
    try:
        os.setsid()
        into = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, other in ((0, nothing), (1, into), (2, into)):
            os.dup2(other, number)
        code = run()
    except BaseException as error:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _pytest(room: Room, what: Sequence[str], plugin: object, result: Path) -> int:
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", room.marked, "--basetemp", str(result.with_suffix(".tmp"))]
    options += [f"--ignore={name}" for name in room.ignored]
    return pytest.main([*options, *what], plugins=[plugin])


def _limit(cpu_seconds: float, wall_seconds: float) -> None:
    """The default action of both signals ends the process, whatever code it is in."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, wall_seconds)


def _repeatable() -> None:
    """The same examples for each mutant, none kept, and no time spent on a smaller one."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings.default, database=None, derandomize=True, phases=phases)
    settings.load_profile("mutants")


class _Recorder:
    """Which functions each test enters, and how long it takes."""

    def __init__(self, result: Path) -> None:
        self._result = result
        self._entered: dict[int, CodeType] = {}
        self._tests: list[tuple[str, float, float, list[tuple[str, int]]]] = []

    def pytest_configure(self) -> None:
        _repeatable()
        entered = self._entered

        def trace(frame: FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            entered[id(code)] = code

        threading.settrace(trace)
        self._trace = trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._entered.clear()
        # Each time: a test may count lines itself, or end with the interpreter's default.
        sys.settrace(self._trace)
        cpu, wall = time.process_time(), time.monotonic()
        result = yield
        took = time.process_time() - cpu, time.monotonic() - wall
        codes = list(self._entered.values())
        self._entered.clear()
        rooms = (f"{ROOT}/rayched/", f"{ROOT}/leader/")
        entered = {(code.co_filename, code.co_firstlineno) for code in codes if code.co_filename.startswith(rooms)}
        reached = [(file.removeprefix(f"{ROOT}/"), line) for file, line in sorted(entered)]
        self._tests.append((item.nodeid, *took, reached))
        return result

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        self._result.write_text(json.dumps(self._tests))


class _Chosen:
    """Some tests, in a given order, each with a time limit. Notes down which one failed."""

    def __init__(self, tests: Sequence[Test], result: Path) -> None:
        self._tests = {test.name: test for test in tests}
        self._result = result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._result.write_text(report.nodeid)

    def pytest_configure(self) -> None:
        _repeatable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in self._tests if name in found]

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        test = self._tests[item.nodeid]
        _limit(CPU_SECONDS_MIN + CPU_FACTOR * test.cpu_seconds, WALL_SECONDS_MIN + WALL_FACTOR * test.wall_seconds)


class _Planted(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the one module with the mutant in it."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = mutant.file.removesuffix(".py").replace("/", ".")
        self._path = str(ROOT / mutant.file)

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self) if fullname == self._name else None

    def get_source(self, fullname: str) -> str:
        return self._mutant.text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutant.text, self._path, "exec", dont_inherit=True)
