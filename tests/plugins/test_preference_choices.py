"""Which groups InterPodAffinity makes of rows, how long they last, and what of a bound pod's terms counts for a pod."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from rayched.framework.plugin_args import InterPodAffinityArgs
from rayched.framework.status import Code
from rayched.plugins.inter_pod_affinity import counts as inter_pod_affinity_counts
from rayched.plugins.inter_pod_affinity import groups as inter_pod_affinity_groups
from rayched.plugins.inter_pod_affinity.counts import AffinityCounts
from rayched.plugins.inter_pod_affinity.plugin import InterPodAffinity
from rayched.snapshot import snapshot as whole_snapshot
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows, WhatIfRows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.snapshot.work_budget import AttemptOverBudget
from rayched.v1.core_pb2 import Namespace, Pod
from tests.plugins.builders import PodBuilder, a_node, a_pod, pods_with
from tests.plugins.engine_case import Case

HOST, ZONE = "kubernetes.io/hostname", "zone"
WEB, DB = pods_with(app="web"), pods_with(app="db")


def web() -> PodBuilder:
    return a_pod().named(app="web")


class Bench:
    def __init__(self, pod: Pod, **domains: int) -> None:
        """`domains`: how many there are of each topology key, over so many rows as the test adds."""
        self.plugin, self.snapshot, self.templates = InterPodAffinity(InterPodAffinityArgs()), Snapshot(), TemplateTable()
        self.domains = domains
        self.prepared = self.plugin.prepare(pod)
        self.state: Any = None

    def add_nodes(self, n_nodes: int) -> Bench:
        for number in range(n_nodes):
            labels = {key: f"{key}-{number % n_domains}" for key, n_domains in self.domains.items()}
            self.snapshot.add_node(a_node(f"n{number}").labelled(**labels).node)
        return self

    def bind(self, node: str, pod: PodBuilder | None = None) -> str:
        uid = f"u{self.snapshot.n_pods}-{node}"
        self.snapshot.bind(uid, self.templates.intern((pod or web()).pod), node)
        return uid

    def count(self) -> AffinityCounts:
        state: AffinityCounts = self.plugin.count(self.prepared, self.snapshot, self.state)
        self.state = state
        return state

    def groups(self) -> RowGroups | None:
        return self.plugin.groups(self.count())

    def scores(self) -> dict[str, int]:
        """By groups; they are what row by row says."""
        groups = self.groups()
        assert groups is not None
        feasible = self.snapshot.alive.copy()
        rows = Rows(self.snapshot, feasible.nonzero()[0])
        present = sorted(set(groups.ids[rows.selection].tolist()))
        of_groups = self.plugin.score_groups(self.state, groups, present, feasible)
        raw = self.plugin.score(self.state, rows)
        assert raw is not None and of_groups is not None
        known = dict(zip(present, of_groups, strict=True))
        found = [known[group] for group in groups.ids[rows.selection].tolist()]
        assert found == self.plugin.normalize_rows(self.state, rows, raw).tolist()
        return dict(zip(map(self.snapshot.name_of, rows.index.tolist()), found, strict=True))


def preferring(*keys: str) -> Pod:
    pod = web()
    for key in keys:
        pod = pod.near(key, WEB, 3)
    return pod.pod


@pytest.mark.parametrize(
    ("n_nodes", "domains", "n_values"),
    [
        (8, {"a": 2}, 1),
        (4, {"a": 2}, 1),
        (8, {"a": 3}, 1),
        (8, {"a": 3, "b": 2}, 2),
        (8, {"a": 3, "b": 3}, None),
        (20, {"a": 5}, 1),
        (20, {"a": 6}, None),
        (8, {"a": 4, "b": 2}, 2),
        (8, {"a": 4, "b": 8, "c": 8}, 1),
        (8, {"a": 3, "b": 2, "c": 8}, 3),
        (9, {"a": 4, "b": 2}, None),
    ],
)
def test_keys_with_few_rows_a_domain_are_one_value_together_and_others_one_each(
    n_nodes: int, domains: dict[str, int], n_values: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here these are keys with more than 2 domains, of 2 rows or fewer; of the others there are 5 domains at most."""
    for name, value in (("FEW", 2), ("ROWS_A_DOMAIN_MAX", 2), ("DOMAINS_MAX", 5)):
        monkeypatch.setattr(inter_pod_affinity_groups, name, value)
    bench = Bench(preferring(*domains), **domains).add_nodes(n_nodes)
    bench.bind("n0")
    groups = bench.groups()
    assert (None if groups is None else {len(values) for values in groups.values}) == (None if n_values is None else {n_values})
    if groups is not None:
        assert bench.scores()["n0"] == 100


