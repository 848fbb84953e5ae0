"""Long runs of equal pods that care for where others are: each goes where a plain serial evaluation puts it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from rayched.configuration.profile_building import default_profile
from rayched.engine.cached_columns import BuildColumns
from rayched.engine.engine import Engine
from rayched.engine.evaluation import Evaluation
from rayched.engine.score_caps import RowSet
from rayched.engine.totals import KeptTotal
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.decisions import BEST
from rayched.v1.core_pb2 import Node, Pod
from tests.plugins.builders import PodBuilder, a_node, a_pod, pods_with
from tests.plugins.engine_case import Case, profile
from tests.scheduler.best_nodes import told_best
from tests.scheduler.test_against_serial import HOST, ZONE, Memoised, Serial

SEEDS = 4
PODS = 60
WEB = pods_with("default", app="web")

WISHES: dict[str, tuple[Callable[[PodBuilder], PodBuilder], float]] = {
    "nothing": (lambda pod: pod, 0.7),
    "hard spread over zones": (lambda pod: pod.spreading(ZONE, 3), 0.0),
    "soft spread over zones": (lambda pod: pod.spreading(ZONE, soft=True), 0.7),
    "soft spread over zones and hosts": (lambda pod: pod.spreading(ZONE, soft=True).spreading(HOST, soft=True), 0.7),
    "hard over zones, soft over hosts": (lambda pod: pod.spreading(ZONE).spreading(HOST, soft=True), 0.0),
    "apart by host": (lambda pod: pod.away(HOST, WEB), 0.4),
    "apart by zone": (lambda pod: pod.away(ZONE, WEB), 0.0),
    "together by zone": (lambda pod: pod.near(ZONE, WEB), 0.7),
    "drawn to a zone": (lambda pod: pod.near(ZONE, WEB, 20), 0.7),
    "drawn to hosts": (lambda pod: pod.near(HOST, WEB, 20), 0.5),
    "drawn away from hosts": (lambda pod: pod.away(HOST, WEB, 20), 0.5),
    "drawn to hosts and zones": (lambda pod: pod.near(HOST, WEB, 20).near(ZONE, WEB, 3), 0.5),
    "one node alone": (lambda pod: pod.selecting(**{HOST: "n0"}), 0.4),
    "one of two nodes": (lambda pod: pod.selecting(pair="yes"), 0.4),
    "soft spread, apart by host": (lambda pod: pod.spreading(ZONE, soft=True).away(HOST, WEB), 0.4),
}
"""With the share of placed pods that follow the last one without an evaluation of all rows, at least."""


class RankingSerial(Serial):
    """Keeps the best nodes of the last pod as well."""

    best: tuple[tuple[str, int], ...] = ()

    def place(self, uid: str, pod: Pod) -> str:
        rows = Engine(self.snapshot, self._profile).explain(self._templates.intern(pod)).rows
        ranked = sorted((-int(rows.total[i]), int(row)) for i, row in enumerate(rows.index) if rows.feasible[i])
        named = [(self.snapshot.name_of(row), -total) for total, row in ranked[:BEST]]
        chosen = super().place(uid, pod)
        self.best = told_best(named, chosen)
        return chosen


def a_cluster(random: Random) -> list[Node]:
    """Some nodes are larger than others; a few have no zone."""
    nodes = []
    for number in range(random.choice((12, 30, 66))):
        node = a_node(f"n{number}").offering(cpu=random.choice(("4", "4", "6")), memory="8Gi", pods="12").node
        node.metadata.labels[HOST] = f"n{number}"
        if number < 2:
            node.metadata.labels["pair"] = "yes"
        if random.random() < 0.95:
            node.metadata.labels[ZONE] = random.choice("abc")
        nodes.append(node)
    return nodes


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a total went on, each time that it was asked for, without a pass that writes all rows."""
    answers: list[bool] = []
    evaluation, write_all = KeptTotal.evaluation, KeptTotal._write_all

    def noted(total: KeptTotal, build: BuildColumns, kept_free: RowSet) -> Evaluation:
        answers.append(True)
        return evaluation(total, build, kept_free)

    def noted_all(total: KeptTotal) -> None:
        answers[-1] = False
        write_all(total)

    monkeypatch.setattr(KeptTotal, "evaluation", noted)
    monkeypatch.setattr(KeptTotal, "_write_all", noted_all)
    return answers


def changed(random: Random, node: Node) -> Node:
    """The node with one of the things that its owner or its agent may change; or with nothing that anybody reads."""
    new = Node()
    new.CopyFrom(node)
    match random.randrange(8):
        case 0:
            new.metadata.labels["rack"] = random.choice("xyz")
        case 1:
            new.metadata.labels[ZONE] = random.choice("abc")
        case 2:
            new.metadata.annotations["seen"] = str(random.random())
        case 3:
            new.spec.unschedulable = not new.spec.unschedulable
        case 4:
            new.spec.ClearField("taints")
            if random.random() < 0.7:
                effect = random.choice(("NoSchedule", "PreferNoSchedule", "PreferNoSchedule"))
                new.spec.taints.add(key=random.choice("kl"), effect=effect)
        case 5:
            new.status.allocatable["cpu"].string = random.choice(("2", "4", "6"))
        case 6:
            new.status.ClearField("images")
            for image in random.sample(("app:1", "app:2", "base:1"), random.randrange(3)):
                new.status.images.add(names=[image], size_bytes=200_000_000)
        case 7:
            new.status.conditions.add(type="Ready", status="True").last_heartbeat_time.seconds = random.randrange(1_000_000)
    return new


