"""Plans on a copy of a cluster: the decisions of a living scheduler, ties included, and nothing else."""

from __future__ import annotations

from random import Random

import pytest

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
