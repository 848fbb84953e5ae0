"""PodTopologySpread and InterPodAffinity about nodes that some of their pods have left, as preemption asks, by naive rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from rayched.framework.status import Code
from rayched.snapshot.rows import WhatIfRows
from rayched.v1.core_pb2 import Pod
from tests.oracle.naive import NaiveScheduler
from tests.plugins.builders import PodBuilder, a_node, a_pod
from tests.plugins.engine_case import Case
from tests.plugins.random_worlds import seeds
from tests.plugins.test_topology_against_naive import CODES, PLUGINS, RoomyWorld, roomy
from tests.sampling import part_of

HOST, ZONE = "kubernetes.io/hostname", "zone"


def without_one(world: RoomyWorld, pod: Pod, node: str) -> NaiveScheduler:
    """The cluster without one such pod on the node, if there is one that is not being deleted."""
    other = NaiveScheduler(world.naive.settings)
    other.nodes, other.pods = world.naive.nodes, dict(world.naive.pods)
    other.terminating, other.around = world.naive.terminating, world.naive.around
    gone = next(iter(alike(world, pod, node)), None)
    if gone is not None:
        del other.pods[gone]
    return other


def alike(world: RoomyWorld, pod: Pod, node: str) -> list[str]:
    found = world.naive.pods.items()
    return [uid for uid, (one, where) in found if where == node and one == pod and uid not in world.naive.terminating]


def selects_all(pod: Pod) -> bool:
    """Such a constraint counts no bound pod, yet those that would come or go."""
    return any(
        one.HasField("label_selector") and not one.label_selector.match_labels and not one.label_selector.match_expressions
        for one in pod.spec.topology_spread_constraints
    )


@pytest.mark.sampled
@pytest.mark.slow
@given(seed=seeds)
@settings(max_examples=part_of(100), deadline=None, derandomize=True)
def test_a_row_without_one_of_its_pods_is_judged_as_a_cluster_without_it(seed: int) -> None:
    world, profile = roomy(seed)
    bound = [one for one, where in world.naive.pods.values() if where in world.naive.nodes]
    if not bound:
        return
    gone = world.random.choice(bound)
    for uid in ("more-1", "more-2"):
        # So that some nodes keep one of a kind that leaves.
        name = world.random.choice(list(world.naive.nodes))
        world.snapshot.bind(uid, world.templates.intern(gone), name)
        world.naive.bind(uid, gone, name)
    index = world.snapshot.alive.nonzero()[0]
    names = [world.snapshot.name_of(row) for row in index.tolist()]
    n_gone = np.array([-min(1, len(alike(world, gone, name))) for name in names], np.int64)
    for _ in range(4):
        pod, _ = world.incoming()
        for plugin in profile.filter:
            if plugin.name not in PLUGINS or plugin.key(pod) is None or (plugin.name == PLUGINS[0] and selects_all(pod)):
                continue
            counting: Any = plugin
            rows = WhatIfRows(world.snapshot, index, (world.templates.intern(gone), n_gone))
            found = counting.filter(counting.count(counting.prepare(pod), world.snapshot, None), rows)
            for place, name in enumerate(names):
                naive = without_one(world, gone, name).beyond_one_node(pod)[PLUGINS.index(plugin.name)]
                expected = CODES[naive.verdict(world.naive.nodes[name])[0]]
                code = Code.SUCCESS if found is None else Code(int(found[place]))
                if found is not None or expected is not Code.SUCCESS:
                    assert code is expected, f"seed {seed}, {plugin.name}, {name}"


def spreading(max_skew: int = 1, min_domains: int | None = None) -> PodBuilder:
    pod = a_pod().named(app="web").spreading(ZONE, max_skew=max_skew)
    if min_domains is not None:
        pod.pod.spec.topology_spread_constraints[0].min_domains = min_domains
    return pod


@pytest.mark.parametrize(
    ("pods", "pod", "change", "feasible"),
    [
        # Of two zones with 2 and 1 pods: one more pod, or one fewer.
        ((2, 1), spreading(), 0, [False, True]),
        ((2, 1), spreading(), 1, [False, True]),
        ((2, 1), spreading(), -1, [True, True]),
        ((1, 1), spreading(), 1, [False, False]),
        ((1, 1), spreading(max_skew=2), 1, [True, True]),
        ((0, 1), spreading(), 1, [True, False]),
        ((3, 1), spreading(max_skew=2), -1, [True, True]),
        ((3, 1), spreading(), -1, [False, True]),
        # The emptiest counts as none where there are fewer zones than that.
        ((1, 1), spreading(min_domains=2), 0, [True, True]),
        ((1, 1), spreading(min_domains=3), 0, [False, False]),
        ((1, 1), spreading(min_domains=3), -1, [True, True]),
        ((1, 1), spreading(min_domains=2), 1, [False, False]),
        ((2, 2), spreading(min_domains=2), 0, [True, True]),
        # A single zone is its own emptiest one.
        ((3,), spreading(), 1, [True]),
        ((3,), spreading(min_domains=2), -1, [False]),
    ],
)
def test_domains_with_more_or_fewer_pods(pods: tuple[int, ...], pod: PodBuilder, change: int, feasible: list[bool]) -> None:
    case = Case(*(a_node(f"n{zone}").labelled(**{ZONE: f"z{zone}"}) for zone in range(len(pods))))
    for zone, number in enumerate(pods):
        for _ in range(number):
            case.bind(a_pod().named(app="web"), f"n{zone}")
    template = case.templates.intern(a_pod().named(app="web").pod)
    rows = WhatIfRows(case.snapshot, case.snapshot.alive.nonzero()[0], (template, change))
    found = case.engine.filter_rows(case._template(pod), rows).codes
    assert [code == Code.SUCCESS for code in found.tolist()] == feasible
