"""Real replicas show each planted bug in its session, every time, and nothing where the bug is not planted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.replica.etcd.etcd_binary import find_etcd
from tests.chaos.planted_scene import SwitchedStage
from tests.chaos.planted_sessions import SESSIONS, SHOWS_AS, play
from tests.planted_bugs import BUGS

pytestmark = [pytest.mark.cluster, pytest.mark.planted]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchedStage]:
    with SwitchedStage(tmp_path_factory.mktemp("planted"), find_etcd()) as stage:
        yield stage


@pytest.mark.parametrize("session", dict.fromkeys(SESSIONS.values()), ids=lambda session: session.__name__)
def test_without_its_bug_a_session_shows_nothing(stage: SwitchedStage, session: object) -> None:
    bug = next(bug for bug, its in SESSIONS.items() if its is session)
    assert play(stage, bug, planted=False) == {}


@pytest.mark.parametrize("bug", SESSIONS)
def test_a_planted_bug_shows_itself(stage: SwitchedStage, bug: str) -> None:
    violations = play(stage, bug, planted=True)
    assert SHOWS_AS[bug] in violations, violations


def test_each_planted_bug_has_a_session() -> None:
    assert set(SESSIONS) == set(SHOWS_AS) == set(BUGS)
