"""Random clusters with a profile of random arguments, from one seed."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from rayched.configuration.configuration import Configuration, PluginConfig, ProfileConfiguration
from rayched.configuration.profile_building import build_profiles
from rayched.framework.plugin import ColumnPlugin, CountingPlugin
from rayched.framework.plugin_args import (
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    ScoringStrategy,
    ScoringStrategyType,
    ShapePoint,
)
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Pod
from tests.oracle.naive import Settings
from tests.plugins.clusters import World, random_settings

seeds = st.integers(0, 2**32 - 1)


def profile_with(plain: Settings) -> Profile:
    """The default profile with these arguments."""
    shape = tuple(ShapePoint(utilization, score) for utilization, score in plain.shape)
    strategy = ScoringStrategy(
        ScoringStrategyType(plain.strategy), tuple(ResourceSpec(name, weight) for name, weight in plain.fit_resources), shape
    )
    plugin_config = (
        PluginConfig("NodeResourcesFit", NodeResourcesFitArgs(plain.ignored_resources, plain.ignored_groups, strategy)),
        PluginConfig(
            "NodeResourcesBalancedAllocation",
            NodeResourcesBalancedAllocationArgs(tuple(ResourceSpec(name) for name in plain.balanced_resources)),
        ),
        PluginConfig("NodeAffinity", NodeAffinityArgs(plain.added_affinity)),
        PluginConfig(
            "PodTopologySpread", PodTopologySpreadArgs(plain.spread.defaults, "System" if plain.spread.system else "List")
        ),
        PluginConfig(
            "InterPodAffinity",
            InterPodAffinityArgs(plain.affinity.hard_weight, plain.affinity.ignore, plain.affinity.fixed),
        ),
    )
    built = build_profiles(Configuration(profiles=(ProfileConfiguration(plugin_config=plugin_config),)), IN_TREE)
    assert not built.errors
    return built.profiles["default-scheduler"]


def world_of(seed: int) -> tuple[World, Profile]:
    random = Random(seed)
    plain = random_settings(random) if random.random() < 0.7 else Settings()
    world = World(seed, plain, n_nodes=random.choice((1, 3, 12)), n_pods=random.choice((0, 10, 25)))
    for _ in range(random.choice((0, 15))):
        world.change()
    return world, profile_with(plain)


def state_of(plugin: ColumnPlugin, pod: Pod, snapshot: Snapshot) -> Any:
    """What the plugin's filter and score work on."""
    state = plugin.prepare(pod)
    return plugin.count(state, snapshot, None) if isinstance(plugin, CountingPlugin) else state
