"""The rules of PodTopologySpread and InterPodAffinity, as tables and as the examples of the documentation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.framework.plugin_args import InterPodAffinityArgs, NodeResourcesFitArgs, PodTopologySpreadArgs
from rayched.framework.status import Code
from rayched.v1.core_pb2 import Namespace, Service, TopologySpreadConstraint
from rayched.v1.workloads_pb2 import ReplicaSet
from tests.plugins.builders import NodeBuilder, PodBuilder, a_node, a_pod, pods_with
from tests.plugins.engine_case import Case

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NO_HOST_MATCHES = "node(s) didn't match pod affinity rules"
SKEWED = "node(s) didn't match pod topology spread constraints"
KEYLESS = "node(s) didn't match pod topology spread constraints (missing required label)"


def node(name: str, zone: str = "", **labels: str) -> NodeBuilder:
    found = a_node(name).labelled(**{HOST: name}, **labels)
    return found.labelled(**{ZONE: zone}) if zone else found


def two_zones(**args: object) -> Case:
    """The documentation's cluster: two nodes in each of two zones."""
    return Case(node("node1", "A"), node("node2", "A"), node("node3", "B"), node("node4", "B"), **args)


def foo() -> PodBuilder:
    return a_pod().named(foo="bar")


# ------------------------------------------------------------------------------------------------------------- affinity


@pytest.mark.parametrize(("terms", "feasible"), [((), ["node1", "node2", "node3", "node4"]), (("db",), [])])
def test_the_first_of_a_group_needs_no_other_only_if_it_matches_each_of_its_terms(
    terms: tuple[str, ...], feasible: list[str]
) -> None:
    pod = a_pod().named(app="web").near(HOST, pods_with(app="web"))
    for app in terms:
        pod = pod.near(HOST, pods_with(app=app))
    assert two_zones().feasible(pod) == feasible


def three_in_a_row() -> Case:
    case = Case(node("a1", "A"), node("a2", "A"), node("b1", "B"), a_node("bare"))
    return case.bind(a_pod().named(app="db", tier="back"), "a1")


@pytest.mark.row("K2.7")
@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ("db", "web"), True),
        ("In", ("web",), False),
        ("NotIn", ("web",), True),
        ("NotIn", ("db",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
    ],
)
def test_operators_of_terms(operator: str, values: tuple[str, ...], matches: bool) -> None:
    term = pods_with()
    term.label_selector.match_expressions.add(key="app", operator=operator, values=values)
    case = three_in_a_row()
    assert case.feasible(a_pod().named(app="db").near(ZONE, term)) == (["a1", "a2"] if matches else [])
    assert case.feasible(a_pod().away(ZONE, term)) == (["b1", "bare"] if matches else ["a1", "a2", "b1", "bare"])


@pytest.mark.row("K2.7")
def test_affinity_and_anti_affinity_by_host_and_by_zone() -> None:
    case, db = three_in_a_row(), pods_with(app="db")
    assert case.feasible(a_pod().near(HOST, db)) == ["a1"]
    assert case.feasible(a_pod().away(HOST, db)) == ["a2", "b1", "bare"]
    together = a_pod().near(ZONE, db).away(HOST, db)
    assert case.feasible(together) == ["a2"]
    assert case.code(a_pod().near(ZONE, db), "b1") is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert case.code(a_pod().away(ZONE, db), "a1") is Code.UNSCHEDULABLE
    assert case.message(a_pod().near(HOST, db).near(ZONE, pods_with(app="web"))) == (
        f"0/4 nodes are available: 4 {NO_HOST_MATCHES}."
    ), "one pod must match all terms"


@pytest.mark.row("K2.7")
def test_a_bound_pods_anti_affinity_keeps_others_away() -> None:
    case = Case(node("a1", "A"), node("b1", "B")).bind(a_pod().named(app="db").away(ZONE, pods_with(app="web")), "a1")
    assert case.feasible(a_pod().named(app="web")) == ["b1"]
    assert case.feasible(a_pod().named(app="other")) == ["a1", "b1"]
    case.bind(a_pod().named(app="db").away(ZONE, pods_with(app="web")), "b1")
    assert case.message(a_pod().named(app="web")) == (
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    )


