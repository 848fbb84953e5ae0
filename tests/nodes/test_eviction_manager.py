"""Passes of node-pressure eviction with given observations and a given clock: who is evicted when, and what holds meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.nodes.agent.eviction import manager
from rayched.nodes.agent.eviction.manager import EvictionManager, EvictionSettings, EvictionVerdict, Observations
from rayched.nodes.agent.eviction.ranking import ContainerUsage, DiskLayout, DiskUsage, PodUsage, eviction_message, ranked
from rayched.nodes.agent.eviction.signals import Signal, SignalObservation
from rayched.nodes.agent.eviction.thresholds import EvictionFlags, thresholds_of
from tests.planted_bugs import planted

GI, MI = 1 << 30, 1 << 20
LOW, DEFAULT, HIGH = -1, 0, 1

FIVE = (
    PodUsage("guaranteed-low", LOW, memory_request=GI, memory=900 * MI),
    PodUsage("burstable-below", DEFAULT, memory_request=100 * MI, memory=50 * MI),
    PodUsage("burstable-above", DEFAULT, memory_request=100 * MI, memory=400 * MI),
    PodUsage("best-effort-high", HIGH, memory=400 * MI),
    PodUsage("best-effort-low", LOW, memory=100 * MI),
)
BY_MEMORY = ["best-effort-low", "burstable-above", "best-effort-high", "guaranteed-low", "burstable-below"]


class World:
    """A node whose figures a test sets."""

    def __init__(self, flags: EvictionFlags, pods: Sequence[PodUsage] = FIVE, **settings: float | DiskLayout) -> None:
        thresholds = thresholds_of(flags, allocatable_enforced=False)
        self.manager = EvictionManager(EvictionSettings(thresholds, **settings))  # type: ignore[arg-type]
        self.pods = list(pods)
        self.now = 1000.0
        self.reclaimed: list[Signal] = []
        self.frees: Observations | None = None

    def sees(self, after: float = 1.0, **available: int) -> EvictionVerdict | None:
        """A pass; by the signal's name in the enumeration, of a capacity of 10 Gi."""
        self.now += after
        seen = {Signal[name.upper()]: SignalObservation(value, 10 * GI, self.now) for name, value in available.items()}
        return self.manager.look(self.now, seen, self.pods, self._reclaim)

    def _reclaim(self, signal: Signal) -> Observations | None:
        self.reclaimed.append(signal)
        return self.frees


def uids(pods: Iterable[PodUsage]) -> list[str]:
    return [pod.uid for pod in pods]


@pytest.mark.row("K10.6", "N80")
def test_soft_and_hard_thresholds_follow_kubelets_transcript() -> None:
    flags = EvictionFlags(hard="memory.available<1Gi", soft="memory.available<2Gi", soft_grace_period="memory.available=2m")
    world = World(flags, max_pod_grace=5)
    assert world.sees(memory=2 * GI) is None and not world.manager.pressures
    assert world.sees(60, memory=1500 * MI) is None and list(world.manager.pressures) == ["MemoryPressure"]
    verdict = world.sees(180, memory=1500 * MI)
    assert verdict is not None and (verdict.uid, verdict.grace) == ("best-effort-low", 5)
    assert world.sees(1200, memory=3 * GI) is None and not world.manager.pressures
    verdict = world.sees(60, memory=500 * MI)
    assert verdict is not None and (verdict.uid, verdict.grace) == ("best-effort-low", 0)
    assert world.sees(60, memory=2 * GI) is None and list(world.manager.pressures) == ["MemoryPressure"]
    assert world.sees(300, memory=2 * GI) is None and not world.manager.pressures