def test_pods_that_prefer_by_the_same_few_domains_share_their_groups() -> None:
    bench = Bench(preferring("a"), a=3).add_nodes(9)
    other = bench.plugin.count(bench.plugin.prepare(web().away("a", DB, 5).pod), bench.snapshot, None)
    bench.bind("n0")
    bench.bind("n1", a_pod().named(app="db"))
    groups = bench.groups()
    other = bench.plugin.count(bench.plugin.prepare(web().away("a", DB, 5).pod), bench.snapshot, other)
    assert groups is not None and bench.plugin.groups(other) is groups and len(groups) == 3


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Hosts are told apart by what is preferred of them."""
    monkeypatch.setattr(inter_pod_affinity_groups, "FEW", 3)
    monkeypatch.setattr(inter_pod_affinity_groups, "PAUSE", 3)
    monkeypatch.setattr(inter_pod_affinity_groups, "GROUPS_MAX", 2)
    return Bench(preferring(HOST), **{HOST: 6}).add_nodes(6)


def test_groups_stay_while_rows_move_up_to_twice_as_many_as_may_be_made(one_by_one: Bench) -> None:
    bench = one_by_one
    bench.bind("n0")
    first = bench.groups()
    assert first is not None and len(first) == 2
    for number, node in enumerate(("n1", "n1", "n2", "n2", "n2")):
        bench.bind(node)
        assert bench.groups() is first, number
        bench.scores()
    assert len(first) == 4, "0, 1, 2 and 3 pods"
    for _ in range(4):
        bench.bind("n3")
    assert bench.groups() is None, "five are too many, and more than two are not made anew"


def test_where_groups_were_too_many_nobody_looks_again_for_a_while(one_by_one: Bench) -> None:
    bench = one_by_one
    bench.bind("n0")
    bound = [bench.bind("n1"), bench.bind("n1")]
    assert bench.groups() is None, "three are not made"
    for uid in bound:
        bench.snapshot.unbind(uid)
    assert [bench.groups() is None for _ in range(5)] == [True, True, True, False, False]
    assert bench.scores() == {"n0": 100, **{f"n{number}": 0 for number in range(1, 6)}}


def test_more_rows_at_once_than_are_followed_make_groups_anew(one_by_one: Bench) -> None:
    bench = one_by_one
    bench.bind("n0")
    first = bench.groups()
    for number in (1, 2, 3):
        bench.bind(f"n{number}")
    assert bench.groups() is first
    for number in (0, 1, 2, 3):
        bench.bind(f"n{number}")
    again = bench.groups()
    assert again is not None and again is not first and len(again) == 2
    bench.scores()


def test_scores_that_are_kept_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inter_pod_affinity_groups, "SCALED_MAX", 3)
    bench = Bench(web().near("a", WEB, 1).pod, a=4).add_nodes(4)
    for _ in range(20):
        bench.bind("n1")
    bench.scores()
    kept = bench.state.groups._scaled
    assert 0 < len(kept) <= 4
    for _ in range(10):
        bench.bind("n0")
        bench.scores()
        assert len(bench.state.groups._scaled) <= 3 + 4


def test_bytes_are_those_of_sums_counters_and_groups() -> None:
    bench = Bench(web().near(ZONE, DB).away(HOST, WEB).near(ZONE, WEB, 5).pod, **{ZONE: 2, HOST: 4}).add_nodes(4)
    by_zone, by_host = 8 * (2 + 1), 8 * (4 + 1)
    assert bench.count().n_bytes == by_zone + by_host + by_zone
    groups = bench.groups()
    assert groups is None and bench.state.adds_nothing
    bench.bind("n0")
    groups = bench.groups()
    assert groups is not None
    assert bench.state.n_bytes == by_zone + by_host + by_zone + groups.n_bytes
    bench.bind("n1", a_pod().named(app="carrier").away(ZONE, WEB))
    with_target = bench.count().n_bytes
    assert bench.state._target is not None and bench.state._target.n_bytes > 0
    assert with_target == 3 * by_zone + by_host + groups.n_bytes + bench.state._target.n_bytes


@pytest.mark.parametrize(
    ("pod", "bound", "n_bound", "n_gone", "feasible"),
    [
        (web().away(HOST, DB), a_pod().named(app="db"), 1, 1, True),
        (web().away(HOST, DB), a_pod().named(app="db"), 2, 1, False),
        (web().near(HOST, DB), a_pod().named(app="db"), 1, 1, False),
        (web().near(HOST, DB), a_pod().named(app="db"), 2, 1, True),
        (web(), a_pod().named(app="db").away(HOST, WEB), 1, 1, True),
        (web(), a_pod().named(app="db").away(HOST, WEB), 2, 1, False),
        (web(), a_pod().named(app="db").away(HOST, WEB).away(HOST, WEB), 1, 1, True),
        (web().away(HOST, DB).away(HOST, pods_with(tier="x")), a_pod().named(app="db", tier="x"), 1, 1, True),
        (web().away(HOST, DB).away(HOST, pods_with(tier="x")), a_pod().named(app="db", tier="x"), 2, 1, False),
        (web().near(HOST, WEB), web(), 1, 1, True),
        (web().near(HOST, WEB), web(), 2, 1, True),
        (web(), a_pod().named(app="db").away(HOST, WEB), 1, -1, False),
        (web(), a_pod().named(app="db").away(HOST, WEB, 5).near(HOST, DB), 1, -1, True),
        (web(), a_pod().named(app="db").away(HOST, DB), 1, -1, True),
    ],
)
def test_a_node_without_some_of_its_pods_is_judged_by_those_that_stay(
    pod: PodBuilder, bound: PodBuilder, n_bound: int, n_gone: int, feasible: bool
) -> None:
    """As preemption asks: no other node has a pod that matters. Where fewer than none go, some come."""
    case = Case(a_node("a").labelled(**{HOST: "a"}), a_node("b").labelled(**{HOST: "b"}))
    for _ in range(n_bound):
        case.bind(bound, "a")
    template = case.templates.intern(bound.pod)
    rows = WhatIfRows(case.snapshot, case.snapshot.alive.nonzero()[0], (template, -n_gone))
    code = case.engine.filter_rows(case._template(pod), rows).codes[0]
    assert (int(code) == Code.SUCCESS) is feasible


def test_terms_about_namespaces_follow_their_labels_and_the_pods_own() -> None:
    """A bound pod's term that selects namespaces is about a pod whose namespace has the labels now."""
    case = Case(a_node("a").labelled(**{HOST: "a"}), a_node("b").labelled(**{HOST: "b"}))
    term = pods_with(app="web")
    term.namespace_selector.match_labels["team"] = "x"
    case.bind(a_pod().named("guards", app="guard").away(HOST, term), "a")
    pod = web()
    assert case.feasible(pod) == ["a", "b"]
    for team, found in (("x", ["b"]), ("y", ["a", "b"]), ("x", ["b"])):
        namespace = Namespace()
        namespace.metadata.name = "default"
        namespace.metadata.labels["team"] = team
        case.snapshot.set_object("Namespace", "", "default", namespace)
        assert case.feasible(pod) == found, team


