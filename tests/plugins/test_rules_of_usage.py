"""The rules of what pods take up, as tables: host ports, resources and their strategies, balance, images."""

from __future__ import annotations

import numpy as np
import pytest

from rayched.framework.plugin_args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
    ScoringStrategyType,
    ShapePoint,
)
from rayched.framework.status import Code
from rayched.plugins.node_resources.fit import NodeResourcesFit
from rayched.snapshot.rows import Rows
from tests.plugins.builders import a_node, a_pod, a_term
from tests.plugins.engine_case import Case

RATIO = ScoringStrategyType.REQUESTED_TO_CAPACITY_RATIO


# --------------------------------------------------------------------------------------------------------------- ports


@pytest.mark.parametrize(
    ("held", "wanted", "fits"),
    [
        ((80, "", ""), (80, "", ""), False),
        ((80, "10.0.0.1", ""), (80, "10.0.0.2", ""), True),
        ((80, "10.0.0.1", ""), (80, "10.0.0.1", "TCP"), False),
        ((80, "10.0.0.1", ""), (80, "0.0.0.0", ""), False),
        ((80, "", ""), (80, "10.0.0.1", ""), False),
        ((80, "", "UDP"), (80, "", "TCP"), True),
        ((80, "", ""), (81, "", ""), True),
        ((80, "", ""), (0, "", ""), True),
    ],
)
def test_host_ports_conflict_by_protocol_port_and_address(
    held: tuple[int, str, str], wanted: tuple[int, str, str], fits: bool
) -> None:
    case = Case(a_node("n")).bind(a_pod().on_host_port(*held), "n")
    pod = a_pod().on_host_port(*wanted)
    assert bool(case.feasible(pod)) is fits
    if not fits:
        assert case.code(pod, "n") is Code.UNSCHEDULABLE


def test_ports_of_init_containers_count_only_for_sidecars() -> None:
    case = Case(a_node("n")).bind(a_pod().on_host_port(80), "n")
    assert case.feasible(a_pod().on_host_port(80, init=True)) == ["n"]
    assert case.feasible(a_pod().on_host_port(80, init=True, restart="Always")) == []


# ----------------------------------------------------------------------------------------------------------- resources


def test_all_resources_that_are_short_are_named_and_hopeless_nodes_are_told_apart() -> None:
    case = Case(a_node("n").offering(cpu="2", memory="1Gi", pods="1")).bind(a_pod().requesting(cpu="1"), "n")
    pod = a_pod().requesting(cpu="1500m", memory="512Mi")
    assert case.message(pod) == "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."
    assert case.code(pod, "n") is Code.UNSCHEDULABLE
    assert case.code(a_pod().requesting(cpu="1500m", memory="2Gi"), "n") is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    unknown = a_pod().requesting_of({"example.com/foo": "1"})
    assert case.message(unknown) == "0/1 nodes are available: 1 Insufficient example.com/foo, 1 Too many pods."
    assert case.code(unknown, "n") is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert "Insufficient" not in case.message(a_pod().requesting_of({"example.com/foo": "0"}))


def test_ignored_resources_are_left_to_others() -> None:
    args = NodeResourcesFitArgs(ignored_resources=("a.com/x", "hugepages-2Mi"), ignored_resource_groups=("b.com",))
    case = Case(a_node("n"), NodeResourcesFit=args)
    assert case.feasible(a_pod().requesting_of({"a.com/x": "1", "b.com/y": "1"})) == ["n"]
    assert case.feasible(a_pod().requesting_of({"a.com/z": "1"})) == []
    assert case.feasible(a_pod().requesting_of({"hugepages-2Mi": "2Mi"})) == [], "only extended resources can be ignored"


def ratio(*points: tuple[int, int], **weights: int) -> NodeResourcesFitArgs:
    resources = tuple(ResourceSpec(name.replace("_", ".com/"), weight) for name, weight in weights.items())
    return NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(RATIO, resources, tuple(ShapePoint(*point) for point in points)))


