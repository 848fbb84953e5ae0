"""Thresholds of node-pressure eviction as flags give them, and figures of the machine from its files."""

from __future__ import annotations

import os

import pytest

from rayched.nodes.agent.eviction import machine_figures
from rayched.nodes.agent.eviction.signals import Signal
from rayched.nodes.agent.eviction.thresholds import (
    EvictionFlags,
    Threshold,
    ThresholdError,
    ThresholdValue,
    duration,
    ignored,
    thresholds_of,
)

GI, MI = 1 << 30, 1 << 20
KNOWN = (
    "memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, containerfs.available, "
    "containerfs.inodesFree, pid.available"
)


def hard(text: str) -> tuple[Threshold, ...]:
    return thresholds_of(EvictionFlags(hard=text), allocatable_enforced=False)


@pytest.mark.row("N77")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ()),
        ("memory.available<100Mi", ((Signal.MEMORY, ThresholdValue(100 * MI)),)),
        ("memory.available<1.5Gi", ((Signal.MEMORY, ThresholdValue(1536 * MI)),)),
        ("memory.available<10%", ((Signal.MEMORY, ThresholdValue(percent=10)),)),
        ("memory.available<0.5%", ((Signal.MEMORY, ThresholdValue(percent=0.5)),)),
        ("pid.available<1000", ((Signal.PID, ThresholdValue(1000)),)),
        ("pid.available<1k", ((Signal.PID, ThresholdValue(1000)),)),
        (
            "nodefs.available<10%,nodefs.inodesFree<5%",
            ((Signal.NODE_FS, ThresholdValue(percent=10)), (Signal.NODE_FS_INODES, ThresholdValue(percent=5))),
        ),
        ("imagefs.available<2Gi,", ((Signal.IMAGE_FS, ThresholdValue(2 * GI)),)),
        ("imagefs.inodesFree<100k", ((Signal.IMAGE_FS_INODES, ThresholdValue(100_000)),)),
        ("memory.available<0%", ()),
        ("memory.available<100%", ()),
        ("memory.available<0%,pid.available<7", ((Signal.PID, ThresholdValue(7)),)),
    ],
)
def test_a_threshold_is_read_as_it_is_written(text: str, wanted: tuple[tuple[Signal, ThresholdValue], ...]) -> None:
    assert hard(text) == tuple(Threshold(signal, amount) for signal, amount in wanted)


@pytest.mark.row("N77")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("memory.available", "'memory.available' has no operator; allowed is SIGNAL<QUANTITY or SIGNAL<PERCENT%"),
        ("memory.available>1Gi", "'memory.available>1Gi' has no operator; allowed is SIGNAL<QUANTITY or SIGNAL<PERCENT%"),
        ("memory.available=1Gi", "'memory.available=1Gi' has no operator; allowed is SIGNAL<QUANTITY or SIGNAL<PERCENT%"),
        ("<1Gi", f"signal '' is not known; allowed are {KNOWN}"),
        ("memory<1Gi", f"signal 'memory' is not known; allowed are {KNOWN}"),
        ("Memory.available<1Gi", f"signal 'Memory.available' is not known; allowed are {KNOWN}"),
        ("allocatableMemory.available<1Gi", f"signal 'allocatableMemory.available' is not known; allowed are {KNOWN}"),
        ("memory.available<0", "memory.available<0: must be positive"),
        ("memory.available<-1Gi", "memory.available<-1Gi: must be positive"),
        ("memory.available<-5%", "memory.available<-5%: want 0% to 100%"),
        ("memory.available<101%", "memory.available<101%: want 0% to 100%"),
        ("memory.available<x%", "memory.available<x%: is no percentage; want 0% to 100%"),
        ("memory.available<%", "memory.available<%: is no percentage; want 0% to 100%"),
        ("memory.available<1Gi,memory.available<2Gi", "memory.available occurs twice"),
        ("memory.available<1Gi,memory.available<5%", "memory.available occurs twice"),
        ("memory.available<1Gi,nodefs", "'nodefs' has no operator; allowed is SIGNAL<QUANTITY or SIGNAL<PERCENT%"),
    ],
)
def test_what_is_no_threshold_names_the_flag_and_what_is_allowed(text: str, wanted: str) -> None:
    with pytest.raises(ThresholdError) as caught:
        hard(text)
    assert str(caught.value) == f"--eviction-hard: {wanted}"


@pytest.mark.row("N77")
@pytest.mark.parametrize("text", ["memory.available<lots", "memory.available<", "memory.available<1Q1"])
def test_what_is_no_quantity_names_signal_and_text(text: str) -> None:
    with pytest.raises(ThresholdError, match=f"^--eviction-hard: {text}: ") as caught:
        hard(text)
    assert "\n" not in str(caught.value)


