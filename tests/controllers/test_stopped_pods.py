"""Pods that their nodes stop when cut off: removed once that must have happened, never before, and not if the node speaks."""

from __future__ import annotations

import pytest

from rayched.api.agents import AGENT_ANNOTATION, INCARNATION_ANNOTATION, PROCESSES
from rayched.api.disconnection import STOP_AFTER_ANNOTATION, fence_condition, has_stopped_after
from rayched.api.kinds import NODE
from rayched.controllers.node_settings import NodeSettings
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Object
from tests.controllers.memory_world import KEYS, MemoryWorld
from tests.planted_bugs import planted

PERIOD = 5
FAST = NodeSettings(node_monitor_period=PERIOD, node_monitor_grace_period=20, node_eviction_rate=10)
STOPPED = has_stopped_after(60.0)


INCARNATION = 41


def a_world(*, annotated: bool = True, armed_under: int | None = INCARNATION) -> MemoryWorld:
    """Four nodes that run processes; a pod on n0 that tolerates no loss and has a second to end. The agent of that incarnation
    says that its fence is armed; 0: that it is not; None: nothing of it."""
    world = MemoryWorld(FAST)
    for number in range(4):
        world.add_node(f"n{number}")
        node = world.node(f"n{number}")
        node.metadata.annotations[AGENT_ANNOTATION] = PROCESSES
        node.metadata.annotations[INCARNATION_ANNOTATION] = str(INCARNATION)
        world.put(KEYS.object_key(NODE, "", f"n{number}"), Object(node=node))
    world.add_pod("web", "n0", grace=1)
    pod = world.pod("web")
    assert pod is not None
    if annotated:
        pod.metadata.annotations[STOP_AFTER_ANNOTATION] = "60s"
    if armed_under is not None:
        pod.status.conditions.append(fence_condition(armed_under))
    world.put(world.pod_key("web"), Object(pod=pod))
    return world


def live(world: MemoryWorld, seconds: int, silent: set[str]) -> None:
    for _ in range(seconds):
        world.speak(name for name in world.heartbeats if name not in silent)
        world.pass_second()


def ending(world: MemoryWorld) -> Pod | None:
    pod = world.pod("web")
    assert pod is None or pod.metadata.HasField("deletion_timestamp")
    return pod


def gone_after(world: MemoryWorld, silent: set[str], most: int = 300) -> int:
    """Seconds since the node spoke last."""
    for _ in range(most):
        live(world, 1, silent)
        if world.pod("web") is None:
            return world.now - world.last_spoke["n0"]
    raise AssertionError("it stays")


@pytest.mark.row("N73")
def test_it_is_removed_once_its_node_must_have_stopped_it_and_not_before() -> None:
    world = a_world()
    live(world, 10, set())
    found = gone_after(world, {"n0"})
    # The leader looks every few seconds, and sees a heartbeat that much later.
    assert STOPPED <= found <= STOPPED + 3 * PERIOD


@pytest.mark.row("N73")
@pytest.mark.parametrize("armed_under", [None, 0, INCARNATION - 1])
def test_without_the_word_of_the_nodes_agent_that_something_will_stop_it_it_stays(armed_under: int | None) -> None:
    """An older agent says nothing, a shim that keeps no fence is not called armed, and another agent had another shim."""
    world = a_world(armed_under=armed_under)
    live(world, 10, set())
    live(world, 1000, {"n0"})
    assert ending(world) is not None
    with planted("fences are taken for granted"):
        gone_after(a_world(armed_under=armed_under), {"n0"})


def test_a_word_that_comes_late_counts() -> None:
    world = a_world(armed_under=0)
    live(world, 10, set())
    live(world, 300, {"n0"})
    pod = ending(world)
    assert pod is not None
    del pod.status.conditions[:]
    pod.status.conditions.append(fence_condition(INCARNATION))
    world.put(world.pod_key("web"), Object(pod=pod))
    live(world, 2, {"n0"})
    assert world.pod("web") is None


def test_without_the_annotation_it_stays_however_long_its_node_is_silent() -> None:
    world = a_world(annotated=False)
    live(world, 1000, {"n0"})
    assert ending(world) is not None


def test_a_heartbeat_that_comes_between_decision_and_write_keeps_it() -> None:
    """The same happens twice; at the very second at which it is removed, the second time its node speaks first."""
    first, second = a_world(), a_world()
    gone_after(first, {"n0"})

    def speaks() -> None:
        if second.now == first.now:
            second.speak(["n0"])

    while second.now < first.now + 2:
        second.speak(["n1", "n2", "n3"])
        second.pass_second(speaks)
    assert first.pod("web") is None and ending(second) is not None


def test_a_new_leader_that_saw_nothing_counts_anew() -> None:
    world = a_world()
    live(world, 50, {"n0"})
    assert ending(world) is not None
    world.change_leader()
    began = world.now
    gone_after(world, {"n0"})
    assert world.now - began >= STOPPED


def test_one_that_nobody_deleted_stays() -> None:
    """Its node is out of the evictions' reach: it tolerates the loss for ever."""
    world = a_world()
    pod = world.pod("web")
    assert pod is not None
    pod.spec.tolerations.add(operator="Exists")
    world.put(world.pod_key("web"), Object(pod=pod))
    live(world, 300, {"n0"})
    pod = world.pod("web")
    assert pod is not None and not pod.metadata.HasField("deletion_timestamp")


def test_the_margin_is_what_it_waits_for() -> None:
    with planted("fences have no margin"):
        assert gone_after(a_world(), {"n0"}) < 60