def test_weights_of_bound_pods_count_each_with_its_sign() -> None:
    """Preferred affinity for, anti-affinity against; required affinity by the plugin's argument, required anti-affinity not."""
    bench = Bench(web().pod, **{HOST: 5}).add_nodes(5)
    bench.bind("n1", a_pod().named(app="db").near(HOST, WEB, 7))
    bench.bind("n2", a_pod().named(app="db").away(HOST, WEB, 7))
    bench.bind("n3", a_pod().named(app="db").near(HOST, WEB))
    bench.bind("n4", a_pod().named(app="db").away(HOST, WEB))
    rows = Rows(bench.snapshot, slice(0, 5))
    raw = bench.plugin.score(bench.count(), rows)
    assert raw is not None and raw.tolist() == [0, 7, -7, 1, 0]
    codes = bench.plugin.filter(bench.state, rows)
    assert codes is not None and codes.tolist() == [0, 0, 0, 0, Code.UNSCHEDULABLE]
    for weight, found in ((2, 2), (0, 0)):
        plugin = InterPodAffinity(InterPodAffinityArgs(hard_pod_affinity_weight=weight))
        score = plugin.score(plugin.count(plugin.prepare(web().pod), bench.snapshot, None), rows)
        assert score is not None and score.tolist() == [0, 7, -7, found, 0]


