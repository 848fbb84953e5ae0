"""PodTopologySpread and InterPodAffinity in clusters where little else stands in the way, against the naive scheduler.

Nodes have room for everything; a few have taints or another disk. Whatever is fed with differences (counters, sums by domain,
kept columns) is compared with a count from nothing after each change.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from rayched.engine.engine import Engine
from rayched.engine.evaluation import PluginColumns, RowsEvaluation
from rayched.framework.profile import Profile
from rayched.framework.status import Code
from rayched.snapshot.rows import WhatIfRows
from rayched.snapshot.verification import verify
from rayched.v1.core_pb2 import Node, Pod
from tests.oracle.naive import GOOD, NEVER, NO, NaiveScheduler, Settings
from tests.oracle.naive_topology import AffinitySettings
from tests.plugins.clusters import World, random_spread_settings
from tests.plugins.random_worlds import profile_with, seeds
from tests.plugins.topology_parts import add_domains, add_topology
from tests.sampling import part_of

PLUGINS = ("PodTopologySpread", "InterPodAffinity")
CODES = {GOOD: Code.SUCCESS, NO: Code.UNSCHEDULABLE, NEVER: Code.UNSCHEDULABLE_AND_UNRESOLVABLE}


class RoomyWorld(World):
    """Little but topology decides here."""

    def draw_node(self, name: str) -> Node:
        random, node = self.random, Node()
        node.metadata.name = name
        add_domains(random, node.metadata.labels, name)
        node.metadata.labels["rack"] = random.choice(("r1", "r2", "r3", "r4"))
        node.metadata.labels["disktype"] = random.choice(("ssd", "ssd", "hdd"))
        if random.random() < 0.15:
            node.spec.taints.add(key="gpu", effect=random.choice(("NoSchedule", "PreferNoSchedule")))
        for resource, amount in {"cpu": "100", "memory": "1Ti", "pods": "1000"}.items():
            node.status.allocatable[resource].string = amount
        return node

    def draw_pod(self) -> Pod:
        random, pod = self.random, Pod()
        pod.spec.containers.add(name="c", image="app:1")
        if random.random() < 0.2:
            pod.spec.node_selector["disktype"] = "ssd"
        if random.random() < 0.2:
            pod.spec.tolerations.add(key="gpu", operator="Exists")
        add_topology(random, pod)
        return pod


def roomy(seed: int) -> tuple[RoomyWorld, Profile]:
    random = Random(seed)
    plain = Settings(
        spread=random_spread_settings(random),
        affinity=AffinitySettings(random.choice((1, 0, 10)), random.random() < 0.2, random.random() < 0.5),
    )
    return RoomyWorld(seed, plain, n_nodes=random.choice((2, 5, 9)), n_pods=random.choice((0, 4, 12))), profile_with(plain)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("K2.9", "K4.3", "K4.6")
@given(seed=seeds)
@settings(max_examples=part_of(120), deadline=None, derandomize=True)
def test_both_plugins_follow_every_change_as_if_counted_anew(seed: int) -> None:
    world, profile = roomy(seed)
    engine = Engine(world.snapshot, profile)
    pods = [world.incoming() for _ in range(4)]
    for step in range(6):
        for pod, template in pods:
            where = f"seed {seed}, step {step}"
            rows = engine.explain(template).rows
            feasible = [world.snapshot.name_of(row) for row in rows.index[rows.feasible].tolist()]
            _compare_plugins(world, pod, rows, feasible, where)
            evaluation = engine.evaluate(template)
            found = [world.snapshot.name_of(row) for row in evaluation.feasible.nonzero()[0].tolist()]
            assert found == feasible, where
            if len(found) > 1:
                assert evaluation.total[rows.index[rows.feasible]].tolist() == rows.total[rows.feasible].tolist(), where
        world.change()
        verify(world.snapshot)


def _compare_plugins(world: World, pod: Pod, rows: RowsEvaluation, feasible: list[str], where: str) -> None:
    filters = {found.plugin: found for found in rows.filters}
    scores = {found.plugin: found for found in rows.scores}
    names = [world.snapshot.name_of(row) for row in rows.index.tolist()]
    for plugin, beyond in zip(PLUGINS, world.naive.beyond_one_node(pod), strict=True):
        expected = [CODES[beyond.verdict(world.naive.nodes[name])[0]] for name in names]
        assert _codes(filters.get(plugin), len(names)) == expected, f"{where}, {plugin}"
        wanted = beyond.scores([world.naive.nodes[name] for name in feasible]) if feasible else None
        found = scores.get(plugin)
        if wanted is None or found is None:
            assert wanted is None and found is None, f"{where}, {plugin}"
            continue
        assert found.raw is not None and found.normalized is not None
        assert found.raw[rows.feasible].tolist() == wanted[0], f"{where}, {plugin}"
        assert found.normalized[rows.feasible].tolist() == wanted[1], f"{where}, {plugin}"


def _codes(found: PluginColumns | None, n: int) -> list[Code]:
    if found is None or found.codes is None:
        return [Code.SUCCESS] * n
    return [Code(code) for code in found.codes.tolist()]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("F7")
@given(seed=seeds)
@settings(max_examples=part_of(200), deadline=None, derandomize=True)
def test_a_row_as_it_would_be_is_judged_as_a_cluster_with_those_pods_on_that_node(seed: int) -> None:
    """A plugin that PreFilter skips stays skipped, whatever would come."""
    world, profile = roomy(seed)
    engine = Engine(world.snapshot, profile)
    pod, template = world.incoming()
    added = world.draw_pod()
    names = list(world.naive.nodes)
    what_if = WhatIfRows(
        world.snapshot, engine.explain(template).rows.index, (world.templates.intern(added), world.random.choice((1, 2)))
    )
    count = what_if.changes[0][1]
    found = {column.plugin: column for column in engine.filter_rows(template, what_if).columns}
    skipped = {column.plugin for column in engine.filter_rows(template, what_if.index).columns if column.codes is None}
    for place, row in enumerate(what_if.index.tolist()):
        name = world.snapshot.name_of(row)
        other = NaiveScheduler(world.naive.settings)
        other.nodes, other.pods = world.naive.nodes, dict(world.naive.pods)
        other.terminating, other.around = world.naive.terminating, world.naive.around
        for number in range(int(count)):
            other.bind(f"added-{number}", added, name)
        for plugin, beyond in zip(PLUGINS, other.beyond_one_node(pod), strict=True):
            if plugin in skipped or plugin not in found:
                continue
            if plugin == "PodTopologySpread" and _selects_all(pod):
                continue
            expected = CODES[beyond.verdict(world.naive.nodes[name])[0]]
            assert _codes(found[plugin], len(names))[place] is expected, f"seed {seed}, {plugin}, {name}"


def _selects_all(pod: Pod) -> bool:
    """An empty selector counts no bound pod, but it counts those that would come; a cluster that has them says otherwise."""
    return any(
        one.HasField("label_selector") and not one.label_selector.match_labels and not one.label_selector.match_expressions
        for one in pod.spec.topology_spread_constraints
    )
