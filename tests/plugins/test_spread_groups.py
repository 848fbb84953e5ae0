"""Groups of rows that PodTopologySpread scores together: which there are, how long they last, and what they weigh."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.framework.plugin_args import PodTopologySpreadArgs
from rayched.plugins.pod_topology_spread import groups as pod_topology_spread_groups
from rayched.plugins.pod_topology_spread.plugin import PodTopologySpread
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Pod, Service
from tests.plugins.builders import NodeBuilder, PodBuilder, a_node, a_pod, a_term

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def web() -> PodBuilder:
    return a_pod().named(app="web")


def a_host(name: str, **labels: str) -> NodeBuilder:
    return a_node(name).labelled(**{HOST: name}, **labels)


class Bench:
    """A pod, and nodes that the test changes."""

    def __init__(self, pod: Pod, *nodes: NodeBuilder) -> None:
        self.plugin, self.snapshot, self.templates = PodTopologySpread(PodTopologySpreadArgs()), Snapshot(), TemplateTable()
        for node in nodes:
            self.snapshot.add_node(node.node)
        self.prepared = self.plugin.prepare(pod)
        self.state: Any = None

    def bind(self, node: str, pod: PodBuilder | None = None) -> None:
        self.snapshot.bind(f"u{self.snapshot.n_pods}", self.templates.intern((pod or web()).pod), node)

    def groups(self) -> RowGroups | None:
        self.state = self.plugin.count(self.prepared, self.snapshot, self.state)
        return self.plugin.groups(self.state)

    def scores(self, *infeasible: str) -> dict[str, int]:
        """By groups; they are what row by row says."""
        groups = self.groups()
        assert groups is not None
        feasible = self.snapshot.alive.copy()
        feasible[[self.snapshot.rows_by_name[name] for name in infeasible]] = False
        rows = Rows(self.snapshot, feasible.nonzero()[0])
        present = sorted(set(groups.ids[rows.selection].tolist()))
        of_groups = self.plugin.score_groups(self.state, groups, present, feasible)
        assert of_groups is not None
        known = dict(zip(present, of_groups, strict=True))
        found = [known[group] for group in groups.ids[rows.selection].tolist()]
        raw = self.plugin.score(self.state, rows)
        assert raw is not None and found == self.plugin.normalize_rows(self.state, rows, raw).tolist()
        return dict(zip(map(self.snapshot.name_of, rows.index.tolist()), found, strict=True))


def by_host() -> Pod:
    return web().spreading(HOST, soft=True).pod


def test_groups_stay_the_same_while_pods_come_and_are_others_once_a_node_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_topology_spread_groups, "CHANGES_MAX", 2)
    bench = Bench(by_host(), *(a_host(f"n{number}") for number in range(4)))
    first = bench.groups()
    assert first is not None and bench.groups() is first
    for number in range(10):
        bench.bind(f"n{number % 3}")
        bench.scores()
        assert bench.groups() is first, "one change at a time is followed"
    assert sorted(set(first.ids[:4].tolist())) == sorted(first.occupied) and len(first.occupied) == 3
    for _ in range(3):
        bench.bind("n3")
    again = bench.groups()
    assert again is not None and again is not first, "more changes than are followed"
    bench.scores()
    bench.snapshot.update_node(a_host("n0", disktype="ssd").node)
    assert bench.groups() not in (None, first, again)


def test_groups_of_other_pods_than_those_that_are_selected_move_nowhere() -> None:
    bench = Bench(by_host(), *(a_host(f"n{number}") for number in range(3)))
    groups = bench.groups()
    assert groups is not None
    moved = groups.log.end
    bench.bind("n1", a_pod().named(app="db"))
    assert bench.groups() is groups and groups.log.end == moved
    bench.bind("n1")
    assert bench.groups() is groups and groups.log.end == moved + 1


def test_with_too_many_groups_rows_are_scored_one_by_one_until_they_are_fewer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many as may be made; those without rows keep their numbers until there are too many."""
    monkeypatch.setattr(pod_topology_spread_groups, "GROUPS_MAX", 2)
    bench = Bench(by_host(), *(a_host(f"n{number}") for number in range(5)))
    for number in range(4):
        for _ in range(number):
            bench.bind(f"n{number}")
    groups = bench.groups()
    assert groups is not None and len(groups) == 4 and bench.groups() is groups
    for _ in range(4):
        bench.bind("n4")
    assert bench.groups() is None, "five hosts, each with another number of pods"
    bench.snapshot.unbind("u0")
    fewer = bench.groups()
    assert fewer is not None and len(fewer) == 4, "two hosts without a pod"
    for uid in ("u1", "u2"):
        bench.snapshot.unbind(uid)
    assert bench.scores() == {"n0": 100, "n1": 100, "n2": 100, "n3": 25, "n4": 0}


def test_bytes_are_those_of_arrays_and_of_groups() -> None:
    nodes = [a_host("a", zone="x"), a_host("b", zone="x"), a_host("c", zone="y")]
    bench = Bench(web().spreading("zone").spreading(HOST, soft=True).pod, *nodes)
    # By zone: rows that count, domains with such rows, pods by domain and for none; the same by host.
    by_zone, of_hosts = 3 + 2 + 8 * 3, 3 + 3 + 8 * 4
    assert bench.plugin.count(bench.prepared, bench.snapshot, None).n_bytes == by_zone + of_hosts
    groups = bench.groups()
    assert groups is not None
    assert bench.state.n_bytes == by_zone + of_hosts + groups.n_bytes
    everybody = Bench(web().spreading("zone", selector={}).pod, *nodes)
    assert everybody.groups() is None and everybody.state.n_bytes == 3 + 2, "nothing is added up"


