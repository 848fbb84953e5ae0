"""Chaos with real processes, small: a session that is sound, what the guard alone refuses, and bugs that have to be noticed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.replica.etcd_binary import find_etcd
from tests.chaos.faults import Fault
from tests.chaos.plan import UNBELIEVING, Session
from tests.chaos.session import SessionReport, play
from tests.planted_bugs import BUGS

RATE = 50.0

pytestmark = pytest.mark.chance

ATTEMPTS_MAX = 4
"""Of a planted bug to show itself."""


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a session tells; shown where a test fails."""
    told: list[str] = []
    yield told
    with contextlib.suppress(ValueError):
        print("\n".join(told))


def played(directory: Path, told: list[str], faults: list[Fault], *rules: str, until_broken: bool = False) -> SessionReport:
    session = Session(0, 1, 1, rules, tuple(faults))
    return play(session, directory, find_etcd(), RATE, told.append, replicas=2, until_broken=until_broken)


@pytest.mark.cluster
def test_the_guard_alone_refuses_whoever_never_ceases_to_believe(tmp_path: Path, lines: list[str]) -> None:
    faults = [Fault("pause-tree", 3.0), Fault("kill-scheduler"), Fault("pause-tree", 2.5)]
    report = played(tmp_path, lines, faults, UNBELIEVING)
    assert report.violations == {}
    assert all(effect.took_effect and effect.later_epoch is not None for effect in report.effects)
    refused = sum(effect.refused for effect in report.effects)
    assert 0 < refused <= sum(report.figures["refused writes"].values())


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "switches", "faults", "invariant"),
    [
        ("unguarded bindings", [UNBELIEVING], [Fault("pause-tree", 3.0)] * 4, "S4"),
        ("only renewals are guarded", [UNBELIEVING], [Fault("pause-tree", 3.0)] * 4, "S4"),
        ("answers before the commit", [], [Fault("lose-quorum", 4.0)], "S3"),
    ],
)
def test_a_planted_bug_is_noticed(
    tmp_path: Path, lines: list[str], bug: str, switches: list[str], faults: list[Fault], invariant: str
) -> None:
    # Whether a write of the former leader is on its way when it is stopped is chance.
    for attempt in range(ATTEMPTS_MAX):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        report = played(directory, lines, faults, BUGS[bug], *switches, until_broken=True)
        if report.violations:
            break
    assert invariant in report.violations, report.violations
