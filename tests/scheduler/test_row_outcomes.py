"""What is kept of rows from one preemption to the next is what a scheduler that knows nothing yet finds out now."""

from __future__ import annotations

from random import Random

import pytest

from rayched.api import kinds
from rayched.configuration.profile_building import default_profile
from rayched.engine.engine import Engine
from rayched.framework.plugin import PostFilterResult
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.status import Status
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler import row_outcomes
from rayched.scheduler.candidates import PreemptionCandidate
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.occupancy import Occupancy
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.scheduler.preemption import Evaluator, Preemptor
from rayched.scheduler.selection import SeededTieBreaker
from rayched.snapshot.pod_facts import PodFacts
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.core.builders import a_node, a_pod

STEPS = 90
ALL = DefaultPreemptionArgs(min_candidate_nodes_percentage=100)
APPS = ("web", "db")
PREEMPTORS = ("vip-1", "vip-2")
"""Of equal templates; each may be nominated somewhere itself."""


def a_preemptor(random: Random) -> Pod:
    pod = a_pod("vip", cpu=str(random.randint(2, 4)), priority=random.choice((5, 10)), labels={"app": "vip"})
    kind = random.random()
    if kind < 0.3:
        term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
        term.label_selector.match_labels["app"] = "db"
    elif kind < 0.7:
        constraint = pod.spec.topology_spread_constraints.add(max_skew=1, topology_key="zone")
        constraint.when_unsatisfiable = "DoNotSchedule"
        constraint.label_selector.match_labels["app"] = "web"
    elif kind < 0.85:
        pod.spec.containers[0].ports.add(container_port=80, host_port=80, protocol="TCP")
    return pod


class World:
    """A cluster that changes at random."""

    def __init__(self, seed: int, *, budgets: bool = True, nodes: int = 6) -> None:
        self.random = Random(seed)
        self.budgets = budgets
        self.snapshot, self.templates = Snapshot(), TemplateTable()
        self.occupancy, self.nominations = Occupancy(self.snapshot), Nominations(self.snapshot)
        self.profile = default_profile(IN_TREE)
        self.engine = Engine(self.snapshot, self.profile)
        self.nodes = [f"n{number}" for number in range(nodes)]
        for name in self.nodes:
            self.put_node(name)
        self.number = 0
        for _ in range(3 * nodes):
            self.bind()

    def put_node(self, name: str) -> None:
        node = a_node(name, cpu=str(self.random.choice((4, 6))), labels={"zone": self.random.choice("ab")})
        if not self.budgets and self.random.random() < 0.2:
            node.spec.taints.add(key=f"key-{self.random.randrange(9)}", value="", effect="NoSchedule")
        node.spec.unschedulable = self.random.random() < 0.1
        self.snapshot.add_node(node)

    def bind(self) -> None:
        random = self.random
        self.number += 1
        pod = a_pod("p", cpu=str(random.randint(1, 3)), priority=random.randint(0, 9), labels={"app": random.choice(APPS)})
        if random.random() < 0.2:
            pod.spec.containers[0].ports.add(container_port=80, host_port=80, protocol="TCP")
        uid = f"p{self.number}"
        facts = PodFacts(f"default/{uid}", float(self.number))
        self.occupancy.observe(uid, self.templates.intern(pod), random.choice(self.nodes), facts=facts)

    def change(self) -> None:
        random, snapshot = self.random, self.snapshot
        bound = [uid for name in self.nodes for uid in snapshot.pods_on(name)]
        uid = random.choice(bound)
        known = snapshot.known(uid)
        match random.randrange(10):
            case 0 | 1:
                self.bind()
            case 2 if len(bound) > 8:
                self.occupancy.remove(uid)
            case 3:
                self.occupancy.observe(uid, known.template, known.node_name, terminating=True, facts=known.facts)
            case 4:
                facts = PodFacts(known.facts.name, float(random.randrange(1000)) + random.random())
                self.occupancy.observe(uid, known.template, known.node_name, terminating=known.terminating, facts=facts)
            case 5:
                other = a_pod("hoping", cpu="2", priority=random.choice((4, 7, 12)))
                node = random.choice(["", *self.nodes])
                self.nominations.nominate(random.choice(("hoping", *PREEMPTORS)), self.templates.intern(other), node)
            case 6 | 7 | 8:
                name = random.choice(self.nodes)
                if random.random() < 0.3:
                    snapshot.remove_node(name)
                self.put_node(name)
            case _ if self.budgets:
                budget = PodDisruptionBudget()
                budget.spec.selector.match_labels["app"] = random.choice(APPS)
                budget.status.disruptions_allowed = random.randrange(3)
                gone = random.random() < 0.3
                snapshot.set_object(kinds.POD_DISRUPTION_BUDGET.name, "default", random.choice("xy"), None if gone else budget)

    def found(self, evaluator: Evaluator, pod: Pod, uid: str) -> tuple[dict[int, PreemptionCandidate], dict[int, Status]]:
        """All candidates and all refusals, by row."""
        template = self.templates.intern(pod)
        beside = self.nominations.beside(uid, template.priority)
        diagnosis = self.engine.diagnose(template, beside)
        preemptor = Preemptor(uid, template, diagnosis, 0, beside, 0.0, evaluator)
        candidates, _ = evaluator.candidates(preemptor, ALL)
        return {one.row: one for one in candidates}, evaluator.refusals(preemptor, ALL)

    def chosen(self, evaluator: Evaluator, pod: Pod, uid: str) -> tuple[PostFilterResult | None, Status]:
        """What comes of it."""
        template = self.templates.intern(pod)
        beside = self.nominations.beside(uid, template.priority)
        diagnosis = self.engine.diagnose(template, beside)
        return evaluator.preempt(Preemptor(uid, template, diagnosis, 7, beside, 0.0, evaluator), ALL)

    def evaluator(self, engine: Engine) -> Evaluator:
        return Evaluator(self.snapshot, engine, self.nominations, SeededTieBreaker(0), PotentialVictims(self.snapshot))


