"""Strategies and balance in columns, against the same arithmetic row by row; and which pods ask a plugin the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.framework.plugin_args import (
    InterPodAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    ShapePoint,
)
from rayched.plugins.inter_pod_affinity.plugin import InterPodAffinity
from rayched.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from rayched.plugins.node_resources.scoring import least_allocated, most_allocated, requested_to_capacity_ratio
from rayched.plugins.normalizing import fewest_first, most_first
from rayched.plugins.pod_topology_spread.plugin import PodTopologySpread
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import TopologySpreadConstraint
from tests.plugins.builders import PodBuilder, a_node, a_pod, a_term, pods_with
from tests.plugins.engine_case import Case
from tests.sampling import part_of

capacities = st.sampled_from((0, 1, 2, 3, 7, 10, 1_000))
amounts = st.sampled_from((0, 1, 2, 3, 5, 9, 10, 333, 999, 1_000, 1_200))


def tables(n_resources: int, n_rows: int) -> st.SearchStrategy[tuple[list[list[int]], list[list[int]], list[int]]]:
    def of(values: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[int]]]:
        return st.lists(st.lists(values, min_size=n_rows, max_size=n_rows), min_size=n_resources, max_size=n_resources)

    return st.tuples(of(amounts), of(capacities), st.lists(st.integers(1, 5), min_size=n_resources, max_size=n_resources))


drawn = st.tuples(st.integers(1, 4), st.integers(1, 3)).flatmap(lambda shape: tables(*shape))


@pytest.mark.sampled
@given(table=drawn)
@settings(max_examples=part_of(150), deadline=None, derandomize=True)
def test_allocated_shares_are_weighted_over_what_a_node_has(table: tuple[list[list[int]], list[list[int]], list[int]]) -> None:
    used, capacity, weights = table
    columns = (np.array(used, np.int64), np.array(capacity, np.int64), np.array(weights, np.int64))
    for scorer, share in ((least_allocated, lambda u, c: max(c - u, 0)), (most_allocated, min)):
        expected = []
        for row in range(len(used[0])):
            parts = [
                (w, 100 * share(u[row], c[row]) // c[row]) for u, c, w in zip(used, capacity, weights, strict=True) if c[row]
            ]
            expected.append(sum(w * score for w, score in parts) // sum(w for w, _ in parts) if parts else 0)
        assert scorer(*(column.copy() for column in columns)).tolist() == expected


SHAPES = (
    ((0, 0), (100, 10)),
    ((0, 10), (100, 0)),
    ((30, 7),),
    ((20, 0), (40, 4), (60, 10)),
    ((10, 9), (50, 2), (90, 5)),
    ((0, 0), (33, 10), (66, 1)),
)


def score_at(shape: tuple[tuple[int, int], ...], utilization: int) -> int:
    """Between two points on the line between them, cut towards the left one."""
    if utilization <= shape[0][0]:
        return 10 * shape[0][1]
    for (left, low), (right, high) in pairwise(shape):
        if utilization <= right:
            return 10 * low + math.trunc((10 * high - 10 * low) * (utilization - left) / (right - left))
    return 10 * shape[-1][1]


@pytest.mark.sampled
@given(table=drawn, shape=st.sampled_from(SHAPES))
@settings(max_examples=part_of(200), deadline=None, derandomize=True)
def test_ratios_are_those_of_the_shape_and_what_scores_nothing_has_no_weight(
    table: tuple[list[list[int]], list[list[int]], list[int]], shape: tuple[tuple[int, int], ...]
) -> None:
    used, capacity, weights = table
    expected = []
    for row in range(len(used[0])):
        scores = [
            (w, score_at(shape, 100 * min(u[row], c[row]) // c[row]) if c[row] else 0)
            for u, c, w in zip(used, capacity, weights, strict=True)
        ]
        total, weight = sum(w * score for w, score in scores), sum(w for w, score in scores if score)
        expected.append((2 * total + weight) // (2 * weight) if weight else 0)
    scorer = requested_to_capacity_ratio(tuple(ShapePoint(*point) for point in shape))
    assert scorer(np.array(used, np.int64), np.array(capacity, np.int64), np.array(weights, np.int64)).tolist() == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_each_percent_of_a_shape(shape: tuple[tuple[int, int], ...]) -> None:
    scorer = requested_to_capacity_ratio(tuple(ShapePoint(*point) for point in shape))
    used = np.arange(101, dtype=np.int64)[None, :]
    found = scorer(used, np.full((1, 101), 100, np.int64), np.ones(1, np.int64)).tolist()
    assert found == [score_at(shape, percent) for percent in range(101)]


@pytest.mark.parametrize(
    ("offered", "requested", "score"),
    [
        # Shares of cpu, memory and two extended resources; those that are not there do not count.
        ({"cpu": "1", "memory": "4"}, {"cpu": "1", "memory": "2"}, 75),
        ({"cpu": "1"}, {"cpu": "500m"}, 100),
        ({"cpu": "1", "memory": "1", "a.com/x": "1"}, {"cpu": "1", "memory": "1", "a.com/x": "1"}, 100),
        ({"cpu": "1", "memory": "1", "a.com/x": "1"}, {"cpu": "500m", "a.com/x": "1"}, 59),
        (
            {"cpu": "1", "memory": "2", "a.com/x": "1", "a.com/y": "4"},
            {"cpu": "1", "memory": "1", "a.com/x": "1", "a.com/y": "3"},
            79,
        ),
        ({"cpu": "1", "memory": "1", "a.com/x": "2"}, {"cpu": "9", "memory": "9", "a.com/x": "1"}, 76),
        ({"a.com/x": "2", "a.com/y": "2"}, {"a.com/x": "2", "a.com/y": "1"}, 75),
        ({"a.com/x": "4", "a.com/y": "4"}, {"a.com/x": "2", "a.com/y": "1"}, 87),
        ({}, {"a.com/x": "2"}, 100),
    ],
)
def test_balance_over_any_resources(offered: dict[str, str], requested: dict[str, str], score: int) -> None:
    names = ("cpu", "memory", "a.com/x", "a.com/y")
    plugin = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs(tuple(ResourceSpec(name) for name in names)))
    node = a_node("n").offering_of({"cpu": "0", "memory": "0", **offered})
    case = Case(node, a_node("all").offering_of(dict.fromkeys(names, "9")))
    pod = a_pod().requesting_of(requested).pod
    assert plugin.key(pod) is not None
    assert plugin.score(plugin.prepare(pod), Rows(case.snapshot, slice(0, 2))).tolist()[0] == score
    assert plugin.stack([plugin.prepare(pod)]) is None, "not of any resources"


@pytest.mark.parametrize(
    ("offered", "requested", "score"),
    [
        ({"cpu": "1", "memory": "4"}, {"cpu": "1", "memory": "2"}, 75),
        ({"cpu": "1", "memory": "4"}, {"cpu": "1", "memory": "4"}, 100),
        ({"cpu": "1", "memory": "4"}, {"memory": "1"}, 87),
        ({"cpu": "1", "memory": "0"}, {"cpu": "1", "memory": "2"}, 100),
        ({"cpu": "0", "memory": "4"}, {"cpu": "1", "memory": "2"}, 100),
        ({"cpu": "1", "memory": "4"}, {"cpu": "3", "memory": "2"}, 75),
    ],
)
@pytest.mark.parametrize("has_other", [False, True])
def test_balance_over_cpu_and_memory(offered: dict[str, str], requested: dict[str, str], score: int, has_other: bool) -> None:
    """Beside a node that lacks one of them, and alone."""
    plugin = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs())
    case = Case(a_node("n").offering_of(offered), a_node("other").offering(cpu="0" if has_other else "1"))
    pods = [a_pod().requesting_of(requested).pod, a_pod().requesting(cpu="250m", memory="1").pod]
    state = plugin.prepare(pods[0])
    assert plugin.score(state, Rows(case.snapshot, slice(0, 2))).tolist()[0] == score
    alone, both = plugin.stack([state]), plugin.stack([state, plugin.prepare(pods[1])])
    assert alone is not None and both is not None
    row = Rows(case.snapshot, slice(0, 1))
    assert plugin.score(alone, row).tolist() == [score]
    assert plugin.score(both, row).tolist() == [score, *plugin.score(plugin.prepare(pods[1]), row).tolist()]


@pytest.mark.parametrize(
    ("requested", "asks"), [({}, False), ({"cpu": "1"}, True), ({"memory": "1"}, True), ({"a.com/x": "1"}, False)]
)
def test_balance_is_nothing_to_pods_that_request_none_of_the_resources(requested: dict[str, str], asks: bool) -> None:
    plugin = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs())
    assert (plugin.key(a_pod().requesting_of(requested).pod) is not None) is asks


@pytest.mark.parametrize(
    ("high", "most", "fewest"),
    [(0, [0, 0, 0], [100, 100, 100]), (1, [0, 100, 100], [100, 0, 0]), (3, [0, 33, 33], [100, 67, 67])],
)
def test_scores_relative_to_the_highest(high: int, most: list[int], fewest: list[int]) -> None:
    """Where all are 0 nothing is divided by it."""
    raw = np.minimum(np.array([0, 1, 1], np.int64), high)
    with np.errstate(all="raise"):
        assert most_first(raw, high).tolist() == most
        assert fewest_first(raw, high).tolist() == fewest


# ------------------------------------------------------------------------------------------------------------------- keys


def spreading(*changes: Callable[[TopologySpreadConstraint], object]) -> PodBuilder:
    """By zone and by rack, each constraint changed."""
    pod = a_pod().named(app="web").spreading("zone").spreading("rack")
    for constraint, change in zip(pod.pod.spec.topology_spread_constraints, changes, strict=False):
        change(constraint)
    return pod


def ignoring(constraint: TopologySpreadConstraint) -> None:
    constraint.node_affinity_policy = "Ignore"


def honoring_taints(constraint: TopologySpreadConstraint) -> None:
    constraint.node_taints_policy = "Honor"


def owned(pod: PodBuilder, name: str, controller: bool = True, kind: str = "ReplicaSet", version: str = "apps/v1") -> PodBuilder:
    pod.pod.metadata.owner_references.add(api_version=version, kind=kind, name=name, controller=controller)
    return pod


def plain() -> PodBuilder:
    return a_pod().named(app="web")


ZONE_A = a_term(("zone", "In", ("a",)))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (spreading(), spreading().requesting(cpu="1").on_host_port(80), True),
        (spreading(), a_pod().named(app="web").spreading("zone"), False),
        (spreading(), a_pod().named(app="web").spreading("rack").spreading("zone"), False),
        (spreading(), spreading().named("other"), False),
        (spreading(), spreading().named(tier="x"), False),
        # Which nodes count is told by node affinity, unless all constraints ignore it.
        (spreading(), spreading().selecting(disk="ssd"), False),
        (spreading(), spreading().requiring(ZONE_A), False),
        (spreading().requiring(ZONE_A), spreading().requiring(a_term(("zone", "In", ("b",)))), False),
        (spreading(), spreading().requiring(), False),
        (spreading(ignoring), spreading(ignoring).selecting(disk="ssd"), False),
        (spreading(ignoring), spreading(ignoring).requiring(ZONE_A), False),
        (spreading(ignoring, ignoring), spreading(ignoring, ignoring).selecting(disk="ssd"), True),
        (spreading(ignoring, ignoring), spreading(ignoring, ignoring).requiring(ZONE_A), True),
        (spreading(), spreading().preferring(1, ZONE_A), True),
        # And by taints only where a constraint says so; the order of tolerations and what comes twice says nothing.
        (spreading(), spreading().tolerating("gpu"), True),
        (spreading(honoring_taints), spreading(honoring_taints).tolerating("gpu"), False),
        (spreading(honoring_taints).tolerating("a"), spreading(honoring_taints).tolerating("a", "x"), False),
        (spreading(honoring_taints).tolerating("a"), spreading(honoring_taints).tolerating("a", operator="Exists"), False),
        (spreading(honoring_taints).tolerating("a"), spreading(honoring_taints).tolerating("a", effect="NoSchedule"), False),
        (
            spreading(honoring_taints).tolerating("a").tolerating("b"),
            spreading(honoring_taints).tolerating("b").tolerating("a").tolerating("b"),
            True,
        ),
        # The owner matters to those alone that have no constraints of their own, and only the one that controls.
        (owned(spreading(), "a"), owned(spreading(), "b"), True),
        (owned(plain(), "a"), owned(plain(), "b"), False),
        (owned(plain(), "a"), owned(plain(), "a", kind="StatefulSet"), False),
        (owned(plain(), "a"), owned(plain(), "a", version="apps/v2"), False),
        (plain(), owned(plain(), "a"), False),
        (plain(), owned(plain(), "a", controller=False), True),
        (owned(owned(plain(), "x", controller=False), "a"), owned(plain(), "a"), True),
        # The built-in defaults honour node affinity, not taints.
        (plain(), plain().selecting(disk="ssd"), False),
        (plain(), plain().tolerating("gpu"), True),
    ],
)
def test_pods_that_ask_topology_spread_the_same(one: PodBuilder, other: PodBuilder, is_same: bool) -> None:
    plugin = PodTopologySpread(PodTopologySpreadArgs())
    assert plugin.key(one.pod) is not None
    assert (plugin.key(one.pod) == plugin.key(other.pod)) is is_same


def test_topology_spread_is_nothing_to_pods_for_which_nobody_has_constraints() -> None:
    hard = TopologySpreadConstraint(max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule")
    for defaults, asks in (((), False), ((hard,), True)):
        plugin = PodTopologySpread(PodTopologySpreadArgs(defaults, "List"))
        assert (plugin.key(plain().pod) is not None) is asks
        assert plugin.key(spreading().pod) is not None
    tainted = TopologySpreadConstraint(topology_key="rack", node_taints_policy="Honor", node_affinity_policy="Ignore")
    plugin = PodTopologySpread(PodTopologySpreadArgs((tainted,), "List"))
    assert plugin.key(plain().pod) != plugin.key(plain().tolerating("gpu").pod)
    assert plugin.key(plain().pod) == plugin.key(plain().selecting(disk="ssd").pod)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (plain().near("zone", pods_with(app="db")).requesting(cpu="1").selecting(disk="ssd").tolerating("gpu"), True),
        (plain().named("other").near("zone", pods_with(app="db")), False),
        (plain().named(tier="x").near("zone", pods_with(app="db")), False),
        (plain().near("zone", pods_with(app="web")), False),
        (plain().near("zone", pods_with(app="db")).away("zone", pods_with(app="db")), False),
        (plain(), False),
    ],
)
def test_pods_that_ask_pod_affinity_the_same(other: PodBuilder, is_same: bool) -> None:
    plugin = InterPodAffinity(InterPodAffinityArgs())
    assert (plugin.key(plain().near("zone", pods_with(app="db")).pod) == plugin.key(other.pod)) is is_same
