"""Looks at a node: memory is looked at as often as it could fill, the files of pods as often as a disk could."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.eviction.manager import EvictionSettings
from rayched.nodes.agent.eviction.signals import Signal
from rayched.nodes.agent.eviction.thresholds import EvictionFlags, thresholds_of
from rayched.nodes.agent.pressure import PressureMonitor, PressurePorts
from rayched.nodes.agent.stats import NodeBounds, NodeFigures, NodeStats, PodPlace, resident_memory

GI, MI = 1 << 30, 1 << 20


def place(root: Path, name: str = "pod") -> PodPlace:
    (root / name / "volumes" / "data").mkdir(parents=True)
    return PodPlace(name, root / name, root / f"{name}-logs", None)


def fill(one: PodPlace, size: int) -> None:
    (one.directory / "volumes" / "data" / "file").write_bytes(b"x" * size)


def test_what_is_on_the_disk_is_counted_when_that_is_asked_for_and_of_new_pods(tmp_path: Path) -> None:
    old = place(tmp_path, "old")
    fill(old, MI)
    stats = NodeStats(tmp_path, NodeBounds(memory=GI, disk=GI), GI)
    first = stats.look([old], 1.0)
    fill(old, 5 * MI)
    new = place(tmp_path, "new")
    fill(new, 2 * MI)
    second = stats.look([old, new], 2.0, files=False)
    assert second.pods["old"].volumes == first.pods["old"].volumes and second.pods["new"].volumes["data"] >= 2 * MI
    assert second.seen[Signal.NODE_FS] == first.seen[Signal.NODE_FS], "observed at the look before"
    assert second.seen[Signal.MEMORY].at == 2.0
    third = stats.look([old, new], 3.0)
    assert third.seen[Signal.NODE_FS].at == 3.0
    assert third.seen[Signal.NODE_FS].available <= first.seen[Signal.NODE_FS].available - 6 * MI


class CountedLooks(NodeStats):
    """`with_files`: whether each look counted them."""

    def __init__(self, root: Path, bounds: NodeBounds) -> None:
        super().__init__(root, bounds, GI)
        self.with_files: list[bool] = []

    def look(self, places: Iterable[PodPlace], at: float, *, exact: bool = False, files: bool = True) -> NodeFigures:
        self.with_files.append(files)
        return super().look(places, at, exact=exact, files=files)


@pytest.mark.row("N113")
@pytest.mark.parametrize(
    ("disk", "filled", "least", "most"),
    [(100 * GI, 0, 10.0, 11.0), (GI, 0, 3.0, 4.5), (GI, 920 * MI, 0.1, 0.3)],
    ids=["far from its threshold", "small", "near its threshold"],
)
def test_files_are_counted_as_often_as_the_disk_could_fill(
    tmp_path: Path, disk: int, filled: int, least: float, most: float
) -> None:
    one = place(tmp_path)
    with open(one.directory / "volumes" / "data" / "file", "wb") as file:
        file.truncate(filled)
        if filled:
            os.posix_fallocate(file.fileno(), 0, filled)
    now = 0.0
    stats = CountedLooks(tmp_path, NodeBounds(memory=GI, disk=disk))
    ports = PressurePorts(
        lambda call: call(),
        lambda: now,
        lambda: [one],
        list,
        lambda *_: None,
        lambda _: None,
        lambda *_: None,
        lambda _: False,
        lambda _: None,
        AgentMetrics("n", "tree"),
        lambda: 0,
    )
    flags = EvictionFlags(hard="nodefs.available<10%,memory.available<10%")
    monitor = PressureMonitor(EvictionSettings(thresholds_of(flags, allocatable_enforced=False)), stats, ports)
    counted_at = []
    while now < 30.0:
        wait = monitor._look()
        if stats.with_files[-1]:
            counted_at.append(now)
        assert wait is not None and 0.0 < wait <= 1.0, "a node of 1 Gi could fill within a second"
        now += wait
    assert least <= round(max(later - earlier for earlier, later in pairwise(counted_at)), 6) <= most


def test_memory_is_read_from_what_the_kernel_says(tmp_path: Path) -> None:
    before = resident_memory(os.getpid())
    held = bytearray(os.urandom(64 * MI))
    assert len(held) // 2 < resident_memory(os.getpid()) - before
    assert resident_memory((1 << 22) + 1) == 0, "there is no such process"