@pytest.mark.row("K10.4", "N78")
def test_defaults_hold_until_the_flag_is_given_and_merging_keeps_the_rest() -> None:
    defaults = {one.signal: one.value for one in thresholds_of(EvictionFlags(), allocatable_enforced=False)}
    assert defaults == {
        Signal.MEMORY: ThresholdValue(100 * MI),
        Signal.NODE_FS: ThresholdValue(percent=10),
        Signal.IMAGE_FS: ThresholdValue(percent=15),
        Signal.NODE_FS_INODES: ThresholdValue(percent=5),
    }
    assert [one.signal for one in hard("pid.available<10")] == [Signal.PID]
    flags = EvictionFlags(hard="memory.available<1Gi,nodefs.available<0%", merge_defaults=True)
    merged = {one.signal: one.value for one in thresholds_of(flags, allocatable_enforced=False)}
    assert merged == {
        Signal.MEMORY: ThresholdValue(GI),
        Signal.IMAGE_FS: ThresholdValue(percent=15),
        Signal.NODE_FS_INODES: ThresholdValue(percent=5),
    }


@pytest.mark.row("K10.3", "N79")
def test_a_soft_threshold_needs_a_grace_period() -> None:
    with pytest.raises(ThresholdError) as caught:
        thresholds_of(EvictionFlags(soft="memory.available<2Gi"))
    assert str(caught.value) == "grace period must be specified for the soft eviction threshold memory.available"
    flags = EvictionFlags(
        soft="memory.available<2Gi", soft_grace_period="memory.available=1m30s", minimum_reclaim="memory.available=500Mi"
    )
    soft = thresholds_of(flags)[-2]
    assert soft == Threshold(Signal.MEMORY, ThresholdValue(2 * GI), 90.0, ThresholdValue(500 * MI))


@pytest.mark.row("K10.2", "N95")
def test_a_percentage_is_of_the_capacity_and_cut_down() -> None:
    (threshold,) = hard("memory.available<33%")
    assert threshold.value.of(1000) == 330 and threshold.value.of(100) == 33 and threshold.value.of(10) == 3
    assert hard("memory.available<0%") == hard("memory.available<100%") == ()


@pytest.mark.row("N112")
def test_what_pods_have_together_copies_the_hard_threshold_of_memory() -> None:
    found = thresholds_of(
        EvictionFlags(hard="memory.available<500Mi", soft="pid.available<9", soft_grace_period="pid.available=1s")
    )
    assert [(one.signal, one.value, one.grace) for one in found] == [
        (Signal.MEMORY, ThresholdValue(500 * MI), 0.0),
        (Signal.PID, ThresholdValue(9), 1.0),
        (Signal.ALLOCATABLE_MEMORY, ThresholdValue(500 * MI), 0.0),
    ]


def test_durations_and_what_has_no_effect() -> None:
    assert duration("--x", "1m30s") == 90.0 and duration("--x", "500ms") == 0.5 and duration("--x", "0") == 0.0
    with pytest.raises(ThresholdError, match="--x: '5' is no duration; want one such as 90s or 1m30s"):
        duration("--x", "5")
    assert ignored(hard("containerfs.available<1Gi")) == [
        "containerfs.available: is derived from nodefs or imagefs, the threshold given for it is ignored"
    ]


@pytest.mark.row("K10.1", "N96")
def test_figures_are_taken_from_recorded_files() -> None:
    text = (
        "MemTotal:       24604880 kB\nMemFree:        12000000 kB\nBuffers:          100000 kB\nCached:          2000000 kB\n"
        "SwapCached:         1000 kB\nInactive(file):   900000 kB\nAnonPages:        898200 kB\nHugePages_Total:       0\n"
    )
    assert machine_figures.meminfo(text) == (24604880 << 10, (898200 + 2000000 + 100000 + 1000 - 900000) << 10)
    stat = "anon 1000\nfile 5000\nkernel 700\ninactive_file 2000\nactive_file 3000\n"
    assert machine_figures.working_set("9000\n", stat) == 7000 and machine_figures.working_set("1000\n", stat) == 0
    assert machine_figures.tasks("0.52 0.58 0.59 3/813 12345\n") == 813
    found = os.statvfs_result((4096, 512, 1000, 400, 300, 50, 20, 10, 0, 255))
    assert machine_figures.disk(found) == (300 * 512, 1000 * 512, 20, 50)