@pytest.mark.row("K10.11", "N81")
def test_a_minimum_is_reclaimed_before_eviction_ends() -> None:
    world = World(EvictionFlags(hard="memory.available<1Gi", minimum_reclaim="memory.available=500Mi"))
    assert world.sees(memory=500 * MI) is not None
    assert world.sees(memory=1200 * MI) is not None, "above the threshold, and not by the minimum"
    assert world.sees(memory=2 * GI) is None
    assert world.sees(memory=1200 * MI) is None, "the minimum counts only after the threshold was met"
    disk = World(EvictionFlags(hard="imagefs.available<1Gi", minimum_reclaim="imagefs.available=2Gi"))
    assert disk.sees(image_fs=GI - 1) is not None
    assert disk.sees(image_fs=3 * GI - 1) is not None
    assert disk.sees(image_fs=3 * GI) is None


@pytest.mark.row("N82")
def test_a_soft_threshold_is_reported_before_its_grace_is_over() -> None:
    world = World(EvictionFlags(hard="", soft="memory.available<2Gi", soft_grace_period="memory.available=2m"))
    assert world.sees(memory=GI) is None
    assert list(world.manager.pressures) == ["MemoryPressure"] and world.manager.acting_on is None


@pytest.mark.row("K10.6", "N83")
def test_going_up_and_down_within_the_grace_evicts_nobody_and_the_condition_stays() -> None:
    world = World(EvictionFlags(hard="", soft="memory.available<2Gi", soft_grace_period="memory.available=2m"))
    for _ in range(20):
        assert world.sees(60, memory=GI) is None
        assert world.sees(50, memory=3 * GI) is None
        assert list(world.manager.pressures) == ["MemoryPressure"]
    assert world.sees(249, memory=3 * GI) is None and list(world.manager.pressures) == ["MemoryPressure"]
    assert world.sees(1.1, memory=3 * GI) is None and not world.manager.pressures


@pytest.mark.row("K10.8", "N84")
def test_pods_are_ranked_by_overuse_then_priority_then_how_much() -> None:
    assert uids(ranked(FIVE, Signal.MEMORY)) == BY_MEMORY
    assert uids(ranked(reversed(FIVE), Signal.ALLOCATABLE_MEMORY)) == BY_MEMORY


@pytest.mark.row("K10.8", "N85")
def test_priority_counts_among_those_above_their_request_and_overuse_counts_before_it() -> None:
    pods = (
        PodUsage("high-above", HIGH, memory=200, memory_request=100),
        PodUsage("low-above-less", LOW, memory=110, memory_request=100),
        PodUsage("low-below", LOW, memory=99, memory_request=100),
    )
    assert uids(ranked(pods, Signal.MEMORY)) == ["low-above-less", "high-above", "low-below"]


@pytest.mark.row("K10.8", "N86")
def test_who_keeps_to_its_request_is_last_and_goes_by_priority() -> None:
    pods = (
        PodUsage("high", HIGH, memory=900, memory_request=1000),
        PodUsage("low", LOW, memory=10, memory_request=1000),
        PodUsage("above", HIGH, memory=1, memory_request=0),
    )
    assert uids(ranked(pods, Signal.MEMORY)) == ["above", "low", "high"]


@pytest.mark.row("K10.10", "N87")
@pytest.mark.parametrize(
    ("layout", "node_fs", "image_fs"),
    [
        (DiskLayout(), ["c", "b", "a"], ["c", "b", "a"]),
        (DiskLayout(images_apart=True, writable_with_images=True), ["b", "c", "a"], ["c", "a", "b"]),
        (DiskLayout(images_apart=True), ["c", "b", "a"], ["a", "b", "c"]),
    ],
)
def test_disk_ranks_by_what_lies_on_the_file_system(layout: DiskLayout, node_fs: list[str], image_fs: list[str]) -> None:
    pods = (
        PodUsage("a", disk=DiskUsage(volumes=10, logs=1, writable=30)),
        PodUsage("b", disk=DiskUsage(volumes=50, logs=5, writable=0)),
        PodUsage("c", disk=DiskUsage(volumes=40, logs=4, writable=60)),
    )
    assert uids(ranked(pods, Signal.NODE_FS, layout)) == node_fs
    assert uids(ranked(pods, Signal.IMAGE_FS, layout)) == image_fs


