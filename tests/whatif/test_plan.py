"""Plans on a copy of a cluster: the decisions of a living scheduler, ties included, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest

from rayched.api.names import ZONE_LABEL
from rayched.api.resources import accounted_requests
from rayched.api.termination import FINAL_PHASES
from rayched.configuration.profile_building import default_profile
from rayched.core.groups.planning import planner_of
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.scheduler import Draws, PodToSchedule, Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Node, Pod
from rayched.whatif.cluster import Basis, Cluster
from rayched.whatif.plan import Placement, PlannedPreemption

SEED = 11


def profiles() -> dict[str, Profile]:
    profile = default_profile(IN_TREE)
    return {profile.scheduler_name: profile}


def node(name: str, cpu: str = "4", **labels: str) -> Node:
    made = Node()
    made.metadata.name = name
    made.metadata.labels["kubernetes.io/hostname"] = name
    for key, value in labels.items():
        made.metadata.labels[key] = value
    for resource, amount in (("cpu", cpu), ("memory", "8Gi"), ("pods", "20")):
        made.status.allocatable[resource].string = amount
    return made


def pod(name: str, cpu: str = "1", node_name: str = "", priority: int = 0) -> Pod:
    made = Pod()
    made.metadata.namespace, made.metadata.name = "default", name
    made.spec.scheduler_name, made.spec.node_name, made.spec.priority = "default-scheduler", node_name, priority
    container = made.spec.containers.add(name="main", image="registry.example/app:1")
    container.resources.requests["cpu"].string = cpu
    container.resources.requests["memory"].string = "64Mi"
    return made


class Living:
    """A scheduler that has a past: nodes came and went, pods were placed and left."""

    def __init__(self, seed: int) -> None:
        self.snapshot, self._templates = Snapshot(), TemplateTable()
        self.scheduler = Scheduler(self.snapshot, profiles(), SEED)
        self.pods: dict[str, Pod] = {}
        random = Random(seed)
        for number in range(14):
            self.snapshot.add_node(node(f"node-{number:02}"))
        for name in random.sample(self.snapshot.node_names(), 4):
            self.snapshot.remove_node(name)
        self.snapshot.add_node(node("late"))
        for number in range(9):
            self.place(pod(f"old-{number}", random.choice(("1", "500m"))))
        for name in random.sample(sorted(self.pods), 3):
            self.scheduler.occupancy.remove(name)
            del self.pods[name]

    def place(self, new: Pod) -> str:
        uid = f"{new.metadata.namespace}/{new.metadata.name}"
        found = self.scheduler.schedule(PodToSchedule(uid, uid, self._templates.intern(new), new), 0, 0.0)
        if not isinstance(found, Attempt):
            return ""
        bound = Pod()
        bound.CopyFrom(new)
        bound.spec.node_name = found.node_name
        self.pods[uid] = bound
        assert self.scheduler.begin_binding(found, uid) is None
        self.scheduler.bound(found)
        self.scheduler.occupancy.observe(uid, found.template, found.node_name)
        return found.node_name

    def copy(self) -> Cluster:
        nodes = [found for name in sorted(self.snapshot.node_names()) if (found := self.snapshot.node(name)) is not None]
        rows = tuple(self.snapshot.names[: self.snapshot.n_rows])
        return Cluster([*self.pods.values(), *nodes], profiles(), Basis(self.scheduler.draws(), rows))


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_decides_as_the_living_scheduler_then_does(seed: int) -> None:
    living = Living(seed)
    new = [pod(f"new-{number}", "700m") for number in range(60)]
    plan = planner_of(living.copy()).plan(new)
    really = {f"default/{one.metadata.name}": living.place(one) for one in new}
    assert {placement.pod: placement.node_name for placement in plan.placements} == {k: v for k, v in really.items() if v}
    assert [one.pod for one in plan.unplaced] == [name for name, place in really.items() if not place]
    assert plan.placements and plan.unplaced
    assert all("Insufficient cpu" in one.reason for one in plan.unplaced)


def test_the_living_scheduler_does_not_notice() -> None:
    living = Living(1)
    draws, requested = living.scheduler.draws(), living.snapshot.requested.copy()
    planner_of(living.copy()).plan([pod(f"new-{number}") for number in range(20)])
    assert living.scheduler.draws() == draws
    assert (living.snapshot.requested == requested).all()


def test_the_important_come_first_and_then_those_named_first() -> None:
    cluster = Cluster([node("small", cpu="2")], profiles())
    plan = planner_of(cluster).plan([pod("a"), pod("b", priority=5), pod("c", priority=5)])
    assert plan.placements == (Placement("default/b", "small"), Placement("default/c", "small"))
    assert [one.pod for one in plan.unplaced] == ["default/a"]


def test_whoever_finds_no_node_is_tried_again_after_another_was_placed() -> None:
    follower = pod("follower")
    term = follower.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add()
    term.topology_key = "kubernetes.io/hostname"
    term.label_selector.match_labels["app"] = "db"
    database = pod("db")
    database.metadata.labels["app"] = "db"
    cluster = Cluster([node("one"), node("other")], profiles())
    plan = planner_of(cluster).plan([follower, database])
    assert [one.pod for one in plan.placements] == ["default/db", "default/follower"]
    assert plan.placements[0].node_name == plan.placements[1].node_name


def test_pods_that_wait_already_count_and_pods_that_are_over_do_not() -> None:
    over = pod("over", cpu="4", node_name="one")
    over.status.phase = "Succeeded"
    cluster = Cluster([node("one"), over, pod("waits", cpu="3"), pod("there", node_name="one")], profiles())
    plan = planner_of(cluster).plan([pod("new", cpu="1")])
    assert plan.placements == (Placement("default/waits", "one"),)
    assert [one.pod for one in plan.unplaced] == ["default/new"]


def test_reasons_say_what_holds_a_pod_that_no_scheduler_may_try() -> None:
    gated, foreign = pod("gated"), pod("foreign")
    gated.spec.scheduling_gates.add(name="example.com/wait")
    foreign.spec.scheduler_name = "other"
    plan = planner_of(Cluster([node("one")], profiles())).plan([gated, foreign])
    assert {one.pod: one.reason for one in plan.unplaced} == {
        "default/gated": "waiting for scheduling gates: [example.com/wait]",
        "default/foreign": 'waits for the scheduler "other", which is not served here; served: default-scheduler',
    }
    assert plan.is_empty


def test_a_cordoned_node_takes_nobody() -> None:
    cluster = Cluster([node("one"), node("other")], profiles())
    cluster.cordon("one")
    plan = planner_of(cluster).plan([pod("a"), pod("b")])
    assert {one.node_name for one in plan.placements} == {"other"}
    with pytest.raises(KeyError):
        cluster.cordon("nowhere")


def test_rows_without_a_node_stay_without_one() -> None:
    cluster = Cluster([node("b"), node("a"), node("new")], profiles(), Basis(Draws(), ("a", "", "gone", "b")))
    assert cluster.snapshot.rows_by_name == {"a": 0, "b": 3, "new": 4}
    assert cluster.snapshot.n_nodes == 3


def test_a_preemptor_takes_the_place_of_those_below_it() -> None:
    there = [pod("low", cpu="3", node_name="one"), pod("high", cpu="3", node_name="other", priority=9)]
    cluster = Cluster([node("one"), node("other"), *there], profiles())
    plan = planner_of(cluster).plan([pod("new", cpu="2", priority=5)])
    assert plan.preemptions == (PlannedPreemption("default/new", "one", ("default/low",)),)
    assert plan.placements == (Placement("default/new", "one"),)
    assert plan.unplaced == ()


def requested(pods: Iterable[Pod]) -> dict[str, dict[str, int]]:
    """By node, of these pods, added up one by one."""
    found: dict[str, Counter[str]] = {}
    for one in pods:
        if one.spec.node_name and one.status.phase not in FINAL_PHASES:
            found.setdefault(one.spec.node_name, Counter()).update({**accounted_requests(one), "pods": 1})
    return {name: dict(amounts) for name, amounts in found.items()}


@pytest.mark.parametrize("seed", range(20))
def test_nodes_that_change_are_told_as_they_were_and_as_they_would_be(seed: int) -> None:
    random = Random(seed)
    nodes = [node(f"node-{number}", cpu=str(random.randint(1, 4)), **{ZONE_LABEL: f"zone-{number % 2}"}) for number in range(6)]
    there = [
        pod(f"there-{number}", f"{random.randint(1, 4) * 100}m", f"node-{number % 4}", random.randint(0, 3))
        for number in range(9)
    ]
    waiting = [pod(f"waits-{number}", f"{random.randint(1, 8) * 200}m", priority=random.randint(0, 5)) for number in range(6)]
    cluster = Cluster([*nodes, *there], profiles())
    planner, before = planner_of(cluster), requested(cluster.bound.values())
    new = node("new", cpu="1")
    new.status.allocatable["example.com/gpu"].string = "2"
    cluster.add_node(new)
    drained = random.sample([one.metadata.name for one in nodes], random.randint(0, 2))
    for name in drained:
        cluster.cordon(name)
    for name in drained:
        planner.drain(name)
    # The copy has not heard of it yet.
    waiting[0].spec.containers[0].resources.requests["example.com/gpu"].string = "1"
    told = {one.node_name: one for one in planner.plan(waiting).nodes}
    after = requested(cluster.bound.values())
    changed = {name for name in before | after if before.get(name, {}) != after.get(name, {})}
    assert set(told) == changed | {"new"} | set(drained)
    for name, one in told.items():
        assert one.requested_before == before.get(name, {}) and one.requested == after.get(name, {})
        assert (one.is_new, one.unschedulable) == (name == "new", name in drained)
        assert one.zone == cluster.node(name).metadata.labels[ZONE_LABEL] if name != "new" else one.zone == ""
        gpus = {"example.com/gpu": 2} if name == "new" else {}
        assert one.allocatable == {"cpu": one.allocatable["cpu"], "memory": 8 << 30, "pods": 20, **gpus}
    assert list(told) == sorted(told)


def test_a_plan_that_changes_nothing_tells_of_no_node() -> None:
    cluster = Cluster([node("one"), pod("there", node_name="one")], profiles())
    assert planner_of(cluster).plan([pod("large", cpu="9")]).nodes == ()
