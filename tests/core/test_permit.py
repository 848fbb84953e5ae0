"""Pods that wait for a permission: they hold their room, hold up nobody, and give it back. As scripted histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayched.framework.cycle_state import CycleState
from rayched.framework.status import SUCCESS, Code, Status
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored
from tests.core.builders import a_node, a_pod
from tests.core.leading import a_replica, assumed, key_of, put_node, put_pod, reason_of
from tests.core.replica import Replica, default_profiles


class Doorman:
    """A Permit plugin that lets pods with a label wait."""

    name = "Doorman"

    def __init__(self) -> None:
        self.handle = None

    def use_permit_handle(self, handle):  # type: ignore[no-untyped-def]
        self.handle = handle

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return (Status(Code.WAIT), 10.0) if pod.metadata.labels.get("wait") else (SUCCESS, 0.0)


def with_doorman() -> tuple[Replica, Doorman]:
    doorman = Doorman()
    (profile,) = default_profiles().values()
    changed = replace(profile, permit=(doorman,))
    return a_replica("n1", profiles={changed.scheduler_name: changed}), doorman


@pytest.mark.row("F9", "K6.6", "K6.1")
def test_a_pod_that_waits_holds_its_room_and_holds_up_nobody() -> None:
    replica, doorman = with_doorman()
    put_pod(replica.store, a_pod("waits", cpu="3", labels={"wait": "yes"}))
    put_pod(replica.store, a_pod("small", cpu="1"))
    put_pod(replica.store, a_pod("large", cpu="2"))
    replica.settle()
    assert replica.bound() == {"small": "n1"}
    assert [pod.key for pod in replica.core.scheduler.waiting.waiting()] == ["default/waits"]
    assert doorman.handle is not None
    doorman.handle.allow("uid-waits", "Doorman")
    replica.settle()
    assert set(replica.bound()) == {"small", "waits"}


@pytest.mark.row("K6.6")
def test_a_wait_that_times_out_gives_its_room_back_and_names_the_plugin() -> None:
    replica, _ = with_doorman()
    put_pod(replica.store, a_pod("waits", cpu="3", labels={"wait": "yes"}))
    replica.settle()
    assert replica.turn_at == replica.clock.now + 10.0
    replica.clock.now += 10.0
    replica.settle()
    assert assumed(replica) == 0
    assert reason_of(replica, "waits")[1] == (
        "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Doorman."
    )
    pod = replica.queue.queue.find("default/waits")
    assert pod is not None and pod.rejectors == {"Doorman"}


@pytest.mark.parametrize("deleted", [False, True])
def test_room_that_an_attempt_held_and_gave_back_wakes_those_who_lacked_it(deleted: bool) -> None:
    """It never showed in the store, so no change there could wake them; the pod itself is not woken by its own room."""
    replica, _ = with_doorman()
    put_pod(replica.store, a_pod("waits", cpu="3", labels={"wait": "yes"}))
    replica.settle()
    put_pod(replica.store, a_pod("large", cpu="2"))
    replica.settle()
    assert replica.queue.queue.pending().unschedulable == 1
    if deleted:
        replica.store.delete(key_of("waits"))
    replica.clock.now += 10.0
    replica.settle()
    assert replica.bound() == {"large": "n1"}
    assert replica.queue.queue.pending().unschedulable == (0 if deleted else 1)


@pytest.mark.row("D12", "D13", "Q42")
def test_what_happened_since_its_cycle_began_is_replayed_to_a_pod_that_failed_and_nothing_earlier() -> None:
    for node_comes_during_the_attempt in (True, False):
        replica, _ = with_doorman()
        put_pod(replica.store, a_pod("waits", labels={"wait": "yes"}))
        if not node_comes_during_the_attempt:
            put_node(replica.store, a_node("n2", cpu="1"))
        replica.settle()
        if node_comes_during_the_attempt:
            put_node(replica.store, a_node("n2", cpu="1"))
            replica.settle()
        replica.clock.now += 10.0
        replica.settle()
        counts = replica.queue.queue.pending()
        woken = counts.backoff + counts.active + counts.in_flight
        assert (woken, counts.unschedulable) == ((1, 0) if node_comes_during_the_attempt else (0, 1))


def test_a_waiting_pod_that_is_deleted_gives_its_room_back() -> None:
    replica, doorman = with_doorman()
    put_pod(replica.store, a_pod("waits", labels={"wait": "yes"}))
    replica.settle()
    replica.store.delete(key_of("waits"))
    replica.settle()
    assert assumed(replica) == 0 and len(replica.core.scheduler.waiting) == 0
    assert doorman.handle is not None and not doorman.handle.allow("uid-waits", "Doorman")


def test_what_a_leader_writes_says_under_which_epoch_and_on_what_it_was_decided() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decided_at = replica.store.revision
    replica.settle()
    write = Stored.FromString(replica.store.now[key_of("web")].value).leader_write
    assert (write.op, write.epoch, write.decided_at_revision) == ("bind", replica.belief, decided_at)
    assert write.attempt.startswith("a-")
    pod = replica.store.pod(key_of("web"))
    assert pod is not None
    (condition,) = pod.status.conditions
    assert (condition.type, condition.status) == ("PodScheduled", "True")
