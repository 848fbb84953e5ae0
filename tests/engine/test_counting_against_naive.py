"""Counting plugins whose answers are followed by domain and by group: the same totals as counting everything anew."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest

from rayched.engine import domain_state, grouped_scores, grouped_top_rows, static_sum, totals
from rayched.engine.engine import Engine
from rayched.framework.profile import Profile
from rayched.snapshot.verification import verify
from tests.engine.test_engine_against_naive import assert_diagnosis_agrees, assert_equal
from tests.engine.toy_clusters import World, a_random_pod
from tests.engine.toy_counting import CountingCluster, RowsOfZones, Zones
from tests.engine.toy_plugins import FILTERS, SCORES, WEIGHTS, a_profile

STEPS = 100

WAYS: dict[str, list[tuple[Any, str, int]]] = {
    "as ever": [],
    "all rows are looked at": [
        (grouped_scores, "FEW", 0),
        (grouped_scores, "OTHERS_MAX", 0),
        (domain_state, "FEW", 0),
        (static_sum, "FEW", 0),
        (totals, "FEW", 0),
    ],
    "few changes are followed": [
        (grouped_scores, "FEW", 3),
        (grouped_scores, "OTHERS_MAX", 2),
        (domain_state, "FEW", 1),
        (totals, "FEW", 2),
        (totals, "FOLLOWED_MIN", 1),
        (grouped_top_rows, "GROUPS_MAX", 8),
        (grouped_top_rows, "FEW", 2),
        (grouped_top_rows, "CHANGES_MAX", 2),
    ],
    "witnesses are asked": [
        (grouped_scores, "OTHERS_MAX", 0),
        (static_sum, "WITNESSES_MAX", 2),
        (totals, "FOLLOWED_MIN", 0),
    ],
}
"""How much is followed before all rows are looked at, be it sooner or later than usual."""


def a_counting_profile(zones: Zones) -> Profile:
    # Without what changes with every binding and is normalised too: beside that no best rows are followed.
    scores = [one for one in SCORES if one.name != "Crowd"]
    return a_profile(filters=(*FILTERS, zones), scores=(*scores, zones), weights={**WEIGHTS, "Zones": CountingCluster.weight})


def a_world(seed: int) -> World:
    """Some nodes have no zone."""
    world = World(seed, n_nodes=0)
    world.naive = CountingCluster({}, {}, {})
    for _ in range(18):
        world.add_node()
    for node in list(world.naive.nodes.values())[:3]:
        del node.metadata.labels["zone"]
        world.snapshot.add_node(node)
    world.pending = []
    for number in range(6):
        pod = a_random_pod(world.random)
        for label in ("only", "odd", "shy"):
            pod.metadata.labels.pop(label, None)
        if number % 2:
            pod.metadata.labels["limit"] = str(world.random.choice((2, 5, 9)))
        if number % 3:
            pod.metadata.labels["alone"] = ""
        world.pending.append(pod)
    return world


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_domains_and_groups_give_the_naive_totals_after_every_change(
    seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in WAYS[way]:
        monkeypatch.setattr(module, name, value)
    world, random = a_world(seed), Random(seed)
    engines = {
        "groups": Engine(world.snapshot, a_counting_profile(Zones())),
        "rows": Engine(world.snapshot, a_counting_profile(RowsOfZones())),
    }
    numbers = count()
    pod = world.pending[0]
    for step in range(STEPS):
        if random.random() < 0.15:
            pod = random.choice(world.pending)
        for _ in range(random.choice((0, 0, 1, 1, 2, 6))):
            world.step()
        expected = world.naive.totals(pod)
        for name, engine in engines.items():
            evaluation = engine.evaluate(world.template(pod))
            assert_equal(evaluation, expected, world.snapshot, f"seed {seed}, step {step}, {name}")
        if random.random() < 0.2:
            assert_diagnosis_agrees(engines["groups"], world, pod)
        if expected and random.random() < 0.7:
            uid, best = (
                f"placed-{next(numbers)}",
                random.choice(engines["groups"].evaluate(world.template(pod)).best_rows.tolist()),
            )
            world.snapshot.bind(uid, world.template(pod), world.snapshot.name_of(best))
            world.naive.pods[uid] = pod, world.snapshot.name_of(best)
        elif not expected:
            for _ in range(6):
                world.unbind()
    verify(world.snapshot)
