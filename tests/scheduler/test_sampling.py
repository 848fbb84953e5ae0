"""percentageOfNodesToScore: how many feasible nodes are enough, where a search begins, and what the cycle makes of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from rayched.configuration.profile_building import default_profile
from rayched.framework.profile import ALL_NODES
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.sampling import n_feasible_to_find
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Node, Pod
from tests.core.builders import a_node, a_pod


@pytest.mark.row("K7.1", "K7.2")
@pytest.mark.parametrize(
    ("percentage", "n_nodes", "enough"),
    [
        (100, 5_000, 5_000),
        (250, 5_000, 5_000),
        (10, 5_000, 500),
        (10, 99, 99),
        (1, 5_000, 100),
        (0, 0, 0),
        (0, 99, 99),
        (0, 100, 100),
        (0, 1_000, 420),
        (0, 5_000, 500),
        (0, 20_000, 1_000),
    ],
)
def test_so_many_feasible_nodes_are_enough(percentage: int, n_nodes: int, enough: int) -> None:
    assert n_feasible_to_find(percentage, n_nodes) == enough


class Cluster:
    """Nodes n0, n1, ... in the order of the search, without zones, and a scheduler of one percentage."""

    def __init__(self, percentage: int, n_nodes: int = 250) -> None:
        self.snapshot, self._templates, self._pods = Snapshot(), TemplateTable(), 0
        for number in range(n_nodes):
            self.add(a_node(f"n{number}", cpu="4"))
        profile = replace(default_profile(IN_TREE), percentage_of_nodes_to_score=percentage)
        self.scheduler = Scheduler(self.snapshot, {profile.scheduler_name: profile}, seed=3)

    def add(self, node: Node) -> None:
        self.snapshot.add_node(node)

    def place(self, pod: Pod | None = None) -> int | None:
        """The number of the node that the next pod gets."""
        self._pods += 1
        pod = pod or a_pod(f"p{self._pods}", cpu="1")
        template = self._templates.intern(pod)
        found = self.scheduler.schedule(PodToSchedule(f"u{self._pods}", f"default/p{self._pods}", template, pod), 0, 0.0)
        return int(found.node_name[1:]) if isinstance(found, Attempt) else None


@pytest.mark.row("K7.3")
def test_each_search_begins_where_the_one_before_ended() -> None:
    cluster = Cluster(percentage=10)
    starts = []
    for _ in range(5):
        start = cluster.scheduler._sampling.start
        node = cluster.place()
        assert node is not None and (node - start) % 250 < 100
        starts.append(start)
    assert starts == [0, 100, 200, 50, 150]


@pytest.mark.row("K7.1", "K7.5")
def test_a_low_percentage_misses_the_best_node_and_the_default_never_does() -> None:
    for percentage, found in ((ALL_NODES, 240), (10, None)):
        cluster = Cluster(percentage)
        cluster.snapshot.update_node(a_node("n240", cpu="64"))
        node = cluster.place()
        assert (node == 240) is (found == 240)


@pytest.mark.row("K7.1")
@pytest.mark.parametrize(("best", "reached"), [(99, True), (100, False)])
def test_the_search_ends_with_the_last_node_that_is_enough(best: int, reached: bool) -> None:
    cluster = Cluster(percentage=10)
    cluster.snapshot.update_node(a_node(f"n{best}", cpu="64"))
    assert (cluster.place() == best) is reached


def test_nodes_that_are_not_feasible_do_not_count_as_found() -> None:
    cluster = Cluster(percentage=10)
    for number in range(0, 200, 2):
        cordoned = a_node(f"n{number}", cpu="4")
        cordoned.spec.unschedulable = True
        cluster.snapshot.update_node(cordoned)
    node = cluster.place()
    # 100 nodes of the first 200 and none of the 50 after them: the search ends at the 101st feasible node.
    assert node is not None and node % 2 == 1 and node < 200
    assert cluster.scheduler._sampling.start == 200


def test_a_pod_that_fits_nowhere_leaves_the_start_alone() -> None:
    cluster = Cluster(percentage=10)
    cluster.place()
    assert cluster.place(a_pod("large", cpu="100")) is None
    assert cluster.scheduler._sampling.start == 100


@pytest.mark.parametrize("percentage", [0, 5, 60, ALL_NODES])
@pytest.mark.parametrize("seed", range(3))
def test_a_pod_goes_to_a_best_node_of_a_plain_search_one_by_one(percentage: int, seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(percentage, n_nodes=0)
    zones: dict[str, list[str]] = {}
    for number in range(300):
        node = a_node(f"n{number}", cpu=random.choice(("2", "4", "8", "16")))
        zone = random.choice("abc")
        node.metadata.labels["topology.kubernetes.io/zone"] = zone
        node.spec.unschedulable = random.random() < 0.4
        zones.setdefault(zone, []).append(node.metadata.name)
        cluster.add(node)
    longest = max(map(len, zones.values()))
    order = [nodes[turn] for turn in range(longest) for nodes in zones.values() if turn < len(nodes)]
    start, engine = 0, cluster.scheduler.engine("default-scheduler")
    for _ in range(8):
        total = engine.evaluate(cluster._templates.intern(a_pod("p", cpu="1"))).total
        score = {name: int(total[cluster.snapshot.rows_by_name[name]]) for name in order}
        reached: list[str] = []
        searched = 0
        for name in order[start:] + order[:start]:
            if score[name] >= 0:
                if len(reached) == (len(order) if percentage == ALL_NODES else n_feasible_to_find(percentage, len(order))):
                    break
                reached.append(name)
            searched += 1
        best = {name for name in reached if score[name] == max(score[other] for other in reached)}
        assert f"n{cluster.place()}" in best
        start = (start + searched) % len(order)