@pytest.mark.row("K2.7")
def test_preferences_of_both_sides_add_up_and_are_stretched() -> None:
    case = three_in_a_row()
    pod = a_pod().named(app="web").near(ZONE, pods_with(app="db"), 10).away(HOST, pods_with(tier="back"), 4)
    assert case.scores(pod, "InterPodAffinity") == {"a1": (6, 120), "a2": (10, 200), "b1": (0, 0), "bare": (0, 0)}
    case.bind(a_pod().named(app="shy").away(ZONE, pods_with(app="web"), 3).near(HOST, pods_with(app="web")), "b1")
    raw = {name: raw for name, (raw, _) in case.scores(pod, "InterPodAffinity").items()}
    assert raw == {"a1": 6, "a2": 10, "b1": -2, "bare": 0}, "required affinity of a bound pod counts 1"


def test_arguments_weigh_and_silence_what_bound_pods_ask_for() -> None:
    follower = a_pod().named(app="f").near(HOST, pods_with(app="web"))
    for weight, expected in ((50, 50), (0, None)):
        case = Case(node("a"), node("b"), InterPodAffinity=InterPodAffinityArgs(hard_pod_affinity_weight=weight))
        case.bind(follower, "a")
        rows = case.engine.explain(case._template(a_pod().named(app="web"))).rows
        raw = [column.raw for column in rows.scores if column.plugin == "InterPodAffinity"]
        assert (raw[0].tolist()[0] if raw and raw[0] is not None else None) == expected
    silent = Case(node("a"), node("b"), InterPodAffinity=InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True))
    silent.bind(follower, "a")
    assert "InterPodAffinity" not in [
        column.plugin for column in silent.engine.explain(silent._template(a_pod().named(app="web"))).rows.scores
    ]


def namespace(name: str, **labels: str) -> Namespace:
    found = Namespace()
    found.metadata.name = name
    found.metadata.labels.update(labels)
    return found


@pytest.mark.row("K2.9")
@pytest.mark.parametrize(
    ("namespaces", "selector", "finds"),
    [
        ((), None, ["own"]),
        (("a",), None, ["a"]),
        ((), {}, ["own", "a", "b", "absent"]),
        ((), {"team": "x"}, ["a"]),
        (("b",), {"team": "x"}, ["a", "b"]),
        (("absent",), {"team": "y"}, ["b", "absent"]),
    ],
)
def test_namespaces_of_a_term(namespaces: tuple[str, ...], selector: dict[str, str] | None, finds: list[str]) -> None:
    case = Case(*(node(name) for name in ("own", "a", "b", "absent")))
    for found in (namespace("own"), namespace("a", team="x"), namespace("b", team="y")):
        case.snapshot.set_object("Namespace", "", found.metadata.name, found)
    for name in ("own", "a", "b", "absent"):
        case.bind(a_pod().named(name, app="db"), name)
    term = pods_with(*namespaces, app="db")
    if selector is not None:
        term.namespace_selector.match_labels.update(selector)
        term.namespace_selector.SetInParent()
    assert case.feasible(a_pod().named("own").near(HOST, term)) == finds
    case.snapshot.set_object("Namespace", "", "a", None)
    if selector == {"team": "x"}:
        assert "a" not in case.feasible(a_pod().named("own").near(HOST, term)), "it is there no more"


def test_a_selector_of_namespaces_without_labels_selects_all_of_them_unless_that_is_fixed() -> None:
    term = pods_with(app="db")
    term.namespace_selector.match_expressions.add(key="team", operator="DoesNotExist")
    for fixed, expected in ((False, ["plain", "labelled"]), (True, ["plain"])):
        case = Case(node("plain"), node("labelled"), InterPodAffinity=InterPodAffinityArgs(fix_upstream_bugs=fixed))
        for found in (namespace("plain"), namespace("labelled", team="x")):
            case.snapshot.set_object("Namespace", "", found.metadata.name, found)
            case.bind(a_pod().named(found.metadata.name, app="db"), found.metadata.name)
        assert case.feasible(a_pod().near(HOST, term)) == expected


def test_pod_level_requests_count_in_scores_once_that_is_fixed() -> None:
    pod = a_pod()
    pod.pod.spec.resources.requests["cpu"].string = "4"
    pod.pod.spec.resources.requests["memory"].string = "8Gi"
    for fixed, raw in ((False, 98), (True, 50)):
        case = Case(a_node("a"), a_node("b"), NodeResourcesFit=NodeResourcesFitArgs(fix_upstream_bugs=fixed))
        assert case.scores(pod, "NodeResourcesFit")["a"][0] == raw


