"""A cluster without pod groups: nothing of them takes part, and pods go where the scheduler alone would put them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from rayched.core.groups.pod_groups import PodGroups
from rayched.scheduler.attempt import Attempt
from tests.core.builders import a_pod
from tests.core.leading import a_replica, key_of, put_pod
from tests.core.test_groups_in_plans import copy_of

ASKED_FOR_GROUPS = ("decide", "go_on", "send_placements", "send_conditions", "outcome", "next_due")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the core asks of its groups, changes of pods included."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> None:
        original = getattr(PodGroups, name)

        def call(self: PodGroups, *args: Any) -> Any:
            if name != "absorb" or type(args[0]).__name__ == "PodChanged":
                counts[name] += 1
            return original(self, *args)

        monkeypatch.setattr(PodGroups, name, call)

    for name in (*ASKED_FOR_GROUPS, "absorb"):
        counted(name)
    return counts


@pytest.mark.row("G75")
@pytest.mark.parametrize("seed", range(5))
def test_without_groups_none_is_asked_about_and_decisions_are_those_of_before(seed: int, asked: Counter[str]) -> None:
    random = Random(seed)
    leader = a_replica(*(f"n{number}" for number in range(6)))
    cluster = copy_of(leader)
    cpus = [random.choice(("500m", "700m", "1")) for _ in range(40)]
    pods = [a_pod(f"web-{number}", cpu=cpu, priority=1_000 - number) for number, cpu in enumerate(cpus)]
    for pod in pods:
        put_pod(leader.store, pod)
    leader.settle()
    before_groups: dict[str, str] = {}
    for pod in pods:
        found = cluster.scheduler.schedule(cluster.to_schedule(pod), 0, 0.0)
        if isinstance(found, Attempt):
            before_groups[pod.metadata.name] = found.node_name
    assert leader.bound() == before_groups and 0 < len(before_groups) < len(pods)
    for name in list(before_groups)[:10]:
        leader.store.delete(key_of(name))
    leader.clock.now += 11.0
    leader.settle()
    assert len(leader.bound()) > len(before_groups) - 10
    assert not asked