def test_a_selector_that_selects_nobody_in_particular_gives_all_hosts_the_same() -> None:
    bench = Bench(web().spreading(HOST, soft=True, selector={}).spreading("zone", soft=True).pod, a_host("a", zone="x"))
    bench.snapshot.add_node(a_host("b", zone="x").node)
    bench.snapshot.add_node(a_host("c", zone="y").node)
    for name in "aab":
        bench.bind(name)
        assert bench.scores()["a"] == bench.scores()["b"] < bench.scores()["c"]


def test_of_hosts_only_feasible_ones_that_have_all_keys_weigh() -> None:
    pod = web().spreading(HOST, soft=True).spreading("zone", soft=True, max_skew=3).pod
    bench = Bench(pod, *(a_host(name, zone="xy"[number % 2]) for number, name in enumerate("abcd")), a_host("bare"), a_node("no"))
    for name in ("a", "a", "b", "c", "bare"):
        bench.bind(name)
    everywhere = bench.scores()
    assert everywhere["bare"] == everywhere["no"] == 0 < everywhere["a"] < everywhere["d"]
    # Of four hosts and two zones: round(2 ln 6 + 3 ln 4 + 2) = 10 for a, round(0 + ln 4 + 2) = 3 for d.
    assert (everywhere["a"], everywhere["d"]) == (30, 100)
    # Of three: round(2 ln 5 + 3 ln 4 + 2) = 9.
    assert bench.scores("c")["a"] == 33
    assert bench.scores("a", "b", "c", "d") == {"bare": 0, "no": 0}, "nobody is scored"


def test_rows_without_a_zone_join_those_whose_zone_is_empty_as_far_as_they_count() -> None:
    """With the built-in constraints, which ask for no key. Only those count that the pod's node affinity selects."""
    service = Service()
    service.spec.selector["app"] = "web"
    nodes = [a_host("empty", **{ZONE: ""}), a_host("none"), a_host("left-out"), a_host("x1", **{ZONE: "x"})]
    for node in nodes:
        node.labelled(pool="batch" if node.node.metadata.name != "left-out" else "other")
    pod = web().requiring(a_term(("pool", "In", ("batch",)))).pod
    bench = Bench(pod, *nodes)
    assert bench.groups() is None and bench.state.adds_nothing, "nobody says which pods belong together"
    bench.snapshot.set_object("Service", "default", "s", service)
    for name in ("none", "none", "left-out", "x1"):
        bench.bind(name)
    # Hosts: pods * ln 5 + 2; zones: pods * ln 4 + 4, where the zone "" has the two pods of "none"; "none" itself has no zone.
    # Raw: 9 for empty, 5 for none, 9 for x1.
    assert bench.scores("left-out") == {"empty": 55, "none": 100, "x1": 55}
    # Without a row of the empty zone nobody joins it, and there are two zones all the same: none and x.
    assert bench.scores("left-out", "empty") == {"none": 100, "x1": 55}
    np.testing.assert_array_equal(bench.state.soft[1].on_unlabelled(bench.snapshot), 2)


def test_pods_that_spread_over_the_same_domains_share_their_groups() -> None:
    nodes = [a_host(name, zone="xy"[number % 2]) for number, name in enumerate("abc")]
    bench = Bench(web().spreading("zone", soft=True).pod, *nodes)
    groups = bench.groups()
    other = bench.plugin.prepare(a_pod().named(app="db").spreading("zone", soft=True, max_skew=9).pod)
    assert groups is not None and bench.plugin.groups(bench.plugin.count(other, bench.snapshot, None)) is groups


def test_of_two_constraints_by_host_one_may_select_nobody_in_particular() -> None:
    pod = web().spreading(HOST, soft=True, selector={}).spreading(HOST, soft=True, max_skew=4).pod
    bench = Bench(pod, *(a_host(name) for name in "abc"))
    assert bench.scores() == {"a": 100, "b": 100, "c": 100}
    bench.bind("a")
    # round(ln 5 + 3) = 5 and round(3) = 3.
    assert bench.scores() == {"a": 60, "b": 100, "c": 100}
    groups = bench.groups()
    assert groups is not None and set(groups.values) == {(0, 0, 0, 0), (0, 0, 0, 1)}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("max_skew", "min_domains"), [(1, 1), (2, 1), (1, 3), (1, 4)])
def test_refused_zones_follow_each_pod_that_comes_or_goes(max_skew: int, min_domains: int, seed: int) -> None:
    """Of three zones; nodes of another disk do not count, nor do their pods."""
    random, n_nodes = Random(seed), 8
    pod = web().spreading("zone", max_skew=max_skew).selecting(disk="ssd").pod
    pod.spec.topology_spread_constraints[0].min_domains = min_domains
    bench = Bench(pod, *(a_host(f"n{n}", zone="xyz"[n % 3], disk="hdd" if n == 7 else "ssd") for n in range(n_nodes)))
    bound: dict[str, int] = {}
    for step in range(60):
        if bound and random.random() < 0.45:
            uid = random.choice(sorted(bound))
            bench.snapshot.unbind(uid)
            del bound[uid]
        else:
            bound[f"s{step}"] = random.randrange(n_nodes)
            bench.snapshot.bind(f"s{step}", bench.templates.intern(web().pod), f"n{bound[f's{step}']}")
        bench.groups()
        pods = [sum(node % 3 == zone for node in bound.values() if node != 7) for zone in range(3)]
        lowest = min(pods) if min_domains <= 3 else 0
        expected = [pods[n % 3] + 1 - lowest > max_skew for n in range(n_nodes)]
        codes = bench.plugin.filter(bench.state, Rows(bench.snapshot, slice(0, n_nodes)))
        assert codes is not None and (codes != 0).tolist() == expected, step
