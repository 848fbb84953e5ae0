"""Real replicas show each planted bug in its session, every time, and nothing where the bug is not planted."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from rayched.replica.etcd.etcd_binary import find_etcd
from tests.chaos import planted_groups, planted_sessions
from tests.chaos.planted_scene import SwitchedStage, play
from tests.planted_bugs import BUGS, GROUPS

pytestmark = [pytest.mark.cluster, pytest.mark.planted]

BUGS_OF = {planted_sessions: BUGS, planted_groups: GROUPS}
BUG_CASES = [pytest.param(of.OPERATIONS, of, bug, id=bug) for of in BUGS_OF for bug in of.SESSIONS]
SESSION_CASES = [
    pytest.param(of.OPERATIONS, of, bug, id=session.__name__)
    for of in BUGS_OF
    for session, bug in {session: bug for bug, session in of.SESSIONS.items()}.items()
]


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchedStage]:
    """With an etcd of which a transaction may have so many operations."""
    with SwitchedStage(tmp_path_factory.mktemp("planted"), find_etcd(), request.param) as stage:
        yield stage


@pytest.mark.parametrize(("stage", "of", "bug"), SESSION_CASES, indirect=["stage"])
def test_without_its_bug_a_session_shows_nothing(stage: SwitchedStage, of: ModuleType, bug: str) -> None:
    assert play(stage, bug, of.SESSIONS, planted=False) == {}


@pytest.mark.parametrize(("stage", "of", "bug"), BUG_CASES, indirect=["stage"])
def test_a_planted_bug_shows_itself(stage: SwitchedStage, of: ModuleType, bug: str) -> None:
    violations = play(stage, bug, of.SESSIONS, planted=True)
    assert of.SHOWS_AS[bug] in violations, violations


def test_each_planted_bug_has_a_session() -> None:
    for of, bugs in BUGS_OF.items():
        assert set(of.SESSIONS) == set(of.SHOWS_AS) == set(bugs)
