"""What becomes of a ReplicaSet's pods: replaced, adopted, released, scaled down in order, and its status."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rayched.api.kinds import POD, REPLICA_SET
from rayched.controllers.workloads.owned_pods import OwnedPod, PodSet, facts_of_pod
from rayched.controllers.workloads.replica_sets import AT_ONCE_MAX, first_to_go, status_of, turn_of
from rayched.store.entries import entry_of
from rayched.store.list_watch_effects import ListedAll
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PriorityClass
from tests.controllers.workload_world import KEYS, START, WorkloadWorld, a_replica_set, as_entry, is_active

NOW = START


def a_pod(name: str, change: Callable[[Pod], None] = lambda pod: None) -> OwnedPod:
    pod = Pod(metadata={"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}})
    pod.metadata.creation_timestamp.seconds = int(NOW) - 1000
    pod.spec.node_name = f"node-of-{name}"
    pod.status.phase = "Running"
    pod.status.conditions.add(type="Ready", status="True").last_transition_time.seconds = int(NOW) - 900
    change(pod)
    return facts_of_pod(as_entry(pod, 1), pod)


def not_ready(pod: Pod) -> None:
    pod.status.conditions[0].status = "False"


def ready_for(seconds: int) -> Callable[[Pod], None]:
    def change(pod: Pod) -> None:
        pod.status.conditions[0].last_transition_time.seconds = int(NOW) - seconds

    return change


def restarted(times: int) -> Callable[[Pod], None]:
    def change(pod: Pod) -> None:
        pod.status.container_statuses.add(name="main", restart_count=times)

    return change


def cost(text: str) -> Callable[[Pod], None]:
    return lambda pod: pod.metadata.annotations.update({"controller.kubernetes.io/pod-deletion-cost": text})


def unbound(pod: Pod) -> None:
    pod.spec.node_name = ""


def made_just_now(pod: Pod) -> None:
    pod.metadata.creation_timestamp.seconds = int(NOW) - 3


def both(one: Callable[[Pod], None], other: Callable[[Pod], None]) -> Callable[[Pod], None]:
    def change(pod: Pod) -> None:
        one(pod)
        other(pod)

    return change


ORDERS: dict[str, tuple[OwnedPod, OwnedPod]] = {
    "without a node": (
        a_pod("b", both(unbound, cost("100"))),
        a_pod("a", not_ready),
    ),
    "pending": (a_pod("b", lambda pod: setattr(pod.status, "phase", "Pending")), a_pod("a", not_ready)),
    "unknown before running": (a_pod("b", lambda pod: setattr(pod.status, "phase", "Unknown")), a_pod("a")),
    "not ready, whatever it costs": (a_pod("b", both(not_ready, cost("9"))), a_pod("a")),
    "lower cost": (a_pod("b", cost("-5")), a_pod("a")),
    "a cost that is none": (a_pod("a", cost("cheap")), a_pod("b", cost("1"))),
    "ready for less long": (a_pod("b", ready_for(60)), a_pod("a", ready_for(900))),
    "of one magnitude the uid decides": (a_pod("a", ready_for(900)), a_pod("b", ready_for(800))),
    "restarted more often": (a_pod("b", restarted(3)), a_pod("a", restarted(1))),
    "younger": (
        a_pod("b", both(not_ready, made_just_now)),
        a_pod("a", not_ready),
    ),
}


@pytest.mark.parametrize("case", ORDERS)
@pytest.mark.row("W2")
def test_the_order_of_a_scale_down(case: str) -> None:
    first, last = ORDERS[case]
    assert first_to_go([last, first], 1, NOW) == (first,)
    assert first_to_go([first, last], 2, NOW) == (first, last)


def test_a_crowded_node_is_thinned_first() -> None:
    def on(node: str) -> Callable[[Pod], None]:
        return lambda pod: setattr(pod.spec, "node_name", node)

    alone, one, other = a_pod("a", on("quiet")), a_pod("b", on("crowded")), a_pod("c", on("crowded"))
    assert first_to_go([alone, one, other], 2, NOW) == (one, other)


def test_a_turn_is_bounded() -> None:
    assert turn_of(a_replica_set(40_000), PodSet(), NOW).create == AT_ONCE_MAX
    pods = PodSet()
    for number in range(AT_ONCE_MAX + 10):
        pods.put(a_pod(f"p{number}"))
    assert len(turn_of(a_replica_set(0), pods, NOW).delete) == AT_ONCE_MAX


def test_available_is_who_has_been_ready_for_long_enough() -> None:
    replica_set, pods = a_replica_set(3), PodSet()
    replica_set.spec.min_ready_seconds = 100
    for pod in (a_pod("a", ready_for(100)), a_pod("b", ready_for(40)), a_pod("c", not_ready)):
        pods.put(pod)
    judged = status_of(replica_set, pods, NOW)
    assert (judged.status.replicas, judged.status.ready_replicas, judged.status.available_replicas) == (3, 2, 1)
    assert judged.recheck_at == NOW + 60
    later = status_of(replica_set, pods, NOW + 60)
    assert (later.status.available_replicas, later.recheck_at) == (2, None)


@pytest.mark.row("W1")
def test_replicas_are_made_counted_and_replaced() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(3))
    world.settle()
    pods = world.pods()
    assert len(pods) == 3 == len({pod.metadata.name for pod in pods})
    owner = pods[0].metadata.owner_references[0]
    assert (owner.kind, owner.name, owner.controller, owner.block_owner_deletion) == ("ReplicaSet", "web", True, True)
    assert pods[0].spec.tolerations and pods[0].status.qos_class == "BestEffort"
    for pod in pods:
        world.run(pod)
    world.settle()
    status = world.replica_set().status
    assert (status.replicas, status.ready_replicas, status.available_replicas, status.observed_generation) == (3, 3, 3, 1)
    # Evicted: it still runs, and its replacement is there.
    world.ask_to_end(pods[0])
    # Lost with its node.
    world.delete(POD, pods[1].metadata.name)
    # Failed: it stays as it is.
    world.end(pods[2], "Failed")
    world.settle()
    assert len(world.pods()) == 5
    assert len(world.active()) == 3
    assert world.replica_set().status.ready_replicas == 0


def test_scaling_down_deletes_and_up_creates() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(5))
    world.settle()
    kept = world.pods()[:2]
    for pod in kept:
        world.run(pod)
    world.edit(REPLICA_SET, "web", lambda found: setattr(found.spec, "replicas", 2))
    world.settle()
    assert {pod.metadata.name for pod in world.pods()} == {pod.metadata.name for pod in kept}
    assert world.replica_set().status.observed_generation == 2
    world.edit(REPLICA_SET, "web", lambda found: setattr(found.spec, "replicas", 1))
    world.settle()
    # One is asked to stop, and removed by its agent.
    assert len(world.pods()) == 2
    assert len(world.active()) == 1


@pytest.mark.row("W3")
def test_pods_that_nobody_controls_are_adopted_and_others_released() -> None:
    world = WorkloadWorld()
    for name, label in (("mine", "web"), ("other", "db")):
        pod = Pod(metadata={"name": name, "namespace": "default", "labels": {"app": label}})
        pod.spec.containers.add(name="main")
        world.create(pod)
    world.create(a_replica_set(2))
    world.settle()
    pods = {pod.metadata.name: pod for pod in world.pods()}
    assert len(pods) == 3
    assert pods["mine"].metadata.owner_references[0].name == "web"
    assert not pods["other"].metadata.owner_references
    world.change_pod(pods["mine"], lambda pod: pod.metadata.labels.update({"app": "debug"}))
    world.settle()
    pods = {pod.metadata.name: pod for pod in world.pods()}
    assert not pods["mine"].metadata.owner_references
    assert len(pods) == 4


def test_a_pod_of_another_controller_is_left_alone() -> None:
    world = WorkloadWorld()
    pod = Pod(metadata={"name": "theirs", "namespace": "default", "labels": {"app": "web"}})
    pod.metadata.owner_references.add(api_version="apps/v1", kind="StatefulSet", name="db", uid="u", controller=True)
    pod.spec.containers.add(name="main")
    world.create(pod)
    world.create(a_replica_set(1))
    world.settle()
    assert len(world.pods()) == 2
    assert world.replica_set().status.replicas == 1


@pytest.mark.row("W4")
def test_what_a_deleted_replica_set_made_goes_with_it() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(3))
    world.settle()
    running = world.pods()[0]
    world.run(running)
    world.delete(REPLICA_SET, "web")
    # The leader dies before it has seen it.
    world.new_leader()
    world.settle()
    (left,) = world.pods()
    assert left.metadata.name == running.metadata.name and not is_active(left)


def test_a_reference_to_an_owner_that_never_was_is_no_reason_to_go() -> None:
    world = WorkloadWorld()
    pod = Pod(metadata={"name": "by-hand", "namespace": "default"})
    pod.metadata.owner_references.add(api_version="apps/v1", kind="ReplicaSet", name="web", uid="u", controller=True)
    pod.spec.containers.add(name="main")
    world.create(pod)
    world.settle()
    assert len(world.pods()) == 1


def test_a_replica_set_without_a_template_is_an_object_alone() -> None:
    world = WorkloadWorld()
    bare = a_replica_set(3)
    bare.spec.ClearField("template")
    world.create(bare)
    pod = Pod(metadata={"name": "by-hand", "namespace": "default", "labels": {"app": "web"}})
    pod.spec.containers.add(name="main")
    world.create(pod)
    world.settle()
    assert len(world.pods()) == 1
    assert not world.pods()[0].metadata.owner_references


def test_a_template_that_admission_refuses_is_told_of_until_its_class_is_there() -> None:
    world = WorkloadWorld()
    wanting = a_replica_set(2)
    wanting.spec.template.spec.priority_class_name = "high"
    world.create(wanting)
    world.settle()
    (condition,) = world.replica_set().status.conditions
    assert (condition.type, condition.status, condition.reason) == ("ReplicaFailure", "True", "FailedCreate")
    assert "high" in condition.message
    assert not world.pods()
    world.create(PriorityClass(metadata={"name": "high"}, value=7))
    world.settle()
    assert [pod.spec.priority for pod in world.pods()] == [7, 7]
    assert not world.replica_set().status.conditions


def test_large_numbers_come_in_bounded_turns() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(1_200))
    sizes = []
    for _ in range(8):
        world.see()
        plans = world.turn()
        sizes.append(sum(len(plan) for plan in plans))
        world.now += 1
    assert max(sizes) <= AT_ONCE_MAX + 1
    assert len(world.active()) == 1_200


def test_nothing_new_is_made_while_there_is_no_room_for_it() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(2))
    world.see()
    (plan,) = world.leader.decide(world.epoch, world.now, world.now, may_create=False)
    assert not plan.creations and len(plan.last) == 1
    world.now += 1
    world.settle()
    assert len(world.pods()) == 2


def test_what_was_waited_for_is_forgotten_where_etcd_was_set_back() -> None:
    world = WorkloadWorld()
    world.create(a_replica_set(1))
    world.see()
    world.turn()
    before = [entry_of(pair) for pair in world.etcd.under(KEYS.cluster_prefix) if b"/pods/" not in pair.key]
    world.leader.deliver(ListedAll(tuple(before), world.leader.view.revision - 1))
    (plan,) = world.leader.decide(world.leader.view.revision, world.now + 1, world.now + 1)
    assert len(plan.creations) == 1