@pytest.mark.row("K10.9", "N88")
def test_inodes_and_processes_go_by_priority_then_by_how_many() -> None:
    pods = (
        PodUsage("high-many", HIGH, inodes=DiskUsage(writable=900), pids=900, disk_request=GI),
        PodUsage("low-few", LOW, inodes=DiskUsage(writable=1), pids=1),
        PodUsage("low-more", LOW, inodes=DiskUsage(logs=1, volumes=1), pids=2),
    )
    for signal in (Signal.NODE_FS_INODES, Signal.PID):
        assert uids(ranked(pods, signal)) == ["low-more", "low-few", "high-many"]


@pytest.mark.row("N89")
@pytest.mark.parametrize("signal", [Signal.MEMORY, Signal.NODE_FS, Signal.NODE_FS_INODES, Signal.PID])
def test_of_whom_nothing_is_known_goes_first(signal: Signal) -> None:
    known = PodUsage("known", LOW, memory=9, disk=DiskUsage(9), inodes=DiskUsage(9), pids=9)
    assert uids(ranked((known, PodUsage("unknown", HIGH)), signal)) == ["unknown", "known"]


@pytest.mark.row("N90")
def test_a_critical_pod_is_passed_over() -> None:
    world = World(EvictionFlags(hard="memory.available<1Gi"), [replace(pod, critical=pod.uid == BY_MEMORY[0]) for pod in FIVE])
    verdict = world.sees(memory=1)
    assert verdict is not None and verdict.uid == BY_MEMORY[1]
    world.pods = [replace(pod, critical=True) for pod in FIVE]
    assert world.sees(memory=1) is None and list(world.manager.pressures) == ["MemoryPressure"]


@pytest.mark.row("K10.7", "N92")
def test_the_node_reclaims_first_and_evicts_nobody_where_that_is_enough() -> None:
    world = World(EvictionFlags(hard="nodefs.available<1Gi"))
    world.frees = {Signal.NODE_FS: SignalObservation(2 * GI, 10 * GI, 9999.0)}
    assert world.sees(node_fs=MI) is None and world.reclaimed == [Signal.NODE_FS]
    assert world.manager.acting_on is not None and list(world.manager.pressures) == ["DiskPressure"]
    world.frees = {Signal.NODE_FS: SignalObservation(GI - 1, 10 * GI, 9999.0)}
    assert world.sees(node_fs=MI) is not None, "it did not help enough"


@pytest.mark.row("N93")
def test_memory_comes_before_disk() -> None:
    world = World(EvictionFlags(hard="nodefs.available<1Gi,memory.available<1Gi"))
    verdict = world.sees(node_fs=0, memory=0)
    assert verdict is not None and verdict.signal is Signal.MEMORY
    assert world.manager.pressures == ("MemoryPressure", "DiskPressure")


@pytest.mark.row("N94")
def test_an_observation_is_acted_on_once() -> None:
    world = World(EvictionFlags(hard="memory.available<1Gi"))
    seen = {Signal.MEMORY: SignalObservation(1, 10 * GI, 5.0)}
    assert world.manager.look(1.0, seen, FIVE, lambda _: None) is not None
    assert world.manager.look(2.0, seen, FIVE, lambda _: None) is None
    seen = {Signal.MEMORY: SignalObservation(1, 10 * GI, 5.1)}
    assert world.manager.look(3.0, seen, FIVE, lambda _: None) is not None