@pytest.mark.row("K2.11")
def test_the_first_pod_of_a_group_may_go_anywhere_its_keys_are() -> None:
    case = Case(node("a1", "A"), node("b1", "B"), a_node("bare"))
    group = a_pod().named(app="group").near(ZONE, pods_with(app="group"))
    assert case.feasible(group) == ["a1", "b1"]
    assert case.feasible(a_pod().named(app="other").near(ZONE, pods_with(app="group"))) == [], "it is not of the group"
    assert case.feasible(a_pod().named("else", app="group").near(ZONE, pods_with("default", app="group"))) == []
    case.bind(group, "b1")
    assert case.feasible(group) == ["b1"], "the second one joins the first"


@pytest.mark.row("K2.10")
def test_the_documented_web_servers_and_caches_end_up_in_pairs_one_on_each_node() -> None:
    case = Case(*(node(f"node-{number}") for number in (1, 2, 3)))
    cache = a_pod().named(app="store").away(HOST, pods_with(app="store"))
    web = a_pod().named(app="web-store").away(HOST, pods_with(app="web-store")).near(HOST, pods_with(app="store"))
    for pod in (cache, cache, cache, web, web, web):
        case.bind(pod, case.best(pod)[0])
    pods = [sorted(t.labels["app"] for t in case.snapshot.pods_on(f"node-{n}").values()) for n in (1, 2, 3)]
    assert pods == [["store", "web-store"]] * 3
    assert case.feasible(cache) == case.feasible(web) == []


# ------------------------------------------------------------------------------------------------------------ spreading


def with_pods(case: Case, *nodes: str) -> Case:
    for name in nodes:
        case.bind(foo(), name)
    return case


@pytest.mark.row("K4.7", "K4.1")
def test_documented_example_one_constraint() -> None:
    case = with_pods(two_zones(), "node1", "node2", "node3")
    assert case.feasible(foo().spreading(ZONE)) == ["node3", "node4"]
    assert case.feasible(foo().spreading(ZONE, max_skew=2)) == ["node1", "node2", "node3", "node4"]


@pytest.mark.row("K4.7")
def test_documented_example_two_constraints() -> None:
    case = with_pods(two_zones(), "node1", "node2", "node3")
    assert case.feasible(foo().spreading(ZONE).spreading(HOST)) == ["node4"]


@pytest.mark.row("K4.7", "K4.4")
def test_documented_example_of_constraints_that_contradict_each_other() -> None:
    """Two zones, three nodes: the emptier zone's only node is the fullest."""
    case = with_pods(
        Case(node("node1", "A"), node("node2", "A"), node("node3", "B")), "node1", "node1", "node2", "node3", "node3"
    )
    pod = foo().spreading(ZONE).spreading(HOST)
    assert case.message(pod) == f"0/3 nodes are available: 3 {SKEWED}."
    assert case.feasible(foo().spreading(ZONE).spreading(HOST, soft=True)) == ["node3"]
    assert len(case.feasible(foo().spreading(ZONE, soft=True).spreading(HOST, soft=True))) == 3


@pytest.mark.row("K4.7", "K4.6", "K4.11")
def test_documented_example_with_a_zone_that_node_affinity_excludes() -> None:
    case = Case(node("node1", "A"), node("node2", "A"), node("node3", "B"), node("node4", "B"), node("node5", "C", bad="yes"))
    with_pods(case, "node1", "node2", "node3")
    pod = foo().spreading(ZONE)
    term = pod.pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms.add()
    term.match_expressions.add(key="bad", operator="DoesNotExist")
    assert case.feasible(pod) == ["node3", "node4"]
    pod.pod.spec.topology_spread_constraints[0].node_affinity_policy = "Ignore"
    assert case.feasible(pod) == [], "the empty zone that the pod may not enter pins the minimum at 0"