@pytest.mark.row("K8.4", "K8.3", "K8.1")
def test_the_documented_example_of_bin_packing_by_ratio() -> None:
    """Scores are on a scale to 100 where the document works on one to 10 and rounds early."""
    case = Case(
        a_node("one").offering_of({"intel.com/foo": "4", "memory": "1Gi", "cpu": "8"}),
        a_node("two").offering_of({"intel.com/foo": "8", "memory": "1Gi", "cpu": "8"}),
        NodeResourcesFit=ratio((0, 0), (100, 10), intel_foo=5, memory=1, cpu=3),
    )
    case.bind(a_pod().requesting_of({"intel.com/foo": "1", "memory": "256Mi", "cpu": "1"}), "one")
    case.bind(a_pod().requesting_of({"intel.com/foo": "2", "memory": "512Mi", "cpu": "6"}), "two")
    pod = a_pod().requesting_of({"intel.com/foo": "2", "memory": "256Mi", "cpu": "2"})
    assert {name: raw for name, (raw, _) in case.scores(pod, "NodeResourcesFit").items()} == {"one": 60, "two": 69}


@pytest.mark.row("K8.1", "K8.3")
@pytest.mark.parametrize(
    ("args", "empty", "full"),
    [
        (NodeResourcesFitArgs(), 87, 37),
        (NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(ScoringStrategyType.MOST_ALLOCATED)), 12, 62),
        (ratio((0, 0), (100, 10), cpu=1), 12, 62),
        (ratio((0, 10), (100, 0), cpu=1), 88, 38),
        (ratio((50, 5), cpu=1), 50, 50),
        (ratio((20, 0), (40, 4), (60, 10), cpu=1), 0, 100),
    ],
)
def test_strategies_rank_an_empty_and_a_used_node(args: NodeResourcesFitArgs, empty: int, full: int) -> None:
    case = Case(a_node("empty"), a_node("full"), NodeResourcesFit=args)
    case.bind(a_pod().requesting(cpu="4", memory="8Gi"), "full")
    scores = case.scores(a_pod().requesting(cpu="1", memory="2Gi"), "NodeResourcesFit")
    assert (scores["empty"][0], scores["full"][0]) == (empty, full)


def test_a_resource_that_scores_nothing_leaves_the_weighted_mean() -> None:
    case = Case(a_node("n"), a_node("other"), NodeResourcesFit=ratio((50, 0), (100, 10), cpu=1, memory=9))
    assert case.scores(a_pod().requesting(cpu="6", memory="1Gi"), "NodeResourcesFit")["n"][0] == 50


def test_a_node_that_admits_no_pods_could_still_lose_some() -> None:
    case = Case(a_node("n").offering(pods="0"))
    assert case.message(a_pod()) == "0/1 nodes are available: 1 Too many pods."
    assert case.code(a_pod(), "n") is Code.UNSCHEDULABLE


def test_requests_that_are_absent_count_with_a_default_in_fit_scores_only() -> None:
    case = Case(a_node("n").offering(cpu="1", memory="2000Mi"), a_node("other"))
    assert case.scores(a_pod(), "NodeResourcesFit")["n"][0] == 90
    assert case.scores(a_pod().requesting(cpu="0", memory="0"), "NodeResourcesFit")["n"][0] == 100
    rows = case.engine.explain(case._template(a_pod())).rows
    assert "NodeResourcesBalancedAllocation" not in [column.plugin for column in rows.scores], "nothing requested: skipped"


@pytest.mark.parametrize(
    ("cpu", "memory", "score"),
    [("4", "8Gi", 100), ("8", "8Gi", 75), ("4", "0", 75), ("8", "0", 50), ("7", "9Gi", 84)],
)
def test_balance_is_the_distance_of_the_shares_used(cpu: str, memory: str, score: int) -> None:
    case = Case(a_node("n"), a_node("other"))
    assert case.scores(a_pod().requesting(cpu=cpu, memory=memory), "NodeResourcesBalancedAllocation")["n"][0] == score