@pytest.mark.row("F6", "F23")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("wish", WISHES)
def test_a_run_goes_on_while_nodes_change_come_and_go(wish: str, seed: int, followed: list[bool]) -> None:
    random = Random(100 + seed)
    profile = default_profile(IN_TREE)
    memoised, serial = Memoised(profile), RankingSerial(profile)
    nodes = {node.metadata.name: node for node in a_cluster(random)}
    away: dict[str, Node] = {}
    for node in nodes.values():
        memoised.snapshot.add_node(node)
        serial.snapshot.add_node(node)
    wishing, _ = WISHES[wish]
    pod = wishing(a_pod().named(app="web").requesting(cpu="100m", memory="50Mi")).pod
    pod.spec.containers[0].image = "app:1"
    pod.spec.scheduler_name = profile.scheduler_name
    n_changes = after_changes = 0
    for number in range(PODS // 2):
        if random.random() < 0.5:
            n_changes += 1
            name = random.choice(list(nodes))
            what = random.random()
            if what < 0.1 and len(nodes) > 4:
                away[name] = nodes.pop(name)
            elif what < 0.2 and away:
                name, node = away.popitem()
                nodes[name] = node
            elif what < 0.25:
                name = f"new{number}"
                nodes[name] = a_node(name).offering(cpu="4", memory="8Gi", pods="12").node
                nodes[name].metadata.labels[HOST] = name
            else:
                nodes[name] = changed(random, nodes[name])
            for snapshot in (memoised.snapshot, serial.snapshot):
                if name in nodes:
                    snapshot.add_node(nodes[name])
                else:
                    snapshot.remove_node(name)
            n_asked = len(followed)
        else:
            n_asked = -1
        expected = serial.place(f"u{number}", pod)
        assert memoised.place(f"u{number}", pod) == expected, f"pod {number}"
        after_changes += n_asked >= 0 and any(followed[n_asked:])
        decision = memoised.scheduler.decisions.of(f"u{number}")
        if expected and decision is not None and len(serial.best) > 1:
            assert decision.best == serial.best, f"pod {number}"
    if wish == "nothing":
        assert after_changes > 0.4 * n_changes


@pytest.mark.row("F6", "F23")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("wish", WISHES)
def test_pods_of_a_run_go_where_a_plain_serial_evaluation_puts_them(wish: str, seed: int, followed: list[bool]) -> None:
    random = Random(seed)
    profile = default_profile(IN_TREE)
    memoised, serial = Memoised(profile), RankingSerial(profile)
    for node in a_cluster(random):
        memoised.snapshot.add_node(node)
        serial.snapshot.add_node(node)
    wishing, share = WISHES[wish]
    equal = wishing(a_pod().named(app="web").requesting(cpu="300m", memory="200Mi")).pod
    other = a_pod().named(app=random.choice(("web", "db"))).requesting(cpu="500m", memory="1Gi").pod
    for pod in (equal, other):
        pod.spec.scheduler_name = profile.scheduler_name
    there: list[str] = []
    placed = 0
    for number in range(PODS):
        what, uid = random.random(), f"u{number}"
        if there and what < 0.1:
            gone = there.pop(random.randrange(len(there)))
            memoised.scheduler.occupancy.remove(gone)
            serial.snapshot.unbind(gone)
        pod = other if what > 0.97 else equal
        expected = serial.place(uid, pod)
        assert memoised.place(uid, pod) == expected, f"pod {number}"
        if not expected:
            continue
        there.append(uid)
        placed += 1
        decision = memoised.scheduler.decisions.of(uid)
        assert decision is not None
        if len(serial.best) > 1:
            # Of one alone the total means nothing.
            assert decision.best == serial.best, f"pod {number}"
    assert sum(followed) >= share * placed


def test_where_one_node_alone_is_feasible_pods_follow_each_other_until_there_is_another(followed: list[bool]) -> None:
    profile = default_profile(IN_TREE)
    memoised = Memoised(profile)
    for number in range(12):
        cpu = "8" if number < 2 else "100m"
        memoised.snapshot.add_node(a_node(f"n{number}").offering(cpu=cpu, memory="8Gi", pods="99").node)
    pods = [a_pod().requesting(cpu=cpu).pod for cpu in ("8", "500m")]
    for pod in pods:
        pod.spec.scheduler_name = profile.scheduler_name
    filling = memoised.place("filling", pods[0])
    other = "n1" if filling == "n0" else "n0"
    assert [memoised.place(f"u{n}", pods[1]) for n in range(8)] == [other] * 8
    assert followed[-7:] == [True] * 7
    memoised.scheduler.occupancy.remove("filling")
    assert [memoised.place(f"v{n}", pods[1]) for n in range(8)] == [filling] * 8


def test_a_run_ends_where_a_node_change_moves_the_bounds_of_a_score_for_all() -> None:
    """The only feasible nodes go, and others come that score as these did not: all alike, but by other bounds."""
    shunned = {6, 7}

    def node(number: int, cordoned: bool) -> Node:
        built = a_node(f"n{number}")
        if number in shunned:
            built = built.with_taint("meh", effect="PreferNoSchedule")
        return (built.cordoned() if cordoned else built).node

    case = Case()
    for number in range(12):
        case.snapshot.add_node(node(number, number >= 2))
    template = case.templates.intern(a_pod().requesting(cpu="100m").pod)
    for _ in range(4):
        case.engine.evaluate(template)
    for number in range(2):
        case.snapshot.update_node(node(number, True))
    for number in shunned:
        case.snapshot.update_node(node(number, False))
    found, fresh = case.engine.evaluate(template), Engine(case.snapshot, profile()).evaluate(template)
    assert fresh.feasible.nonzero()[0].tolist() == sorted(shunned)
    assert found.total[found.feasible].tolist() == fresh.total[fresh.feasible].tolist()
