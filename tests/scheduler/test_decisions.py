"""The last decisions as they were: the best five, the draw, who rejects how many nodes; bounded, and without a say."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import numpy as np
import pytest

from rayched.engine.evaluation import Evaluation
from rayched.framework.simple_plugin import NodeView
from rayched.scheduler import decisions
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.decisions import BEST, Decision, Decisions
from rayched.scheduler.selection import draw
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.testing import InProcessCluster, a_node, a_pod
from rayched.v1.core_pb2 import Node, Pod
from tests.scheduler.best_nodes import told_best


def decision_of(cluster: InProcessCluster, pod: Pod) -> Decision:
    found = cluster.cluster.scheduler.decisions.of(f"default/{pod.metadata.name}")
    assert found is not None
    return found


def some_nodes(random: Random) -> list[Node]:
    """Of few sizes, so that some tie; some take nothing."""
    return [
        a_node(f"n{number}", cpu=str(random.choice((2, 4, 8))), memory="32Gi", unschedulable=random.random() < 0.2)
        for number in range(random.randrange(1, 24))
    ]


@pytest.mark.parametrize("seed", range(6))
def test_a_decision_is_kept_with_the_best_five_as_the_full_evaluation_has_them(seed: int) -> None:
    random = Random(seed)
    nodes = some_nodes(random)
    cluster = InProcessCluster(nodes)
    rows = {node.metadata.name: row for row, node in enumerate(nodes)}
    few_tied = 0
    for number in range(25):
        pod = a_pod(f"p{number}", cpu=random.choice(("100m", "500m", "1500m")))
        feasible = [node for node in cluster.explain(pod).nodes if node.feasible]
        feasible.sort(key=lambda node: (-node.total, rows[node.node_name]))
        placed = cluster.place(pod)
        found = decision_of(cluster, pod)
        if not feasible:
            assert found.node_name == "" and "Insufficient cpu" in found.message
            continue
        ties = sum(node.total == feasible[0].total for node in feasible)
        assert found.node_name == placed.node_of(pod) == feasible[draw(0, found.number, ties) if ties > 1 else 0].node_name
        assert found.ties == ties
        if len(feasible) > 1:
            assert found.best == told_best([(node.node_name, node.total) for node in feasible], found.node_name)
        else:
            assert [name for name, _ in found.best] == [feasible[0].node_name]
        few_tied += ties < BEST < len(feasible)
    assert few_tied or len(nodes) < 10


def test_the_best_five_are_right_also_in_a_long_run_of_equal_pods_where_few_nodes_tie() -> None:
    random = Random(3)
    nodes = [a_node(f"n{n}", cpu=f"{random.randrange(2000, 9000)}m", memory=f"{random.randrange(4, 64)}Gi") for n in range(150)]
    config = configuration_with_weights(NodeResourcesFit=100)
    rows = {node.metadata.name: row for row, node in enumerate(nodes)}
    # The same twice: asking for explanations in between ends the run.
    run, asked = InProcessCluster(nodes, config=config), InProcessCluster(nodes, config=config)
    few_tied = 0
    for number in range(120):
        pod = a_pod(f"p{number}", cpu="200m", memory="300Mi")
        feasible = [node for node in asked.explain(pod).nodes if node.feasible]
        feasible.sort(key=lambda node: (-node.total, rows[node.node_name]))
        asked.place(pod)
        run.place(pod)
        found = decision_of(run, pod)
        assert found.best == told_best([(node.node_name, node.total) for node in feasible], found.node_name), number
        few_tied += found.ties < BEST
    assert few_tied > 20


def test_the_chosen_node_is_among_the_best_wherever_it_was_drawn() -> None:
    cluster = InProcessCluster([a_node(f"n{number:02}") for number in range(40)])
    names = [f"n{number:02}" for number in range(BEST)]
    beyond = 0
    for number in range(12):
        pod = a_pod(f"p{number}", cpu="0")
        cluster.place(pod)
        found = decision_of(cluster, pod)
        is_beyond = found.node_name not in names
        assert [name for name, _ in found.best] == ([*names[:-1], found.node_name] if is_beyond else names)
        beyond += is_beyond
    assert beyond


def configuration_with_weights(**weights: int) -> str:
    plugins = "".join(f"\n      - {{name: {name}, weight: {weight}}}" for name, weight in weights.items())
    return f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled:{plugins}
"""