def test_a_node_that_makes_a_domain_counts_for_rows_that_stay_as_they_are() -> None:
    world = World(0)
    for name in world.nodes:
        world.snapshot.remove_node(name)
    for name, zone in (("left", "a"), ("right", "b")):
        world.snapshot.add_node(a_node(name, cpu="4", labels={"zone": zone}))
        for app, priority, cpu in (("web", 50, "1"), ("db", 0, "3")):
            pod = a_pod("p", cpu=cpu, priority=priority, labels={"app": app})
            world.occupancy.observe(
                f"{name}-{app}", world.templates.intern(pod), name, facts=PodFacts(f"default/{name}-{app}", 1.0)
            )
    pod = a_pod("vip", cpu="2", priority=10, labels={"app": "web"})
    constraint = pod.spec.topology_spread_constraints.add(max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule")
    constraint.label_selector.match_labels["app"] = "web"
    lasting = world.evaluator(world.engine)
    assert len(world.found(lasting, pod, "vip-1")[0]) == 2
    # A zone without any pod: with one more than it has now, the others would be too full.
    world.snapshot.add_node(a_node("small", cpu="1", labels={"zone": "c"}))
    assert world.found(lasting, pod, "vip-1")[0] == {}


@pytest.mark.parametrize("seed", range(3))
def test_outcomes_that_are_kept_are_those_that_would_be_found_now(seed: int) -> None:
    world = World(seed)
    lasting = world.evaluator(world.engine)
    pods = [a_preemptor(world.random) for _ in range(4)]
    some = 0
    for step in range(STEPS):
        world.change()
        pod = world.random.choice(pods)
        for uid in PREEMPTORS:
            kept = world.found(lasting, pod, uid)
            fresh = world.found(world.evaluator(Engine(world.snapshot, world.profile)), pod, uid)
            assert kept == fresh, f"seed {seed}, step {step}, {uid}"
            some += bool(kept[0])
    assert some > STEPS // 4


def alike(random: Random, cpu: str) -> Pod:
    """One of many templates that ask for the same room, where nobody selects pods."""
    pod = a_pod("vip", cpu=cpu, priority=10, labels={"app": f"app-{random.randrange(40)}"})
    for _ in range(random.randrange(3)):
        pod.spec.tolerations.add(key=f"key-{random.randrange(9)}", operator="Exists", effect="NoSchedule")
    return pod


@pytest.mark.parametrize("seed", range(4))
def test_rows_tried_in_one_go_are_told_as_one_by_one_and_kept_for_all_templates_that_ask_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(seed, budgets=False, nodes=14)
    lasting = world.evaluator(world.engine)
    chosen = 0
    for step in range(STEPS):
        world.change()
        pod = alike(world.random, world.random.choice("234"))
        uid = world.random.choice(PREEMPTORS)
        monkeypatch.setattr(row_outcomes, "FEW", 0)
        choice = world.chosen(lasting, pod, uid)
        in_short = next(reversed(lasting._outcomes._kept.values())).ranks.copy() if lasting._outcomes._kept else []
        kept = world.found(lasting, pod, uid)
        monkeypatch.setattr(row_outcomes, "FEW", 1_000)
        alone = world.evaluator(Engine(world.snapshot, world.profile))
        assert kept == world.found(alone, pod, uid), f"seed {seed}, step {step}, {uid}"
        for row, one in kept[0].items():
            assert in_short[row].tolist() == list(one.rank)
        assert choice == world.chosen(alone, pod, uid), f"seed {seed}, step {step}, {uid}"
        chosen += choice[0] is not None and bool(choice[0].victims)
    assert chosen > STEPS // 4
    # One for each amount.
    assert len(lasting._outcomes._kept) == 3


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_outcomes, "ROWS_KEPT_MAX", 60)
    monkeypatch.setattr(row_outcomes, "KINDS_MIN", 2)
    monkeypatch.setattr(row_outcomes, "BY_ROW_MAX", 3)
    world = World(1, budgets=False)
    evaluator = world.evaluator(world.engine)
    kept = evaluator._outcomes._kept
    for number in range(40):
        pod = a_pod("vip", cpu=f"{2_000 + 10 * number}m", priority=10)
        world.found(evaluator, pod, "vip-1")
        world.chosen(evaluator, pod, "vip-1")
        assert len(kept) <= 60 // 7
        assert all(len(one.by_row) <= 3 + len(world.nodes) for one in kept.values())
    world.found(evaluator, pod, "vip-1")
    fuller = next(reversed(kept.values()))
    assert len(fuller.by_row) > 3
    world.chosen(evaluator, pod, "vip-1")
    assert len(fuller.by_row) <= 3


@pytest.mark.parametrize("n_new", [1, 2, 70])
def test_nodes_that_come_are_tried_beside_those_that_are_known(n_new: int) -> None:
    world = World(2, budgets=False)
    evaluator, pod = world.evaluator(world.engine), a_pod("vip", cpu="3", priority=10)
    before, _ = world.found(evaluator, pod, "vip-1")
    for number in range(n_new):
        name = f"new-{number}"
        world.snapshot.add_node(a_node(name, cpu="4"))
        world.occupancy.observe(name, world.templates.intern(a_pod("low", cpu="4")), name, facts=PodFacts(f"default/{name}", 1.0))
    found = world.found(evaluator, pod, "vip-1")
    assert len(found[0]) == len(before) + n_new
    assert found == world.found(world.evaluator(Engine(world.snapshot, world.profile)), pod, "vip-1")