def test_preferences_of_bound_pods_that_cancel_out_over_all_domains_count_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inter_pod_affinity_counts, "WEIGHTS_MAX", 0)
    bench = Bench(web().pod, **{HOST: 3}).add_nodes(3)
    bench.bind("n0", a_pod().named(app="db").near(HOST, WEB, 7))
    uid = bench.bind("n1", a_pod().named(app="db").away(HOST, WEB, 7))
    assert bench.scores() == {"n0": 100, "n1": 0, "n2": 50}
    bench.snapshot.unbind(uid)
    assert bench.scores() == {"n0": 100, "n1": 0, "n2": 0}
    bench.snapshot.unbind("u0-n0")
    assert bench.count().adds_nothing and bench.groups() is None


def test_counting_that_was_interrupted_between_terms_goes_on_and_refuses_what_the_filter_rejects() -> None:
    """The terms that were counted before the interruption are among those that refuse."""
    pod = web().near(ZONE, DB).away(HOST, WEB).pod
    bench = Bench(pod, **{ZONE: 2, HOST: 4}).add_nodes(4)
    bench.bind("n0", a_pod().named(app="db"))
    bench.bind("n2")
    spent = count()
    bench.snapshot.work.use(lambda: float(next(spent)), lambda: None)
    steps, begun = 2, set[int]()
    while bench.state is None:
        bench.snapshot.work.begin(steps)
        try:
            bench.count()
        except AttemptOverBudget:
            steps += 1
            begun.update(map(id, bench.prepared.unfinished))
        finally:
            bench.snapshot.work.end()
    assert begun == {id(bench.state)} and not bench.prepared.unfinished, "the same counts went on"
    rows = Rows(bench.snapshot, slice(0, 4))
    codes = bench.plugin.filter(bench.state, rows)
    assert codes is not None and codes.tolist() == [0, 3, 2, 3]
    refused = [one.refused[one.topology.column[:4]].tolist() for one in bench.plugin.refusals(bench.state)]
    assert [any(of_row) for of_row in zip(*refused, strict=True)] == [False, True, True, True]


def test_sums_over_a_key_go_by_one_numbering_of_its_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster lets go of a topology where there are very many keys; one that is made anew numbers domains in another way."""
    monkeypatch.setattr(whole_snapshot, "TOPOLOGIES_MAX", 1)
    bench = Bench(web().near("rack", WEB, 5).pod)
    bench.snapshot.add_node(a_node("n0").labelled(other="b", rack="z").node)
    bench.count()
    bench.snapshot.add_node(a_node("n1").labelled(rack="b").node)
    bench.bind("n0")
    bench.count()
    bench.snapshot.topology("other")
    bench.bind("n1", a_pod().named(app="db").near("rack", WEB, 7))
    raw = bench.plugin.score(bench.count(), Rows(bench.snapshot, slice(0, 2)))
    assert raw is not None and raw.tolist() == [5, 7]


def test_preferences_of_so_many_weights_are_counted_apart_and_further_ones_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inter_pod_affinity_counts, "WEIGHTS_MAX", 2)
    bench = Bench(web().pod, **{HOST: 6}).add_nodes(6)
    for number, weight in enumerate((3, 5, 7, 9, 3, 7)):
        bench.bind(f"n{number}", a_pod().named(app="db").near(HOST, WEB, weight))
        bench.count()
    assert bench.state._target is not None and len(bench.state._target.counters) == 3, "3, 5, and all others"
    raw = bench.plugin.score(bench.state, Rows(bench.snapshot, slice(0, 6)))
    assert raw is not None and raw.tolist() == [3, 5, 7, 9, 3, 7]


def test_a_pod_that_prefers_is_scored_also_where_nobody_else_may_ask_for_it() -> None:
    """By its own terms and those of others, all of which count then."""
    silent = InterPodAffinity(InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True))
    bench = Bench(web().pod, **{HOST: 2}).add_nodes(2)
    bench.bind("n1", web().near(HOST, WEB, 7))
    for pod, adds_nothing in ((web(), True), (web().near(HOST, WEB, 5), False)):
        assert silent.count(silent.prepare(pod.pod), bench.snapshot, None).adds_nothing is adds_nothing