@pytest.mark.row("K4.6")
def test_tainted_nodes_count_unless_taints_are_honoured() -> None:
    case = with_pods(Case(node("a", "A"), node("b", "B"), node("c", "C").with_taint("gpu")), "a", "b")
    pod = foo().spreading(ZONE)
    assert case.feasible(pod) == []
    pod.pod.spec.topology_spread_constraints[0].node_taints_policy = "Honor"
    assert case.feasible(pod) == ["a", "b"]


@pytest.mark.row("K4.2")
@pytest.mark.parametrize(("min_domains", "feasible"), [(None, ["a", "b"]), (2, ["a", "b"]), (3, [])])
def test_with_fewer_domains_than_asked_for_the_emptiest_counts_as_none(min_domains: int | None, feasible: list[str]) -> None:
    case = with_pods(Case(node("a", "A"), node("b", "B")), "a", "b")
    pod = foo().spreading(ZONE)
    if min_domains is not None:
        pod.pod.spec.topology_spread_constraints[0].min_domains = min_domains
    assert case.feasible(pod) == feasible


@pytest.mark.row("K4.3", "K4.8")
def test_nodes_without_the_key_and_pods_of_other_namespaces_do_not_count() -> None:
    case = with_pods(Case(node("a", "A"), node("b", "B"), node("keyless")), "a", "keyless", "keyless")
    assert case.feasible(foo().spreading(ZONE)) == ["b"]
    assert case.code(foo().spreading(ZONE), "keyless") is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert case.code(foo().spreading(ZONE), "a") is Code.UNSCHEDULABLE
    assert KEYLESS in case.message(a_pod().spreading("nowhere"))
    assert case.feasible(a_pod().named("other", foo="bar").spreading(ZONE)) == ["a", "b"]
    stranger = a_pod().named(app="x").spreading(ZONE, selector={"foo": "bar"})
    assert case.feasible(stranger) == ["a", "b"], "it does not add to the skew itself"


@pytest.mark.row("K4.5")
def test_match_label_keys_tell_revisions_apart_and_missing_ones_are_left_out() -> None:
    case = Case(node("a", "A"), node("b", "B"))
    case.bind(a_pod().named(app="x", version="1"), "a")
    for version, expected in (("1", ["b"]), ("2", ["a", "b"])):
        pod = a_pod().named(app="x", version=version).spreading(ZONE, selector={"app": "x"})
        pod.pod.spec.topology_spread_constraints[0].match_label_keys.extend(("version", "absent"))
        assert case.feasible(pod) == expected


@pytest.mark.row("K4.1")
def test_pods_that_are_being_deleted_do_not_count_and_an_empty_selector_counts_nobody_but_the_pod() -> None:
    case = Case(node("a", "A"), node("b", "B"))
    case.snapshot.bind("old", case.templates.intern(foo().pod), "a", terminating=True)
    assert case.feasible(foo().spreading(ZONE)) == ["a", "b"]
    with_pods(case, "a", "a")
    assert case.feasible(foo().spreading(ZONE, selector={})) == ["a", "b"]
    assert case.feasible(foo().spreading(ZONE)) == ["b"]


@pytest.mark.row("K4.4")
def test_soft_constraints_prefer_the_emptier_domain_and_leave_nodes_without_the_key_last() -> None:
    case = with_pods(Case(node("a", "A"), node("b", "B"), node("keyless")), "a", "a", "b")
    scores = case.scores(foo().spreading(ZONE, soft=True), "PodTopologySpread")
    # Two domains: pods * ln 4, rounded; 100 * (highest + lowest - own) / highest.
    assert scores == {"a": (3, 66), "b": (1, 200), "keyless": (0, 0)}


def service(**selector: str) -> Service:
    found = Service()
    found.spec.selector.update(selector)
    return found


@pytest.mark.row("K4.9", "K4.10")
def test_built_in_defaults_spread_the_pods_of_a_service_softly() -> None:
    case = with_pods(Case(node("a1", "A"), node("b1", "B"), node("zoneless")), "a1", "a1")
    skipped = [column.plugin for column in case.engine.explain(case._template(foo())).rows.scores]
    assert "PodTopologySpread" not in skipped, "nobody says which pods belong together"
    case.snapshot.set_object("Service", "default", "s", service(foo="bar"))
    scores = {name: raw for name, (raw, _) in case.scores(foo(), "PodTopologySpread").items()}
    # 3 hosts, and the zones A, B and none: pods * ln 5 + 2 for the host, pods * ln 5 + 4 for the zone.
    assert scores == {"a1": 12, "b1": 6, "zoneless": 2}
    off = with_pods(Case(node("a"), node("b"), PodTopologySpread=PodTopologySpreadArgs((), "List")), "a")
    off.snapshot.set_object("Service", "default", "s", service(foo="bar"))
    assert "PodTopologySpread" not in [column.plugin for column in off.engine.explain(off._template(foo())).rows.scores]


