"""Limits in cgroups of the second version: what is written, where a host has them, and what is made of the kernel's counts. The
trees are recorded ones, in plain files: what the kernel itself does with them the contract of drivers shows where it can."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayched.nodes.agent.cgroup_limits import container_limits, cpu_shares, cpu_weight, pod_limits
from rayched.nodes.agent.containment import ContainmentTier, tier_of, tracking_root
from rayched.nodes.agent.drivers.process_driver import ProcessDriver
from rayched.nodes.agent.eviction.signals import Signal
from rayched.nodes.agent.process_specs import AttemptPlace
from rayched.nodes.agent.recovery import exit_of
from rayched.nodes.agent.shim import cgroup
from rayched.nodes.agent.stats import NodeBounds, NodeStats, PodPlace
from rayched.v1.core_pb2 import Container, Pod
from tests.nodes.driven_pod import Backend, DrivenPod, a_policy

MI = 1 << 20
EVENTS_AFTER_A_KILL = "low 0\nhigh 0\nmax 31\noom 1\noom_kill 2\noom_group_kill 1\n"
"""memory.events of a cgroup of Linux 6.1 whose group was killed for want of memory."""
EVENTS_BEFORE = "low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\noom_group_kill 0\n"


def a_container(name: str = "main", *, cpu: str = "", memory: str = "", requests: str = "") -> Container:
    found = Container(name=name)
    for resource, text in (("cpu", cpu), ("memory", memory)):
        if text:
            found.resources.limits[resource].string = text
    if requests:
        found.resources.requests["cpu"].string = requests
    return found


def a_mount(directory: Path, controllers: str, passed_on: str) -> Path:
    """A recorded mount of cgroups, and the file that lists it."""
    tree = directory / "cgroup"
    tree.mkdir()
    (tree / "cgroup.controllers").write_text(f"{controllers}\n")
    (tree / "cgroup.subtree_control").write_text(f"{passed_on}\n")
    return tree


@pytest.mark.parametrize(
    ("milli", "shares", "weight"),
    [
        (0, 2, 1),
        (1, 2, 1),
        (3, 3, 2),
        (100, 102, 17),
        (1000, 1024, 100),
        (2000, 2048, 174),
        (64_000, 65_536, 3023),
        (10**9, 262_144, 10_000),
    ],
)
def test_a_cpu_has_a_weight_of_a_hundred(milli: int, shares: int, weight: int) -> None:
    assert (cpu_shares(milli), cpu_weight(shares)) == (shares, weight)


def test_limits_are_written_as_the_kernel_reads_them() -> None:
    assert container_limits(a_container()) == {"cpu.weight": "1"}
    assert container_limits(a_container(cpu="1500m", memory="64Mi", requests="1")) == {
        "cpu.weight": "100",
        "cpu.max": "150000 100000",
        "memory.max": str(64 * MI),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }
    assert container_limits(a_container(cpu="1m"))["cpu.max"] == "1000 100000", "less than a millisecond would never run"


def test_a_pod_has_a_limit_where_each_of_its_containers_has_one() -> None:
    pod = Pod()
    pod.spec.containers.extend(
        [a_container("a", cpu="1", memory="10Mi", requests="1"), a_container("b", memory="20Mi", requests="1")]
    )
    assert pod_limits(pod) == {
        "cpu.weight": "174",
        "memory.max": str(30 * MI),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }
    sidecar, init = a_container("s", memory="5Mi"), a_container("i", memory="50Mi")
    sidecar.restart_policy = "Always"
    pod.spec.init_containers.extend([sidecar, init])
    assert pod_limits(pod)["memory.max"] == str(55 * MI), "the init container runs beside the sidecar, before all others"
    pod.spec.overhead["memory"].string = "1Mi"
    assert pod_limits(pod)["memory.max"] == str(56 * MI)
    pod.spec.containers.append(a_container("c"))
    assert "memory.max" not in pod_limits(pod)


def test_a_pod_has_so_many_processes_as_its_node_lets_it(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    pod = Pod()
    pod.spec.containers.append(a_container())
    pod.spec.containers[0].command.append("run")
    for pids, wanted in ((0, None), (100, "100")):
        driver = ProcessDriver(replace(a_policy(), pod_pids=pids), tmp_path)
        spec = driver.specify(pod, pod.spec.containers[0], AttemptPlace("n", "10.0.0.1", 0, "/work", "/log"))
        assert spec["pod_limits"].get("pids.max") == wanted
        assert "pids.max" not in spec["limits"]


def test_memory_is_what_the_kernel_counts_in_a_containers_cgroup(tmp_path: Path) -> None:
    for name, current, inactive in (("main-3", 50 * MI, 8 * MI), ("side-0", MI, 2 * MI), ("main-2", MI, 0)):
        directory = tmp_path / "cgroups" / "uid" / name
        directory.mkdir(parents=True)
        (directory / "memory.current").write_text(f"{current}\n")
        (directory / "memory.stat").write_text(f"anon 4096\nfile 4096\ninactive_file {inactive}\n")
    (tmp_path / "cgroups" / "uid" / "gone-0").mkdir()
    place = PodPlace("uid", tmp_path / "pod", tmp_path / "logs", None)
    stats = NodeStats(tmp_path, NodeBounds(memory=100 * MI), 60 * MI, tmp_path / "cgroups")
    seen = stats.look([place], 0.0)
    assert seen.pods["uid"].memory == {"main": 43 * MI, "side": 0}, "what could be given back at once is not counted"
    assert seen.seen[Signal.ALLOCATABLE_MEMORY].available == 17 * MI
    assert NodeStats(tmp_path, NodeBounds(), MI).look([place], 0.0).pods["uid"].memory == {}


def test_a_host_is_of_the_tier_that_its_controllers_allow(tmp_path: Path) -> None:
    assert tier_of(None) is ContainmentTier.TREE
    assert tier_of(tmp_path) is ContainmentTier.TRACKING, "nothing is passed on there"
    for passed_on, tier in (
        ("cpu io memory pids", ContainmentTier.CGROUP),
        ("hugetlb", ContainmentTier.TRACKING),
        ("cpu memory", ContainmentTier.TRACKING),
        ("", ContainmentTier.TRACKING),
    ):
        (tmp_path / "cgroup.subtree_control").write_text(f"{passed_on}\n")
        assert tier_of(tmp_path) is tier


@pytest.mark.parametrize(
    ("controllers", "before", "after"),
    [
        ("cpuset cpu io memory hugetlb pids", "cpu", "+cpu +memory +pids"),
        ("cpuset cpu io memory hugetlb pids", "cpu memory pids", "cpu memory pids\n"),
        ("hugetlb", "", "\n"),
    ],
)
def test_controllers_are_passed_on_where_they_are_there_and_are_not_yet(
    tmp_path: Path, controllers: str, before: str, after: str
) -> None:
    mounts = tmp_path / "mountinfo"
    tree = a_mount(tmp_path, controllers, before)
    mounts.write_text(f"24 1 0:21 / {tree} rw,nosuid - cgroup2 cgroup rw\n")
    # The recorded tree has no cgroup.kill, so nothing is used of it; what is passed on was written before that shows.
    assert tracking_root(tmp_path, mounts) is None
    assert (tree / "cgroup.subtree_control").read_text() == after


def test_a_cgroup_is_made_with_its_limits_below_one_that_passes_its_controllers_on(tmp_path: Path) -> None:
    path = tmp_path / "uid" / "main-0"
    cgroup.make(str(path), {"memory.max": "1000", "memory.swap.max": "0"}, {"memory.max": "3000"})
    assert (tmp_path / "uid" / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (tmp_path / "uid" / "memory.max").read_text() == "3000"
    assert (path / "memory.max").read_text() == "1000" and (path / "memory.swap.max").read_text() == "0"
    without = tmp_path / "other" / "main-0"
    cgroup.make(str(without))
    assert list(without.iterdir()) == [] and [entry.name for entry in without.parent.iterdir()] == ["main-0"]


def test_a_limit_that_cannot_be_written_is_told_and_a_missing_count_of_swap_is_not(tmp_path: Path) -> None:
    path = tmp_path / "uid" / "main-0"
    (path / "memory.swap.max").mkdir(parents=True)
    cgroup.make(str(path), {"memory.swap.max": "0"})
    (path / "memory.max").mkdir()
    with pytest.raises(OSError, match=r"memory\.max"):
        cgroup.make(str(path), {"memory.max": "1000"})


def test_who_cannot_be_seen_is_nobody(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("0\n17\n0\n")
    assert cgroup.members(str(tmp_path)) == [17], "0 would be the shim's own group"


def test_a_sweep_that_cannot_see_who_is_there_ends_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "uid").mkdir()
    (tmp_path / "uid" / "cgroup.procs").write_text("0\n")
    program = f"""
