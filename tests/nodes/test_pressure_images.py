"""Where disk is short: what ended containers have left goes first, then images that nobody uses, and only then a pod."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.eviction.manager import EvictionSettings
from rayched.nodes.agent.eviction.ranking import DiskUsage
from rayched.nodes.agent.eviction.signals import Signal, SignalObservation
from rayched.nodes.agent.eviction.thresholds import EvictionFlags, thresholds_of
from rayched.nodes.agent.pod_life import PodEnding, PodLife
from rayched.nodes.agent.pressure import PressureMonitor, PressurePorts
from rayched.nodes.agent.stats import NodeBounds, NodeFigures, NodeStats, PodFigures, PodPlace
from rayched.v1.core_pb2 import Pod

GI, MI = 1 << 30, 1 << 20


class ShortNode(NodeStats):
    """1 Gi of disk is wanted; there is what ended containers and images leave of it. `done` is what was done, in its order."""

    def __init__(self, root: Path, available: int, ended: int, images: int, memory: int = 8 * GI) -> None:
        super().__init__(root, NodeBounds(), GI)
        self.available, self.ended, self.images, self.memory = available, ended, images, memory
        self.now = 1000.0
        self.done: list[str] = []
        self.pressures: list[str] = []
        pod = Pod()
        pod.metadata.uid = pod.metadata.name = "writer"
        pod.spec.containers.add(name="main")
        self.life = PodLife(pod, 0.0)
        ports = PressurePorts(
            lambda call: call(),
            lambda: self.now,
            list,
            lambda: [self.life],
            self._evict,
            self._told,
            lambda *_: None,
            self._reclaim,
            lambda event: self.done.append(event.reason),
            AgentMetrics("n", "tree"),
            self._remove_images,
        )
        flags = EvictionFlags(hard="nodefs.available<1Gi,memory.available<1Gi")
        self.monitor = PressureMonitor(EvictionSettings(thresholds_of(flags, allocatable_enforced=False)), self, ports)

    def look(self, places: Iterable[PodPlace], at: float, *, exact: bool = False, files: bool = True) -> NodeFigures:
        seen = {Signal.MEMORY: SignalObservation(self.memory, 8 * GI, at), **self.disk((), at)}
        return NodeFigures(seen, {"writer": PodFigures(disk=DiskUsage(writable=MI))})

    def disk(self, pods: Iterable[PodFigures], at: float) -> dict[Signal, SignalObservation]:
        return {Signal.NODE_FS: SignalObservation(self.available, 8 * GI, at)}

    def _evict(self, uid: str, ending: PodEnding) -> None:
        self.done.append(f"{uid} {ending.reason}")

    def _told(self, pressures: Iterable[str]) -> None:
        self.pressures = list(pressures)

    def _reclaim(self, signal: Signal) -> bool:
        freed, self.ended = (self.ended, 0) if signal is Signal.NODE_FS else (0, self.ended)
        self.available += freed
        if freed:
            self.done.append("containers")
        return bool(freed)

    def _remove_images(self) -> int:
        freed, self.images = self.images, 0
        self.available += freed
        if freed:
            self.done.append("images")
        return int(bool(freed))

    def looks(self) -> list[str]:
        self.now += 1.0
        self.done = []
        self.monitor._look()
        return self.done


@pytest.mark.row("N92")
@pytest.mark.parametrize(
    ("available", "ended", "images", "done"),
    [
        (2 * GI, MI, MI, []),
        (900 * MI, 200 * MI, GI, ["containers", "EvictionThresholdMet"]),
        (700 * MI, 200 * MI, GI, ["containers", "images", "EvictionThresholdMet"]),
        (900 * MI, 0, GI, ["images", "EvictionThresholdMet"]),
        (500 * MI, 100 * MI, 100 * MI, ["containers", "images", "EvictionThresholdMet", "writer Evicted"]),
        (500 * MI, 0, 0, ["EvictionThresholdMet", "writer Evicted"]),
    ],
)
def test_images_that_nobody_uses_go_before_a_pod_does(
    tmp_path: Path, available: int, ended: int, images: int, done: list[str]
) -> None:
    node = ShortNode(tmp_path, available, ended, images)
    assert node.looks() == done
    assert node.pressures == (["DiskPressure"] if done else []), "it is told of, whatever was freed"


@pytest.mark.row("N92")
def test_memory_that_is_short_does_not_wait_for_images(tmp_path: Path) -> None:
    node = ShortNode(tmp_path, 900 * MI, 0, GI, memory=500 * MI)
    assert "images" not in node.looks()
    assert node.monitor.seen[Signal.MEMORY].available == 500 * MI