@pytest.mark.row("K10.14", "N112")
def test_what_pods_may_have_together_is_guarded_whatever_the_machine_has_free() -> None:
    """10 Gi, 1.5 Gi of them reserved, a hard threshold of 500 Mi: pods may use 8204 Mi."""
    thresholds = thresholds_of(EvictionFlags(hard="memory.available<500Mi"))
    capacity = 10 * GI - 1536 * MI

    def evicts(used: int, at: float) -> bool:
        found = EvictionManager(EvictionSettings(thresholds))
        seen = {
            Signal.MEMORY: SignalObservation(9 * GI, 10 * GI, at),
            Signal.ALLOCATABLE_MEMORY: SignalObservation(capacity - used, capacity, at),
        }
        return found.look(at, seen, FIVE, lambda _: None) is not None

    assert not evicts(8204 * MI, 1.0) and evicts(8204 * MI + 1, 1.0)


@pytest.mark.row("K10.5", "N113")
def test_a_pass_comes_after_ten_seconds_at_most_and_sooner_the_nearer_a_threshold_is() -> None:
    found = EvictionManager(EvictionSettings(thresholds_of(EvictionFlags(hard="memory.available<1Gi"))))

    def wait(before: int, now: int, seconds: float = 10.0) -> float:
        earlier = {Signal.MEMORY: SignalObservation(before, 10 * GI, 0.0)}
        return found.next_pass(earlier, {Signal.MEMORY: SignalObservation(now, 10 * GI, seconds)})

    assert wait(9 * GI, 9 * GI) == 10.0 and wait(5 * GI, 9 * GI) == 10.0
    assert wait(9 * GI, 8 * GI) == 10.0, "in 70 s at this rate"
    assert wait(4 * GI, 3 * GI, 1.0) == pytest.approx(2 / 3)
    assert wait(4 * GI, 2 * GI, 10.0) == pytest.approx(5 / 3)
    assert wait(GI + 50 * MI, GI + 50 * MI) == 0.2
    assert wait(2 * GI, GI + 1, 1.0) == 0.1


def test_what_an_evicted_pod_is_told() -> None:
    pod = PodUsage("x", containers={"main": ContainerUsage(memory=612352 << 10), "side": ContainerUsage(1, memory_request=2)})
    assert eviction_message(pod, Signal.MEMORY, 100 * MI, SignalObservation(84912 << 10, GI, 0.0)) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 84912Ki. Container main was using 612352Ki, "
        "request is 0, has larger consumption of memory. "
    )
    assert eviction_message(pod, Signal.PID, 10, SignalObservation(3, 60, 0.0)) == (
        "The node was low on resource: pids. Threshold quantity: 10, available: 3. "
    )


@pytest.mark.row("N91")
@given(st.lists(st.tuples(st.integers(0, 4 * GI), st.floats(0.1, 400.0)), min_size=1, max_size=40))
def test_however_memory_goes_a_pass_evicts_one_pod_at_most_and_equal_runs_are_equal(feed: list[tuple[int, float]]) -> None:
    flags = EvictionFlags(hard="memory.available<1Gi", soft="memory.available<2Gi", soft_grace_period="memory.available=2m")
    critical = [replace(pod, critical=pod.uid == "best-effort-low") for pod in FIVE]

    def run() -> list[tuple[str, tuple[str, ...]]]:
        world = World(flags, critical)
        told, lows = [], [float("-inf")]
        for available, after in feed:
            verdict = world.sees(after, memory=available)
            if available < 2 * GI:
                lows.append(world.now)
            assert ("MemoryPressure" in world.manager.pressures) == (world.now - lows[-1] < manager.TRANSITION_SECONDS)
            assert (verdict is not None) or available >= GI
            told.append((verdict.uid if verdict is not None else "", world.manager.pressures))
        return told

    first = run()
    assert first == run() and {uid for uid, _ in first} <= {"", "burstable-above"}


@pytest.mark.parametrize(
    ("bug", "test"),
    [
        ("pressure ends when it is not seen", test_going_up_and_down_within_the_grace_evicts_nobody_and_the_condition_stays),
        ("eviction ends at the threshold", test_a_minimum_is_reclaimed_before_eviction_ends),
    ],
)
def test_a_broken_rule_is_noticed(bug: str, test: Callable[[], None]) -> None:
    with planted(bug), pytest.raises(AssertionError):
        test()
