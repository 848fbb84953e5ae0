"""Hints of the two plugins that look beyond one node, case by case, and what they say that a change has to have to help."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rayched.framework.cluster_event import ASSIGNED_POD_DELETE, NODE_ADD, Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import Hint, Look, PreparedHint, Registration
from rayched.plugins.inter_pod_affinity import hints as inter_pod_affinity_hints
from rayched.plugins.pod_topology_spread import hints as pod_topology_spread_hints
from rayched.v1.core_pb2 import Node, Pod, PodAffinityTerm, Service, TopologySpreadConstraint
from tests.plugins.builders import PodBuilder, a_node, a_pod, pods_with
from tests.plugins.test_hints import NODE_GONE, NODE_LABELS, NODE_TAINTS, answers, bound, labelled, on, spread
from tests.queue.test_hint_index import a_change, kind_of
from tests.queue.test_hint_index import a_pod as a_random_pod

ADDED = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
RELABELLED = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
OWN_LABELS = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
OWN_TOLERATIONS = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
QUEUE, SKIP = Hint.QUEUE, Hint.SKIP


def honoring(constraint: TopologySpreadConstraint) -> TopologySpreadConstraint:
    constraint.node_taints_policy = "Honor"
    return constraint


def a_spreading_pod(*constraints: TopologySpreadConstraint, uid: str = "own", app: str = "web") -> Pod:
    pod = labelled(a_pod().pod, app=app)
    pod.metadata.uid = uid
    pod.spec.topology_spread_constraints.extend(constraints)
    return pod


def tolerant(pod: Pod) -> Pod:
    found = Pod()
    found.CopyFrom(pod)
    found.spec.tolerations.add(key="gpu", operator="Exists")
    return found


def unselecting() -> TopologySpreadConstraint:
    constraint = spread()
    constraint.ClearField("label_selector")
    return constraint


def over(app: str) -> TopologySpreadConstraint:
    constraint = spread()
    constraint.label_selector.match_labels["app"] = app
    return constraint


ELSEWHERE = "other"


@pytest.mark.parametrize(
    ("constraints", "old", "new", "hint"),
    [
        ((spread(),), bound("web"), bound("db"), QUEUE),
        ((spread(),), bound("db"), bound("web"), QUEUE),
        ((spread(),), bound("web"), labelled(bound("web"), other="new"), SKIP),
        ((spread(),), bound("db"), bound("cache"), SKIP),
        ((spread(),), bound("db", ELSEWHERE), bound("web", ELSEWHERE), SKIP),
        ((over("cache"), spread()), bound("db"), bound("web"), QUEUE),
        ((over("cache"), over("tool")), bound("db"), bound("web"), SKIP),
        ((unselecting(),), bound("db"), bound("web"), SKIP),
        ((unselecting(), spread()), bound("db"), bound("web"), QUEUE),
        ((spread("ScheduleAnyway"), over("cache")), bound("db"), bound("web"), SKIP),
        ((spread(),), bound("web"), tolerant(bound("web")), SKIP),
        ((honoring(spread()),), bound("web"), tolerant(bound("web")), SKIP),
    ],
)
def test_new_labels_of_a_bound_pod_help_where_a_hard_constraint_counts_it_otherwise(
    constraints: tuple[TopologySpreadConstraint, ...], old: Pod, new: Pod, hint: Hint
) -> None:
    registered = pod_topology_spread_hints.registrations(())
    assert answers(registered, RELABELLED, a_spreading_pod(*constraints), old, new) == {hint}


@pytest.mark.parametrize(
    ("constraints", "assigned", "hint"),
    [
        ((unselecting(),), bound("web"), SKIP),
        ((over("cache"), spread()), bound("web"), QUEUE),
        ((over("cache"), unselecting()), bound("web"), SKIP),
        ((spread(),), labelled(a_pod().pod, app="web"), SKIP),
    ],
)
def test_a_pod_that_comes_or_goes_helps_where_any_hard_constraint_counts_it(
    constraints: tuple[TopologySpreadConstraint, ...], assigned: Pod, hint: Hint
) -> None:
    """One without a node counts nowhere."""
    registered = pod_topology_spread_hints.registrations(())
    assert answers(registered, ADDED, a_spreading_pod(*constraints), None, assigned) == {hint}
    assert answers(registered, ASSIGNED_POD_DELETE, a_spreading_pod(*constraints), assigned, None) == {hint}


@pytest.mark.parametrize(
    ("constraints", "defaults", "hint"),
    [
        ((spread(),), (), SKIP),
        ((honoring(spread()),), (), QUEUE),
        ((spread(), honoring(over("cache"))), (), QUEUE),
        ((spread(), honoring(spread("ScheduleAnyway"))), (), SKIP),
        ((spread(),), (honoring(spread()),), SKIP),
        ((), (spread(),), SKIP),
        ((), (spread(), honoring(over("cache"))), QUEUE),
        ((), (spread(), honoring(spread("ScheduleAnyway"))), SKIP),
    ],
)
def test_tolerations_of_the_pod_itself_help_where_a_hard_constraint_leaves_out_tainted_nodes(
    constraints: tuple[TopologySpreadConstraint, ...], defaults: tuple[TopologySpreadConstraint, ...], hint: Hint
) -> None:
    registered, pod = pod_topology_spread_hints.registrations(defaults), a_spreading_pod(*constraints)
    assert answers(registered, OWN_TOLERATIONS, pod, pod, tolerant(pod)) == {hint}
    assert answers(registered, OWN_TOLERATIONS, pod, pod, pod) == {SKIP}, "nothing changed"
    stranger = a_spreading_pod(*constraints, uid="another")
    assert answers(registered, OWN_TOLERATIONS, pod, stranger, tolerant(stranger)) == {SKIP}
    namesake = on(pod, "n")
    assert answers(registered, OWN_TOLERATIONS, pod, namesake, tolerant(namesake)) == {SKIP}, "that one has a node"


def test_labels_of_the_pod_itself_help_where_it_would_count_itself_otherwise() -> None:
    registered = pod_topology_spread_hints.registrations(())
    pod = a_spreading_pod(spread())
    other = a_spreading_pod(spread(), app="db")
    assert answers(registered, OWN_LABELS, pod, pod, other) == {QUEUE}
    assert answers(registered, OWN_LABELS, pod, pod, labelled(a_spreading_pod(spread()), tier="x")) == {SKIP}
    assert answers(registered, OWN_LABELS, a_spreading_pod(spread(), uid="another"), pod, other) == {SKIP}


def test_which_pods_count_for_hard_defaults_is_not_known_so_any_new_label_in_the_namespace_helps() -> None:
    registered, plain = pod_topology_spread_hints.registrations((spread(),)), a_pod().pod
    assert answers(registered, RELABELLED, plain, bound("db"), labelled(bound("db"), any="label")) == {QUEUE}
    assert answers(registered, RELABELLED, plain, bound("db"), bound("db")) == {SKIP}
    assert answers(registered, ADDED, plain, None, bound("db", ELSEWHERE)) == {SKIP}
    assert answers(registered, ASSIGNED_POD_DELETE, plain, bound("db"), None) == {QUEUE}
    own = a_spreading_pod(over("cache"))
    assert answers(registered, ADDED, own, None, bound("web")) == {SKIP}, "its own constraints count, the defaults do not"
    assert answers(pod_topology_spread_hints.registrations(()), ADDED, plain, None, bound("db")) == {SKIP}


IN_A, IN_B, BARE = (a_node("n").labelled(**labels).node for labels in ({"zone": "a"}, {"zone": "b"}, {}))
RACK_IN_A, RACK_IN_B = (a_node("n").labelled(zone=zone, rack="r").node for zone in "ab")
TAINTED_RACK = a_node("n").labelled(zone="a", rack="r").with_taint("gpu").node


def by_zone_and_rack() -> tuple[TopologySpreadConstraint, ...]:
    by_rack = spread()
    by_rack.topology_key = "rack"
    return spread(), by_rack


@pytest.mark.parametrize("are_default", [False, True])
@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        (NODE_ADD, None, IN_A, SKIP),
        (NODE_ADD, None, RACK_IN_A, QUEUE),
        (NODE_GONE, IN_A, None, SKIP),
        (NODE_GONE, RACK_IN_A, None, QUEUE),
        (NODE_LABELS, IN_A, IN_B, SKIP),
        (NODE_LABELS, IN_A, RACK_IN_A, QUEUE),
        (NODE_LABELS, RACK_IN_A, IN_A, QUEUE),
        (NODE_LABELS, RACK_IN_A, RACK_IN_B, QUEUE),
        (NODE_TAINTS, RACK_IN_A, TAINTED_RACK, QUEUE),
        (NODE_TAINTS, IN_A, a_node("n").labelled(zone="a").with_taint("gpu").node, SKIP),
        (NODE_LABELS, RACK_IN_A, RACK_IN_A, SKIP),
    ],
)
def test_a_node_has_to_have_all_keys_of_the_hard_constraints(
    event: ClusterEvent, old: Node | None, new: Node | None, hint: Hint, are_default: bool
) -> None:
    constraints = by_zone_and_rack()
    registered = pod_topology_spread_hints.registrations(constraints if are_default else (spread(),))
    pod = a_pod().pod if are_default else a_spreading_pod(*constraints)
    assert answers(registered, event, pod, old, new) == {hint}


def test_a_service_that_comes_changes_or_goes_helps_pods_of_its_namespace() -> None:
    registered = pod_topology_spread_hints.registrations((spread(),))
    there, elsewhere = (Service(metadata={"namespace": name, "name": "s"}) for name in ("default", ELSEWHERE))
    for old, new in ((None, there), (there, there), (there, None)):
        assert answers(registered, ClusterEvent(Resource.SERVICE, Action.UPDATE), a_pod().pod, old, new) == {QUEUE}
    assert answers(registered, ClusterEvent(Resource.SERVICE, Action.ADD), a_pod().pod, None, elsewhere) == {SKIP}


# ------------------------------------------------------------------------------------------------------------- affinity


def wanting(*terms: PodAffinityTerm, away: bool = False, key: str = "zone") -> Pod:
    pod: PodBuilder = a_pod().named()
    for term in terms:
        pod = pod.away(key, term) if away else pod.near(key, term)
    return pod.pod


WEB, DB = pods_with(app="web"), pods_with(app="db")
BOTH = labelled(bound("web"), tier="x")
TIER_X = pods_with(tier="x")


def anywhere() -> PodAffinityTerm:
    """By a selector that asks for a label that namespaces must not have."""
    term = pods_with(app="web")
    term.namespace_selector.match_expressions.add(key="team", operator="DoesNotExist")
    return term


@pytest.mark.parametrize(
    ("pod", "old", "new", "hint"),
    [
        (wanting(WEB, TIER_X), None, bound("web"), SKIP),
        (wanting(WEB, TIER_X), None, BOTH, QUEUE),
        (wanting(WEB, TIER_X), bound("web"), BOTH, QUEUE),
        (wanting(WEB, TIER_X), BOTH, bound("web"), SKIP),
        (wanting(WEB, TIER_X, away=True), BOTH, None, QUEUE),
        (wanting(WEB, TIER_X, away=True), bound("web"), None, SKIP),
        (wanting(WEB, TIER_X, away=True), BOTH, bound("web"), QUEUE),
        (wanting(WEB), None, labelled(a_pod().pod, app="web"), SKIP),
        (wanting(WEB, away=True), labelled(a_pod().pod, app="web"), None, SKIP),
        (wanting(WEB), labelled(a_pod().pod, app="db"), bound("web"), SKIP),
        (wanting(PodAffinityTerm()), None, bound("web"), SKIP),
        (wanting(anywhere()), None, bound("web", ELSEWHERE), QUEUE),
        (wanting(pods_with("third", app="web")), None, bound("web"), SKIP),
        (wanting(pods_with("third", "default", app="web")), None, bound("web"), QUEUE),
    ],
)
def test_one_pod_has_to_match_all_terms_and_has_to_have_a_node(pod: Pod, old: Pod | None, new: Pod | None, hint: Hint) -> None:
    event = RELABELLED if old is not None and new is not None else ASSIGNED_POD_DELETE if new is None else ADDED
    assert answers(inter_pod_affinity_hints.registrations(), event, pod, old, new) == {hint}


def near_and_away(near: str, away: str) -> Pod:
    return a_pod().near(near, WEB).away(away, DB).pod


@pytest.mark.parametrize(
    ("pod", "old", "new", "hint"),
    [
        (near_and_away("zone", "rack"), None, BARE, QUEUE),
        (near_and_away("zone", "rack"), BARE, IN_A, QUEUE),
        (near_and_away("zone", "rack"), IN_A, IN_A, SKIP),
        (near_and_away("zone", "rack"), RACK_IN_A, IN_A, QUEUE),
        (near_and_away("zone", "rack"), IN_A, RACK_IN_A, SKIP),
        (near_and_away("rack", "zone"), IN_A, IN_B, QUEUE),
        (near_and_away("rack", "zone"), BARE, IN_A, SKIP),
        (wanting(WEB, key="rack"), None, IN_A, SKIP),
        (wanting(WEB, key="rack"), IN_A, IN_B, SKIP),
        (wanting(WEB, key="rack"), IN_A, RACK_IN_A, QUEUE),
        (a_pod().pod, None, IN_A, SKIP),
    ],
)
def test_a_node_helps_by_the_keys_of_the_terms(pod: Pod, old: Node | None, new: Node, hint: Hint) -> None:
    event = NODE_ADD if old is None else NODE_LABELS
    assert answers(inter_pod_affinity_hints.registrations(), event, pod, old, new) == {hint}


# ---------------------------------------------------------------------------------- what a change has to have, in order to help


def prepared(registrations: Any) -> list[tuple[str, PreparedHint]]:
    found: list[Registration] = list(registrations)
    return [(one.event.resource.value, one.hint) for one in found if isinstance(one.hint, PreparedHint)]


HINTS = {
    "spread": prepared(pod_topology_spread_hints.registrations(())),
    "spread by default": prepared(pod_topology_spread_hints.registrations((honoring(spread()), over("db")))),
    "affinity": prepared(inter_pod_affinity_hints.registrations()),
}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("whose", HINTS)
def test_a_change_that_helps_goes_one_of_the_ways_and_the_labels_that_are_named_tell_the_answer(whose: str, seed: int) -> None:
    random, helped = Random(f"{whose} {seed}"), 0
    pods = [a_random_pod(random, number) for number in range(30)]
    for resource, hint in HINTS[whose]:
        looks: list[Look] = [hint.look(*a_change(random, kind_of(resource), number)) for number in range(1_000, 1_060)]
        for question in map(hint.question, pods):
            said: dict[Any, Hint] = {}
            for look in looks:
                answer, there = question(look), set(look.handles())
                assert said.setdefault(look.seen_by(question.keys), answer) is answer
                if answer is QUEUE:
                    helped += 1
                    assert any(all(there & handles for handles in way) for way in question.ways), f"{question} {look}"
    assert helped
