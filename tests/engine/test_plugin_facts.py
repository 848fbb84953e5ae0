"""What the engine knows of a plugin is what the plugin's class says, whoever has wrapped it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from rayched.configuration.profile_building import default_profile
from rayched.engine.plugin_facts import PluginFacts, facts_of
from rayched.framework.plugin import PodPart
from rayched.framework.profile import TimeBudget
from rayched.framework.time_budget import CycleMeter
from rayched.plugins.in_tree import IN_TREE
from rayched.plugins.node_ports import NodePorts
from tests.engine.toy_plugins import Named

EXPECTED = {
    "NodeUnschedulable": set(),
    "NodeName": set(),
    "TaintToleration": {"normalizes"},
    "NodeAffinity": {"normalizes"},
    "NodePorts": {"is_volatile"},
    "NodeResourcesFit": {"needs", "stacks", "is_volatile", "reads_usage", "reads_usage_alone"},
    "PodTopologySpread": {"counts", "blocks_domains", "groups"},
    "InterPodAffinity": {"counts", "blocks_domains", "groups"},
    "NodeResourcesBalancedAllocation": {"stacks", "is_volatile", "reads_usage", "reads_usage_alone"},
    "ImageLocality": set(),
}


def true_of(facts: PluginFacts) -> set[str]:
    return {one.name for one in fields(facts) if getattr(facts, one.name) is True}


@pytest.mark.parametrize("is_metered", [False, True])
def test_facts_of_the_default_profile(is_metered: bool) -> None:
    profile = default_profile(IN_TREE)
    if is_metered:
        budgets = {plugin.name: TimeBudget(1.0) for plugin in profile.plugins()}
        profile = CycleMeter(lambda: 0.0, budgets).metered(profile)
    facts = facts_of(profile)
    assert {name: true_of(one) for name, one in facts.items()} == EXPECTED
    assert {one.reads_pod for one in facts.values()} == {PodPart.LEAST}
    # Each once, PreFilter first.
    assert next(iter(facts)) == profile.pre_filter[0].name
    assert {id(one.plugin) for one in facts.values()} <= {id(plugin) for plugin in profile.plugins()}


class ReadsAllLabels(NodePorts):
    reads_mentioned_labels_alone = False


@pytest.mark.parametrize(
    ("plugin", "expected"), [(Named(), PodPart(0)), (ReadsAllLabels(), PodPart.LEAST & ~PodPart.LABELS_BY_SELECTOR)]
)
def test_a_plugin_that_does_not_say_how_it_reads_a_pod_is_given_all_of_it(plugin: Named, expected: PodPart) -> None:
    facts = facts_of(replace(default_profile(IN_TREE), pre_filter=(plugin,), filter=(), score=()))
    assert facts[plugin.name].reads_pod == expected
