"""Groups of rows that InterPodAffinity scores together: each row's group says what the row by itself is scored."""

from random import Random

import numpy as np
import pytest

from rayched.framework.plugin_args import InterPodAffinityArgs
from rayched.plugins.inter_pod_affinity import counts as inter_pod_affinity_counts
from rayched.plugins.inter_pod_affinity import groups as inter_pod_affinity_groups
from rayched.plugins.inter_pod_affinity.counts import AffinityCounts
from rayched.plugins.inter_pod_affinity.plugin import InterPodAffinity
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Node, Pod
from tests.plugins.builders import a_node, a_pod, pods_with
from tests.plugins.engine_case import Case

HOST, ZONE, RACK = "kubernetes.io/hostname", "zone", "rack"
WEB, DB = pods_with("default", app="web"), pods_with("default", app="db")
NODES = 24
STEPS = 120

WISHES = {
    "hosts": (a_pod().near(HOST, WEB, 7), 0.5),
    "hosts and zones": (a_pod().near(HOST, WEB, 7).near(ZONE, WEB, 3).away(HOST, DB, 2), 0.5),
    "racks": (a_pod().away(RACK, WEB, 9).near(HOST, DB, 1), 0.3),
}
"""With the share of steps after which the groups are the same ones, at least."""


def random_node(random: Random, name: str) -> Node:
    node = a_node(name).offering(cpu="8", memory="8Gi", pods="99").node
    if random.random() < 0.95:
        node.metadata.labels[HOST] = name
    if random.random() < 0.9:
        node.metadata.labels[ZONE] = random.choice("ab")
    if random.random() < 0.9:
        node.metadata.labels[RACK] = f"r{random.randrange(NODES // 2)}"
    return node


def random_pod(random: Random) -> Pod:
    pod = a_pod().named(app=random.choice(("web", "db")))
    if random.random() < 0.1:
        pod = pod.away(random.choice((HOST, ZONE)), WEB, random.choice((1, 5)))
    return pod.pod


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("few_domains", [4, 64])
@pytest.mark.parametrize("wish", WISHES)
def test_a_row_is_scored_as_its_group_is(wish: str, few_domains: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inter_pod_affinity_groups, "FEW", few_domains)
    # Also where weights are added up, as with many different ones.
    monkeypatch.setattr(inter_pod_affinity_counts, "WEIGHTS_MAX", seed % 2 * 8)
    random, snapshot, templates = Random(seed), Snapshot(), TemplateTable()
    for number in range(NODES):
        snapshot.add_node(random_node(random, f"n{number}"))
    plugin = InterPodAffinity(InterPodAffinityArgs())
    wishing, share = WISHES[wish]
    incoming = plugin.prepare(wishing.named(app="web").pod)
    state: AffinityCounts | None = None
    last: RowGroups | None = None
    there: list[str] = []
    same = asked = 0
    for step in range(STEPS):
        what = random.random()
        if what < 0.05:
            name = f"n{random.randrange(NODES + 3)}"
            if random.random() < 0.5:
                snapshot.remove_node(name)
            else:
                snapshot.add_node(random_node(random, name))
        elif there and what < 0.3:
            snapshot.unbind(there.pop(random.randrange(len(there))))
        else:
            there.append(f"u{step}")
            snapshot.bind(there[-1], templates.intern(random_pod(random)), f"n{random.randrange(NODES)}")
        if random.random() < 0.2:
            continue
        state = plugin.count(incoming, snapshot, state)
        groups = plugin.groups(state)
        rows = Rows(snapshot, snapshot.alive.nonzero()[0])
        expected = plugin.score(state, rows)
        if expected is None:
            assert groups is None
            continue
        assert groups is not None
        assert state.groups is not None
        present = np.unique(groups.ids[rows.selection]).tolist()
        of_groups = dict(zip(present, state.groups.raw_scores(groups, present), strict=True))
        assert [of_groups[groups.ids.item(row)] for row in snapshot.alive.nonzero()[0]] == expected.tolist(), f"step {step}"
        asked += 1
        same += groups is last
        last = groups
    assert same >= share * asked > 0


def test_a_group_without_a_feasible_row_gets_one_by_a_pod_on_another_node_of_the_rack() -> None:
    rack = [a_node(f"n{n}").offering(cpu="8", memory="8Gi", pods="1").labelled(rack=f"r{n // 2}") for n in range(12)]
    case = Case(*rack).bind(a_pod().named(app="web"), "n0").bind(a_pod(), "n1")
    drawn = a_pod().near("rack", WEB, 1)
    assert case.best(drawn) == [f"n{n}" for n in range(2, 12)]
    case.bind(a_pod().named(app="web"), "n2")
    assert case.best(drawn) == ["n3"]


def test_a_node_that_comes_without_the_label_is_in_the_group_of_those_without_it() -> None:
    case = Case(*(a_node(f"n{n}").offering(cpu="8", memory="8Gi", pods="9").labelled(rack=f"r{n}") for n in range(6)))
    case.bind(a_pod().named(app="web"), "n0")
    shy = a_pod().away("rack", WEB, 1)
    assert case.best(shy) == [f"n{n}" for n in range(1, 6)]
    case.snapshot.add_node(a_node("n6").offering(cpu="8", memory="8Gi", pods="9").node)
    assert case.best(shy) == [f"n{n}" for n in range(1, 7)]
