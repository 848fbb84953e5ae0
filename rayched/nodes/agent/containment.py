"""How the processes of a pod are told from all others, and killed to the last one.

| tier | needs | what it knows |
|---|---|---|
| tree | nothing | what descends from the pod's shim, or carries the pod's cookie in its environment |
| tracking | a cgroup of the second version that may be written to | that, and what is in the container's cgroup |
| cgroup | the same, with the controllers of cpu, memory and pids | that, and the kernel keeps limits of cpu and memory |

A host that has the controllers in the first version still gives tracking.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
from pathlib import Path
from typing import Final

CONTAINMENT_LABEL: Final = "rayched.dev/containment"
CONTROLLERS: Final = frozenset({"cpu", "memory", "pids"})
"""What is used of cgroups."""
_PASSED_ON: Final = "cgroup.subtree_control"
_MOUNTS: Final = Path("/proc/self/mountinfo")


class ContainmentTier(enum.StrEnum):
    TREE = "tree"
    TRACKING = "tracking"
    CGROUP = "cgroup"


def tier_of(cgroups: Path | None) -> ContainmentTier:
    """`cgroups` as `tracking_root` gives it."""
    if cgroups is None:
        return ContainmentTier.TREE
    try:
        passed_on = set((cgroups / _PASSED_ON).read_text(encoding="ascii").split())
    except OSError:
        return ContainmentTier.TRACKING
    return ContainmentTier.CGROUP if passed_on >= CONTROLLERS else ContainmentTier.TRACKING


def tracking_root(root: Path, mounts: Path = _MOUNTS) -> Path | None:
    """A cgroup for the agent in this directory, made where it can be; None: there is no tracking here."""
    for mount in _cgroup2_mounts(mounts):
        found = mount / f"rayched-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
        probe = found / "probe"
        try:
            found.mkdir(exist_ok=True)
            _pass_on(mount)
            _pass_on(found)
            probe.mkdir(exist_ok=True)
            # Since Linux 5.14.
            usable = os.access(probe / "cgroup.kill", os.W_OK) and os.access(probe / "cgroup.procs", os.W_OK)
            probe.rmdir()
            if not usable:
                found.rmdir()
        except OSError:
            continue
        if usable:
            return found
    return None


def _pass_on(cgroup: Path) -> None:
    """Lets the cgroups in it have controllers, where that may be."""
    with contextlib.suppress(OSError):
        there = set((cgroup / "cgroup.controllers").read_text(encoding="ascii").split())
        if there >= CONTROLLERS and not there.isdisjoint(CONTROLLERS - set((cgroup / _PASSED_ON).read_text().split())):
            (cgroup / _PASSED_ON).write_text(" ".join(f"+{name}" for name in sorted(CONTROLLERS)), encoding="ascii")


def kill_cgroups(pod: Path) -> set[int]:
    """Kills what is in a pod's cgroups, and removes those that are empty; which processes there were.

    0 stands for those that this process cannot see, and is nothing to send a signal to.
    """
    found: set[int] = set()
    for cgroup in _below(pod):
        with contextlib.suppress(OSError):
            found.update(map(int, (cgroup / "cgroup.procs").read_text(encoding="ascii").split()))
            (cgroup / "cgroup.kill").write_text("1", encoding="ascii")
        with contextlib.suppress(OSError):
            cgroup.rmdir()
    return found


def _below(pod: Path) -> list[Path]:
    """All that are in it, the inner ones first, then itself."""
    return [Path(path) for path, _, _ in os.walk(pod, topdown=False)]


def _cgroup2_mounts(mounts: Path) -> list[Path]:
    found = []
    for line in mounts.read_text(encoding="utf-8").splitlines():
        before, _, behind = line.partition(" - ")
        if behind.split(" ")[0] == "cgroup2":
            found.append(Path(before.split(" ")[4]))
    return found