import pathlib
from rayched.nodes.agent.leftovers import strike
print(strike("uid", pathlib.Path({str(tmp_path)!r})))
"""
    # In a group of its own, which a signal to 0 would end.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, start_new_session=True)
    assert (done.returncode, done.stdout) == (0, "{0}\n"), done.stderr
    assert (tmp_path / "uid" / "cgroup.kill").read_text() == "1", "the kernel ends it"


@pytest.mark.row("N109")
@pytest.mark.parametrize(
    ("events", "number", "reason"),
    [
        (EVENTS_AFTER_A_KILL, signal.SIGKILL, "OOMKilled"),
        (EVENTS_BEFORE, signal.SIGKILL, "Error"),
        (EVENTS_AFTER_A_KILL, signal.SIGTERM, "Error"),
        ("", signal.SIGKILL, "Error"),
    ],
)
def test_whom_the_kernel_killed_for_its_limit_is_told_from_others(
    tmp_path: Path, events: str, number: signal.Signals, reason: str
) -> None:
    """A real shim and a real process; the cgroup is recorded, as after the kernel's kill."""
    found = ended_in_a_recorded_cgroup(tmp_path, events, number)
    assert found["code"] == 128 + number and exit_of(found).reason == reason


def ended_in_a_recorded_cgroup(directory: Path, events: str, number: signal.Signals) -> dict[str, Any]:
    tree = directory / "cgroups"
    tree.mkdir()
    (tree / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (directory / "node").mkdir()
    backend = Backend("process-recorded", directory / "node", ProcessDriver(a_policy(), tree), tree)
    assert backend.driver.capabilities.limits
    pod = Pod()
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = "p", "default", f"recorded-{os.getpid()}-{directory.name}"
    main = pod.spec.containers.add(name="main", command=["sleep", "1000"])
    main.resources.limits["memory"].string = "32Mi"
    driven = DrivenPod(backend, pod)
    pid = driven.start()["pid"]
    its_own = tree / pod.metadata.uid / "main-0"
    assert (its_own / "memory.max").read_text() == str(32 * MI)
    (its_own / "memory.events").write_text(events)
    os.kill(pid, number)
    found = driven.end()
    driven.quit()
    return found