def test_names_are_those_of_the_moment_also_where_a_row_has_become_another_nodes() -> None:
    snapshot, template = Snapshot(), TemplateTable().intern(a_pod())
    for number in range(6):
        snapshot.add_node(a_node(f"n{number}"))
    kept = Decisions(snapshot, lambda: 0.0)

    def note(uid: str, row: int, ties: list[int]) -> None:
        totals = np.arange(6, dtype=np.int16) * 100
        totals[ties] = 900
        attempt = Attempt(uid, uid, 0, 0, template, a_pod(), cast(Any, None))
        kept.chose(attempt, row, Evaluation(6, totals, 900, ties=ties), ties)

    def noted(uid: str) -> tuple[str, list[str]]:
        found = kept.of(uid)
        assert found is not None
        return found.node_name, [name for name, _ in found.best]

    everyone = list(range(6))
    note("many", 2, everyone)
    note("few", 2, [2])
    snapshot.remove_node("n2")
    snapshot.remove_node("n4")
    snapshot.add_node(a_node("new"))
    note("later", 2, [0, 2])
    snapshot.remove_node("new")
    snapshot.add_node(a_node("newest"))
    snapshot.add_node(a_node("last"))
    assert (snapshot.row_of("newest"), snapshot.row_of("last")) == (2, 4)
    assert noted("later") == ("new", ["n0", "new", "n5", "", "n3"]), "asked before anything is noted with the newest names"
    note("last", 4, everyone)
    assert noted("many") == ("n2", ["n0", "n1", "n2", "n3", "n4"])
    assert noted("few") == ("n2", ["n2", "n5", "n4", "n3", "n1"])
    assert noted("later") == ("new", ["n0", "new", "n5", "", "n3"])
    assert noted("last") == ("last", ["n0", "n1", "newest", "n3", "last"])
    few = kept.of("few")
    assert few is not None and few.best == (("n2", 900), ("n5", 500), ("n4", 400), ("n3", 300), ("n1", 100))


def test_a_decision_lasts_until_the_next_one_of_its_batch_begins_or_the_batch_ends() -> None:
    snapshot, template = Snapshot(), TemplateTable().intern(a_pod())
    snapshot.add_node(a_node("n0"))
    kept = Decisions(snapshot, lambda: 10.5)

    def note(uid: str, began: float) -> None:
        attempt = Attempt(uid, uid, 0, 0, template, a_pod(), cast(Any, None), began)
        kept.chose(attempt, 0, Evaluation(1, np.full(1, 300, np.int16), 300, ties=[0]), [0])

    note("before any batch", 1.0)
    assert seconds_of(kept, "before any batch") == (0, 0.0)
    kept.begin(7)
    note("first", 3.0)
    note("last", 3.5)
    kept.end(4.25)
    kept.begin(8)
    note("before a failure", 10.0)
    kept.broke(Attempt("failed", "failed", 0, 0, template, a_pod(), cast(Any, None), 10.25), "no")
    kept.end(20.0)
    assert [seconds_of(kept, uid) for uid in ("first", "last", "before a failure", "failed")] == [
        (7, 0.5),
        (7, 0.75),
        (8, 0.25),
        (8, 0.25),
    ]


def seconds_of(kept: Decisions, uid: str) -> tuple[int, float]:
    """Revision and length of a decision."""
    found = kept.of(uid)
    assert found is not None
    return found.revision, found.ended - found.began


def test_keeping_decisions_changes_none() -> None:
    placed = []
    for keeps in (True, False):
        random = Random(5)
        cluster = InProcessCluster(some_nodes(random))
        cluster.cluster.scheduler.decisions.keeps = keeps
        placed.append(cluster.place(*(a_pod(f"p{n}", cpu=random.choice(("100m", "700m"))) for n in range(80))).nodes)
        assert (len(cluster.cluster.scheduler.decisions) > 0) == keeps
    assert placed[0] == placed[1]


def test_an_attempt_without_a_node_tells_who_rejected_how_many_nodes() -> None:
    nodes = [a_node("small", cpu="1"), a_node("tiny", cpu="1"), a_node("closed", unschedulable=True)]
    cluster = InProcessCluster(nodes)
    cluster.place(pod := a_pod(cpu="3"))
    found = decision_of(cluster, pod)
    assert (found.n_nodes, found.rejections) == (3, {"NodeUnschedulable": 1, "NodeResourcesFit": 2})


