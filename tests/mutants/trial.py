"""Runs of tests in forked processes: one without a mutant that tells which test runs which code, and one for each mutant.

A mutant is planted where its module is imported, so no file changes and nothing of it stays: the process that imports it is
forked for this one run. The parent has imported only what is no part of the project. A test that takes several times as long as
without a mutant ends the run.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
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
from typing import Any, Final, NoReturn, TypeVar

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


@dataclass
class Recording:
    """What the tests of a room do without a mutant."""

    tests: list[Test]
    at_import: set[tuple[str, int]]
    """The functions that are entered when the modules of the room and of its tests are imported."""

    def enters(self, mutant: Mutant) -> bool:
        """Whether anything runs the code that it changes."""
        place = mutant.file, mutant.function_line
        return not mutant.function_line or place in self.at_import or any(place in test.reached for test in self.tests)

    def stages(self, mutant: Mutant) -> list[list[Test]]:
        """The tests that a mutant meets, stage by stage; no other can tell it.

        First those that enter its function, then others of the same files that enter its module, for what a fixture of the file
        has made. What runs at the import shows anywhere: there the others are all that enter the module, or for what stands
        outside of functions, such as a default of a field, all tests of the room.
        """
        place = mutant.file, mutant.function_line
        near = [test for test in self.tests if place in test.reached]
        names, files = {test.name for test in near}, {test.file for test in near}
        others = [test for test in self.tests if test.name not in names]
        if mutant.function_line:
            anywhere = place in self.at_import
            others = [test for test in others if anywhere or test.file in files]
            others = [test for test in others if any(file == mutant.file for file, _ in test.reached)]
        return [_fastest_first(tests) for tests in (near, others) if tests]


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
    """Writes what `recording_of` reads."""
    return _fork(result, lambda: _pytest(room, room.tests, _Recorder(room, result), result))


def recording_of(result: Path) -> Recording:
    at_import, tests = json.loads(result.read_text())
    return Recording([Test(*told, _places(reached)) for *told, reached in tests], _places(at_import))


def _places(told: list[tuple[str, int]]) -> set[tuple[str, int]]:
    return {(file, line) for file, line in told}


def start_with_mutant(room: Room, mutant: Mutant | None, tests: Sequence[Test], result: Path) -> int:
    """None: the same without a mutant, to see whether it was the mutant that a test noticed."""

    def run() -> int:
        if mutant is not None:
            sys.meta_path.insert(0, _Planted(mutant))
        _limit(IMPORT_SECONDS, IMPORT_SECONDS * 4)
        files = list(dict.fromkeys(test.file for test in tests))
        chosen = _Chosen(tests, result)
        code = _pytest(room, files, chosen, result)
        # What a plugin of the tests imports is imported before any test: if that fails pytest takes it for an error of its own.
        failed = code == pytest.ExitCode.INTERNAL_ERROR and not chosen.is_configured
        return pytest.ExitCode.INTERRUPTED if failed else code

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
    """Which functions each test enters, whatever ran before it, and how long it takes."""

    def __init__(self, room: Room, result: Path) -> None:
        self._room = room
        self._result = result
        self._entered: dict[int, CodeType] = {}
        self._at_import: list[tuple[str, int]] = []
        self._tests: list[tuple[str, float, float, list[tuple[str, int]]]] = []
        self._caches: list[Any] = []
        self._modules = 0

    def pytest_configure(self) -> None:
        _repeatable()
        entered = self._entered

        def trace(frame: FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            entered[id(code)] = code

        threading.settrace(trace)
        sys.settrace(trace)
        self._trace = trace

    def pytest_collection_finish(self) -> None:
        for path in self._room.files:
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        self._at_import = self._places()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._forget()
        self._entered.clear()
        # Each time: a test may count lines itself, or end with the interpreter's default.
        sys.settrace(self._trace)
        cpu, wall = time.process_time(), time.monotonic()
        result = yield
        took = time.process_time() - cpu, time.monotonic() - wall
        self._tests.append((item.nodeid, *took, self._places()))
        return result

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        self._result.write_text(json.dumps((self._at_import, self._tests)))

    def _places(self) -> list[tuple[str, int]]:
        codes = list(self._entered.values())
        self._entered.clear()
        rooms = (f"{ROOT}/rayched/", f"{ROOT}/leader/")
        entered = {
            (code.co_filename.removeprefix(f"{ROOT}/"), code.co_firstlineno)
            for code in codes
            if code.co_filename.startswith(rooms) and code.co_name != "<module>"
        }
        return sorted(entered)

    def _forget(self) -> None:
        """Empties the caches of functions: an answer that is known enters nothing."""
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            known = (found for found in gc.get_objects() if isinstance(found, functools._lru_cache_wrapper))
            self._caches = [cache for cache in known if cache.__module__.startswith(("rayched.", "leader.", "tests."))]
        for cache in self._caches:
            cache.cache_clear()


class _Chosen:
    """Some tests, in a given order, each with a time limit. Notes down which one failed."""

    def __init__(self, tests: Sequence[Test], result: Path) -> None:
        self._tests = {test.name: test for test in tests}
        self._result = result
        self.is_configured = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._result.write_text(report.nodeid)

    def pytest_configure(self) -> None:
        self.is_configured = True
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
