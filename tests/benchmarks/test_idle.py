"""What `make idle` counts, and what it demands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.idle import CORES_MAX, PSS_BYTES_MAX, Idle
from benchmarks.idle_processes import ProcessWatch, Used, kind_of

WORKS = """
import subprocess, sys, time

WAITS = "import sys; print(flush=True); sys.stdin.read()"

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

work(0.2)
print(flush=True)
for line in sys.stdin:
    work(0.2)
    child = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(flush=True)
"""
TOLERANCE = 0.1
"""Seconds: the kernel counts in ticks, and an interpreter has to start."""


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["/v/bin/python", "-m", "rayched.cli.main", "replica", "--listen", "a"], "replica"),
        (["/v/bin/python", "-m", "rayched.cli.main", "gateway", "--listen", "a"], "gateway"),
        (["/v/bin/python", "-m", "rayched.replica.ray.guardian", "--log-format=text"], "guardian"),
        (["/v/bin/python", "-m", "ray.scripts.scripts", "start", "--head"], "ray start"),
        (["ray::SchedulerProcess.alive"], "SchedulerProcess"),
        (["ray::IDLE"], "IDLE"),
        (["/v/ray/core/src/ray/raylet/raylet", "--raylet_socket_name=a"], "raylet"),
        (["sleep", "infinity"], "in place of Ray's agents"),
        ([""], ""),
    ],
)
def test_the_kind_of_a_process_is_told_by_its_command(words: list[str], kind: str) -> None:
    assert kind_of(words) == kind


@contextmanager
def working() -> Iterator[subprocess.Popen[str]]:
    """One that has worked for 0.2 s, and does so again for each line, after which it has one child more."""
    with subprocess.Popen([sys.executable, "-c", WORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            tell(process)
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str]) -> None:
    """Waits for a line."""
    assert process.stdout is not None
    assert process.stdout.readline() == "\n"


def again(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    print(file=process.stdin, flush=True)
    tell(process)


def test_what_was_used_before_the_first_look_does_not_count_and_what_comes_later_does() -> None:
    with working() as process:
        watch = ProcessWatch((process.pid,))
        watch.look()
        ((kind, idle),) = watch.used().items()
        assert kind == "python -c"
        assert (idle.processes, idle.cpu_seconds < TOLERANCE) == (1, True)
        assert idle.pss_bytes > 1 << 20
        again(process)
        used = watch.used()["python -c"]
        assert used.processes == 2
        assert 0.2 - TOLERANCE < used.cpu_seconds < 0.6
        assert used.switches > 0


def test_what_has_ended_keeps_what_it_had_used_at_the_last_look() -> None:
    with working() as process:
        watch = ProcessWatch((process.pid,))
        watch.look()
        again(process)
        before = watch.used()["python -c"].cpu_seconds
        process.kill()
        process.wait()
        after = watch.used()["python -c"]
        assert (after.processes, after.pss_bytes) == (0, 0)
        assert after.cpu_seconds == pytest.approx(before, abs=TOLERANCE)


def test_threads_are_told_by_name_with_how_often_they_were_woken() -> None:
    watch = ProcessWatch((os.getpid(),))
    watch.look()
    assert all(count >= 0 for _, _, count in watch.threads())
    assert {name for _, name, _ in watch.threads()}


def idle(cpu_seconds: float, pss_bytes: int) -> Idle:
    return Idle(10.0, {"a": Used(1, cpu_seconds / 2, pss_bytes // 2), "b": Used(1, cpu_seconds / 2, pss_bytes // 2)}, 0.0, ())


def test_what_is_as_demanded_is_not_told() -> None:
    assert idle(10.0 * CORES_MAX, PSS_BYTES_MAX).missed() == []


def test_each_demand_that_is_missed_is_told() -> None:
    assert idle(10.0, 2 * PSS_BYTES_MAX).missed() == [
        "1.000 of a core were used, at most 0.03 are allowed",
        "1.60 GB (PSS) were taken, at most 0.8 are allowed",
    ]
