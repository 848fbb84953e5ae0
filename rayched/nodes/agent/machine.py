"""What the agent knows of the machine it is on. Reads files of the system; decides nothing."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from rayched.nodes.agent.shim.proc_table import boot_id


@dataclass(frozen=True, slots=True)
class Machine:
    """Sizes in bytes."""

    cpus: int
    memory: int
    disk: int
    machine_id: str
    system_uuid: str
    boot_id: str
    kernel: str
    os_image: str
    architecture: str


def this_machine(root: Path) -> Machine:
    """`root`: a directory on the file system that pods use."""
    disk = os.statvfs(root)
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        memory=_meminfo_total(),
        disk=disk.f_blocks * disk.f_frsize,
        machine_id=_text("/etc/machine-id"),
        system_uuid=_text("/sys/class/dmi/id/product_uuid"),
        boot_id=boot_id(),
        kernel=platform.release(),
        os_image=_os_image(),
        architecture={"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
    )


def _meminfo_total() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise AssertionError("/proc/meminfo has no MemTotal")


def _text(path: str) -> str:
    """Empty where the system does not have the file, or keeps it to itself."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _os_image() -> str:
    for line in _text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.removeprefix("PRETTY_NAME=").strip('"')
    return "Linux"