def test_with_the_built_in_defaults_a_node_without_a_zone_is_in_one_zone_with_those_whose_zone_is_empty() -> None:
    empty = node("empty")
    empty.node.metadata.labels[ZONE] = ""
    case = with_pods(Case(empty, node("zoneless"), node("x1", "x")), "zoneless", "zoneless")
    case.snapshot.set_object("Service", "default", "s", service(foo="bar"))
    scores = {name: raw for name, (raw, _) in case.scores(foo(), "PodTopologySpread").items()}
    # 3 hosts and 2 zones: pods * ln 5 + 2 for the host, pods * ln 4 + 4 for the zone; that of zoneless is not scored.
    assert scores == {"empty": 9, "zoneless": 5, "x1": 6}


def _owned(kind: str) -> Iterator[PodBuilder]:
    for api_version in ("apps/v1", "batch/v1"):
        pod = foo()
        pod.pod.metadata.owner_references.add(api_version=api_version, kind=kind, name="own", controller=True)
        yield pod


@pytest.mark.row("K4.9")
def test_listed_defaults_filter_for_pods_whose_owner_says_what_belongs_together() -> None:
    hard = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule")
    case = with_pods(two_zones(PodTopologySpread=PodTopologySpreadArgs((hard,), "List")), "node1")
    owned, foreign = _owned("ReplicaSet")
    assert len(case.feasible(owned)) == 4, "its owner is not known (yet)"
    replica_set = ReplicaSet()
    replica_set.spec.selector.match_labels["foo"] = "bar"
    case.snapshot.set_object("ReplicaSet", "default", "own", replica_set)
    assert case.feasible(owned) == ["node3", "node4"]
    assert len(case.feasible(foreign)) == 4
    assert len(case.feasible(foo())) == 4
    assert case.feasible(owned.spreading(ZONE, max_skew=9)) == ["node1", "node2", "node3", "node4"], "its own constraints count"


def test_a_nominated_pod_counts_where_it_is_nominated_to_and_must_not_be_needed() -> None:
    case = Case(node("a", "A"), node("b", "B"), node("c", "C"))
    pod, other = foo().spreading(ZONE), foo()
    template, nominated = case._template(pod), case.templates.intern(other.pod)
    everywhere = case.engine.evaluate(template, nominated=[(nominated, 0)])
    assert everywhere.feasible.tolist() == [False, True, True], "it would be the second pod there"
    assert case.engine.diagnose(template, [(nominated, 0)]).reasons == {SKEWED: 1}
    with_pods(case, "b", "c")
    crowded = case.engine.evaluate(template, nominated=[(nominated, 0)])
    assert crowded.feasible.tolist() == [True, False, False], "with it a is as full as the others"
    follower = case._template(a_pod().near(HOST, pods_with(app="gone")))
    hoped_for = case.templates.intern(a_pod().named(app="gone").pod)
    assert not case.engine.evaluate(follower, nominated=[(hoped_for, 0)]).is_feasible, "it may never come"
    assert not case.engine.fits(follower, 0, [(hoped_for, 0)])


@pytest.mark.row("K4.3")
def test_a_node_that_comes_without_the_label_is_in_no_group_that_was_there_before() -> None:
    case = Case(node("a1", "A"), node("b1", "B"), node("b2", "B"))
    case.bind(a_pod().named(app="web"), "b1")
    pod = a_pod().named(app="web").spreading(ZONE, soft=True, selector={"app": "web"})
    template = case._template(pod)
    assert case.best(pod) == ["a1"]
    case.snapshot.add_node(node("bare").node)
    rows = case.engine.explain(template).rows
    assert case.engine.evaluate(template).total[rows.index].tolist() == rows.total.tolist()
    assert case.scores(pod, "PodTopologySpread")["bare"][1] == 0
    assert case.best(pod) == ["a1"]
