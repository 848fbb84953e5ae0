"""Chaos with real processes, small: what the guard alone refuses is counted, and nothing is broken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.replica.etcd.etcd_binary import find_etcd
from tests.chaos.faults import Fault
from tests.chaos.plan import UNBELIEVING, Session
from tests.chaos.session import SessionReport, play

RATE = 50.0
IN_SECONDS = ("L1", "L2", "L3", "S7")
"""What has a bound in seconds; `make chaos` holds those, on a machine of its own."""


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a session tells; shown where a test fails."""
    told: list[str] = []
    yield told
    with contextlib.suppress(ValueError):
        print("\n".join(told))


def played(directory: Path, told: list[str], faults: list[Fault], *rules: str) -> SessionReport:
    session = Session(0, 1, 1, rules, tuple(faults))
    return play(session, directory, find_etcd(), RATE, told.append, replicas=2)


@pytest.mark.long
@pytest.mark.cluster
def test_the_guard_alone_refuses_whoever_never_ceases_to_believe(tmp_path: Path, lines: list[str]) -> None:
    # When another replica leads depends on what else the machine does, so that is waited for, and no time.
    faults = [Fault("pause-tree", 6.0, until_a_later_epoch=True), Fault("late-writes")]
    report = played(tmp_path, lines, faults, UNBELIEVING)
    assert {invariant: words for invariant, words in report.violations.items() if invariant not in IN_SECONDS} == {}
    assert all(effect.took_effect and effect.refused > 0 for effect in report.effects), report.effects
    assert report.figures["refused"] >= sum(effect.refused for effect in report.effects)
