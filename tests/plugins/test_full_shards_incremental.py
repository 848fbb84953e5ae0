"""Each plugin alone: an engine that keeps what it knows while the cluster changes, one that evaluates everything anew, and one
that takes every column from three workers give the same nodes and the same scores.

The whole default profile does so elsewhere; alone, no plugin hides behind another one that rejects its nodes first.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings

from rayched.configuration.profile_building import default_profile
from rayched.engine.engine import Engine
from rayched.engine.evaluation import Evaluation
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from rayched.snapshot.snapshot import Snapshot
from tests.conformance.sharded import Shards
from tests.plugins.clusters import World
from tests.plugins.random_worlds import profile_with, seeds, world_of
from tests.plugins.test_topology_against_naive import roomy
from tests.sampling import part_of

_DEFAULT = default_profile(IN_TREE)
PLUGINS = sorted({plugin.name for plugin in (*_DEFAULT.filter, *_DEFAULT.score)})
TOPOLOGY = ("PodTopologySpread", "InterPodAffinity")
STEPS = 7


def alone(profile: Profile, name: str) -> Profile:
    """The profile with one plugin that looks at nodes."""
    return replace(
        profile,
        pre_filter=tuple(plugin for plugin in profile.pre_filter if plugin.name == name),
        filter=tuple(plugin for plugin in profile.filter if plugin.name == name),
        score=tuple(plugin for plugin in profile.score if plugin.name == name),
    )


def said(evaluation: Evaluation, snapshot: Snapshot) -> dict[str, int]:
    """Feasible nodes with their totals; those of a single one do not matter, it is not scored."""
    rows = evaluation.feasible.nonzero()[0].tolist()
    return {snapshot.name_of(row): int(evaluation.total[row]) if len(rows) > 1 else 0 for row in rows}


def drawn(seed: int, name: str) -> tuple[World, Profile]:
    if name in TOPOLOGY and Random(seed).random() < 0.7:
        world, profile = roomy(seed)
    else:
        world, profile = world_of(seed)
    return world, alone(profile, name)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("F6")
@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_says_the_same_in_full_in_shards_and_after_any_changes(name: str) -> None:
    varied = set()

    @given(seed=seeds)
    @settings(max_examples=part_of(40), deadline=None, derandomize=True, database=None)
    def play(seed: int) -> None:
        world, profile = drawn(seed, name)
        keeping = Engine(world.snapshot, profile)
        shards = Shards(world.snapshot, profile, 3)
        sharded = Engine(world.snapshot, profile, shards)
        pods = [world.incoming()[1] for _ in range(3)]
        for step in range(STEPS):
            for template in pods:
                where = f"seed {seed}, step {step}"
                full = said(Engine(world.snapshot, profile).evaluate(template), world.snapshot)
                assert said(keeping.evaluate(template), world.snapshot) == full, where
                assert said(sharded.evaluate(template), world.snapshot) == full, where
                varied.add((len(full) < len(world.naive.nodes), len(set(full.values())) > 1))
            for _ in range(world.random.choice((1, 1, 3))):
                world.random.choice((world.change, world.change, world.update_one_aspect))()

    play()
    # It did reject, or prefer, or both.
    plugin = alone(profile_with(World(1).naive.settings), name)
    assert not plugin.filter or any(rejects for rejects, _ in varied)
    assert not plugin.score or any(prefers for _, prefers in varied)
