"""The example for people who want the package `leader` alone: it runs as it stands, and so does what the README shows of it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayched.replica.etcd.etcd_server import EtcdServer

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "leader_election.py"


@contextmanager
def running(endpoint: str, name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(EXAMPLE), endpoint, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def first_epoch(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    found = re.fullmatch(r"working under epoch (\d+)\n", process.stdout.readline())
    assert found is not None
    return int(found[1])


@pytest.mark.cluster
def test_of_two_one_works_and_the_other_takes_over_when_it_is_stopped(etcd: EtcdServer) -> None:
    with running(etcd.endpoint, "a") as one:
        epoch = first_epoch(one)
        with running(etcd.endpoint, "b") as other:
            one.send_signal(signal.SIGTERM)
            assert first_epoch(other) > epoch
            assert one.wait(10) == 0


def test_the_readme_shows_the_example() -> None:
    shown = (ROOT / "leader" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert shown == EXAMPLE.read_text().partition('"""\n\n')[2]
    assert len(EXAMPLE.read_text().splitlines()) <= 30