def test_who_rejects_nodes_of_a_pod_that_found_one_is_counted_afterwards_and_says_of_when_it_is() -> None:
    cluster = InProcessCluster([a_node("good"), a_node("small", cpu="1"), a_node("closed", unschedulable=True)])
    scheduler = cluster.cluster.scheduler
    scheduler.decisions.begin(7)
    cluster.place(pod := a_pod(cpu="3"))
    found = decision_of(cluster, pod)
    assert scheduler.decisions.rejections(found.template) is None
    scheduler.decisions.begin(8)
    assert scheduler.count_rejections() and not scheduler.count_rejections(), "it was counted twice"
    counted = scheduler.decisions.rejections(found.template)
    assert found.revision == 7 and counted is not None and (counted.revision, counted.number) == (8, found.number)
    assert counted.by_plugin == {"NodeUnschedulable": 1, "NodeResourcesFit": 1}


def test_counting_takes_no_more_than_its_share_of_the_time() -> None:
    cluster = InProcessCluster([a_node()])
    kept, now = cluster.cluster.scheduler.decisions, [100.0]
    kept.stopwatch = lambda: now[0]
    for number in range(4):
        cluster.place(a_pod(f"p{number}", cpu=f"{number + 1}m"))

    def counted(seconds: float) -> bool:
        def rejections_of(template: object) -> dict[str, int]:
            now[0] += seconds
            return {}

        return kept.count(rejections_of, 0)

    assert counted(0.25) and not counted(0.0)
    now[0] += 0.25 * decisions.PAUSE_FACTOR - 1
    assert not counted(0.0)
    now[0] += 1
    assert counted(0.0)
    now[0] += decisions.PAUSE_SECONDS / 2
    assert not counted(0.0)
    now[0] += decisions.PAUSE_SECONDS
    assert counted(0.0)


def test_the_template_that_was_decided_about_last_is_counted_first_and_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "UNCOUNTED_MAX", 2)
    monkeypatch.setattr(decisions, "COUNTS_MAX", 3)
    monkeypatch.setattr(decisions, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(decisions, "PAUSE_FACTOR", 0)
    cluster = InProcessCluster([a_node(cpu="64")])
    kept = cluster.cluster.scheduler.decisions
    asked: list[int] = []

    def count_all(*numbers: int) -> list[int]:
        """The requests of templates that are counted, in their order, once pods with these were placed."""
        for number in numbers:
            cluster.place(a_pod(f"p{number}-{len(asked)}-{len(kept)}", cpu=f"{number}m"))
        asked.clear()

        def rejections_of(template: PodTemplate) -> dict[str, int]:
            text = template.pod.spec.containers[0].resources.requests["cpu"].string
            asked.append(int(text.removesuffix("m")))
            templates[asked[-1]] = template.id
            return {"one": asked[-1]}

        while kept.count(rejections_of, 0):
            pass
        return asked.copy()

    templates: dict[int, int] = {}
    assert count_all(1, 2, 3) == [3, 2] and count_all() == []
    assert count_all(4, 5, 4) == [4, 5]
    known = {number: kept.rejections(template) for number, template in templates.items()}
    assert [number for number, found in known.items() if found is not None] == [2, 4, 5], "the last three"
    assert count_all(2, 6) == [6, 2]
    assert [number for number, template in templates.items() if kept.rejections(template) is not None] == [2, 5, 6]


class Moody:
    """Raises once its pod has a node."""

    def __init__(self, args: Any) -> None:
        self.calls = 0

    def filter_node(self, pod: Pod, node: NodeView) -> bool:
        self.calls += 1
        if self.calls > 1:
            raise ValueError("not today")
        return True


def test_a_plugin_that_fails_while_it_is_counted_ends_nothing_and_is_named() -> None:
    cluster = InProcessCluster([a_node()], plugins={"Moody": Moody})
    scheduler = cluster.cluster.scheduler
    cluster.place(a_pod())
    scheduler.count_rejections()
    (problem,) = scheduler.plugin_problems
    assert "Moody" in problem.message() and "not today" in problem.message()
    (told,) = scheduler.raised.take()
    assert "Moody" in told.splitlines()[0] and 'raise ValueError("not today")' in told
    cluster.place(a_pod("another"))
    assert scheduler.raised.take() == [], "each place is told once"


def test_only_the_last_ones_are_kept_and_the_last_one_of_a_pod_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "DECISIONS_MAX", 5)
    cluster = InProcessCluster([a_node(cpu="1")])
    kept = cluster.cluster.scheduler.decisions
    waiting = a_pod("waiting", cpu="2")
    cluster.place(waiting)
    first = decision_of(cluster, waiting)
    cluster.place(*(a_pod(f"p{number}", cpu="1m") for number in range(3)))
    assert decision_of(cluster, waiting).number > first.number
    for number in range(10, 30):
        cluster.place(a_pod(f"p{number}", cpu="1m"))
    assert len(kept) == 5 and kept.of("default/p10") is None