def test_balance_leaves_out_what_a_node_does_not_have() -> None:
    names = ("cpu", "memory", "ephemeral-storage", "example.com/foo")
    args = NodeResourcesBalancedAllocationArgs(tuple(ResourceSpec(name) for name in names))
    amounts = {"cpu": "8", "memory": "8Gi", "ephemeral-storage": "5Gi", "example.com/foo": "2"}
    case = Case(
        a_node("all").offering_of({"ephemeral-storage": "10Gi", "example.com/foo": "8"}),
        a_node("three").offering_of({"example.com/foo": "8"}),
        a_node("two"),
        NodeResourcesBalancedAllocation=args,
        NodeResourcesFit=NodeResourcesFitArgs(ignored_resources=("example.com/foo",)),
    )
    pod = a_pod().requesting_of({name: amount for name, amount in amounts.items() if name != "ephemeral-storage"})
    scores = case.scores(pod, "NodeResourcesBalancedAllocation")
    # Shares 1, 0.5, 0 and 0.25; 1, 0.5 and 0.25; 1 and 0.5.
    assert {name: raw for name, (raw, _) in scores.items()} == {"all": 63, "three": 68, "two": 75}


# -------------------------------------------------------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("images", "score"),
    [
        (("big:1",), 6),
        (("big:1", "big:1"), 7),
        (("small",), 0),
        (("unknown:1",), 0),
        (("huge:1",), 48),
        (("huge:1", "unknown"), 24),
    ],
)
def test_images_that_are_there_score_by_size_and_spread(images: tuple[str, ...], score: int) -> None:
    """Half of the nodes have them, so half of their size counts, above 23 MiB, out of 1000 MiB a container."""
    here = a_node("here").with_image("big:1", 170).with_image("small:latest", 20).with_image("huge:1", 1000)
    case = Case(here, a_node("there"))
    found = case.scores(a_pod().with_images(*images), "ImageLocality")
    assert (found["here"][0], found["there"][0]) == (score, 0)


def test_more_than_a_thousand_mebibytes_a_container_count_for_no_more() -> None:
    case = Case(a_node("a").with_image("huge:1", 3000), a_node("b").with_image("huge:1", 3000))
    assert case.scores(a_pod().with_images("huge:1"), "ImageLocality")["a"][0] == 100


def test_the_first_nodes_size_of_an_image_counts_for_all() -> None:
    case = Case(a_node("first").with_image("app:1", 500), a_node("second").with_image("app:1", 900))
    scores = case.scores(a_pod().with_images("app:1"), "ImageLocality")
    assert scores["first"] == scores["second"] == ((500 - 23) * 100 // (1000 - 23), 48)


def test_columns_are_int64_and_codes_uint8() -> None:
    case = Case(a_node("a").with_taint("x", effect="PreferNoSchedule"), a_node("b"))
    pod = a_pod().requesting(cpu="1").on_host_port(80).selecting(x="1").preferring(1, a_term(("x", "Exists", ())))
    rows = case.engine.explain(case._template(pod)).rows
    assert all(column.codes is None or column.codes.dtype == np.uint8 for column in rows.filters)
    assert all(column.raw is None or column.raw.dtype == np.int64 for column in rows.scores)


def test_of_many_requests_that_fit_asks_for_at_once_each_is_short_of_what_it_is_short_of_alone() -> None:
    case = Case(a_node("n0").offering(cpu="4", memory="4Gi", pods="3"), a_node("n1"))
    case.bind(a_pod().requesting(cpu="1"), "n0")
    fit = NodeResourcesFit(NodeResourcesFitArgs())
    pods = [a_pod().requesting(cpu=cpu, memory=memory).pod for cpu, memory in (("1", "1Gi"), ("3500m", "1Gi"), ("1", "5Gi"))]
    stacked, alone = fit.stack([fit.prepare(pod) for pod in pods]), fit.stack([fit.prepare(pods[0])])
    assert stacked is not None and alone is not None
    rows = Rows(case.snapshot, slice(0, 1))
    short, never = Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert fit.filter(stacked, rows).tolist() == [Code.SUCCESS, short, never]
    assert fit.filter(alone, rows).tolist() == [Code.SUCCESS]
    assert fit.filter(fit.prepare(pods[1]), rows).tolist() == [short]
    for _ in range(2):
        case.bind(a_pod(), "n0")
    assert fit.filter(stacked, rows).tolist() == [short, short, never], "no pod more"
