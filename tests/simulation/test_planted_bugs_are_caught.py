"""Each planted bug shows up in the simulation, within a bounded number of seeds, as a violation of a rule that it breaks.

Real processes have the same switches and show the same bugs (tests/planted_bugs.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.planted_bugs import OF_WORLDS
from tests.simulation.run import simulate_many, worker_pool

SEEDS_MAX = 300
"""When this was written each bug but those of groups showed within the first 84 seeds."""

SHOWS_AS = {
    "unguarded bindings": {"S4", "S2", "S1"},
    "only renewals are guarded": {"S4", "S2", "S1"},
    "unguarded release": {"S5", "E1", "L2"},
    "decides on an old cache": {"S4", "S2", "P8"},
    "answers before the commit": {"S3"},
    "attempts are not recognised": {"S2", "S8", "L1", "L3", "P8"},
    "a watch resumes at the last revision": {"S6"},
    "no list after a compaction": {"S6", "S7"},
    "durations by the wall clock": {"E1", "L2"},
    "assumptions end late": {"L1", "L3"},
    "times taken from the record": {"E1", "L2"},
    "leads on after seeing another holder": {"E2"},
    "cares for nodes on an old view": {"S4"},
    "revokes another's lease": {"E3"},
    "revokes by silence alone of one replica": {"E3"},
    "acts under a revoked lease": {"E2"},
    "a group binds what fits": {"P1", "P2"},
    "members are bound before the plan": {"P1", "P2", "P4"},
    "a plan forgets the group's revision": {"P4"},
    "a new leader forgets plans": {"P8", "S2", "L1"},
    "planned bindings are not guarded": {"S4"},
    "the condition comes first": {"P4", "P9"},
    "failed members count": {"P1"},
    "a release ends half a group": {"P10"},
    "a unit ends in part": {"P10"},
    "a group spares nobody": {"P15"},
}

SHOWED_AT = {
    "unguarded bindings": 21,
    "only renewals are guarded": 21,
    "unguarded release": 39,
    "decides on an old cache": 6,
    "answers before the commit": 5,
    "attempts are not recognised": 10,
    "no list after a compaction": 3,
    "durations by the wall clock": 52,
    "assumptions end late": 51,
    "leads on after seeing another holder": 83,
    "cares for nodes on an old view": 43,
    "a group binds what fits": 5,
    "members are bound before the plan": 24,
    "a plan forgets the group's revision": 24,
    "a new leader forgets plans": 6,
    "planned bindings are not guarded": 38,
    "the condition comes first": 6,
    "failed members count": 293,
    "a release ends half a group": 460,
    "a unit ends in part": 27,
    "a group spares nobody": 5,
}
"""Where the search begins, to save time; a world that has changed since is searched on from there."""


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPoolExecutor]:
    with worker_pool() as pool:
        yield pool


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("bug", OF_WORLDS)
def test_the_simulation_notices(bug: str, workers: ProcessPoolExecutor) -> None:
    first = SHOWED_AT.get(bug, 0)
    reports = simulate_many(range(first, first + SEEDS_MAX), bug, workers, seeds_a_task=1)
    caught = next((report for report in reports if report.rule), None)
    assert caught is not None, f"{bug}: nothing is noticed in {SEEDS_MAX} seeds"
    assert caught.rule in SHOWS_AS[bug], f"{caught.text}\n    repeat it: {caught.command(bug)}"
