"""What `make hosts` demands, what it says where that was missed, and what it takes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.hosts import main, missed
from benchmarks.hosts_plays import HostPause, NetworkSpell, most_within


def pauses(kind: str, *seconds: float | None) -> list[HostPause]:
    return [HostPause(kind, one) for one in seconds]


def a_spell(most_a_minute: int) -> NetworkSpell:
    return NetworkSpell("slow", 300.0, 5, most_a_minute, 9000)


def test_what_is_as_demanded_is_not_told() -> None:
    assert missed([*pauses("down", 1.2, 1.2, 2.0), *pauses("etcd", 1.0, 3.0)], [a_spell(2)]) == []


def test_each_demand_that_is_missed_is_told() -> None:
    assert missed([*pauses("down", 1.0, 1.1, 2.1, None), *pauses("etcd", 3.2)], [a_spell(3)]) == [
        "down: no binding came for 20 s",
        "down: median 1.10 s, p99 2.10 s; demanded are 1.2 and 2.0 s",
        "etcd: median 3.20 s, p99 3.20 s; demanded are 3.0 and 3.0 s",
        "slow: 3 changes of leader within a minute, allowed are 2",
    ]


@pytest.mark.parametrize(("times", "found"), [([], 0), ([5.0], 1), ([0.0, 59.0, 61.0, 100.0], 3), ([0.0, 60.0, 120.0], 1)])
def test_changes_are_counted_within_any_minute(times: list[float], found: int) -> None:
    assert most_within(times, 60.0) == found


@pytest.mark.parametrize("words", [["--only", "up"], ["--downs", "0"], ["--minutes", "0"], ["--rate", "nan"]])
def test_bad_input_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_where_there_are_no_namespaces_it_says_so_and_that_is_no_failure() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.hosts"],
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("skipped: network namespaces need programs")
