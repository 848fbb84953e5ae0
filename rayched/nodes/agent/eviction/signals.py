"""The signals that thresholds are about, and what is observed of them. Pure.

| signal | available |
|---|---|
| memory.available | capacity - working set |
| allocatableMemory.available | what pods may have - what they have; copies the hard threshold of memory.available |
| nodefs, imagefs, containerfs .available, .inodesFree | as the file system says |
| pid.available | the highest number of processes - tasks |
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from rayched.nodes.agent.node_object import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE


class Signal(enum.StrEnum):
    MEMORY = "memory.available"
    ALLOCATABLE_MEMORY = "allocatableMemory.available"
    NODE_FS = "nodefs.available"
    NODE_FS_INODES = "nodefs.inodesFree"
    IMAGE_FS = "imagefs.available"
    IMAGE_FS_INODES = "imagefs.inodesFree"
    CONTAINER_FS = "containerfs.available"
    CONTAINER_FS_INODES = "containerfs.inodesFree"
    PID = "pid.available"


SETTABLE: Final = tuple(signal for signal in Signal if signal is not Signal.ALLOCATABLE_MEMORY)
OF_MEMORY: Final = (Signal.MEMORY, Signal.ALLOCATABLE_MEMORY)
OF_INODES: Final = (Signal.NODE_FS_INODES, Signal.IMAGE_FS_INODES, Signal.CONTAINER_FS_INODES)
OF_NODE_FS: Final = (Signal.NODE_FS, Signal.NODE_FS_INODES)
OF_IMAGE_FS: Final = (Signal.IMAGE_FS, Signal.IMAGE_FS_INODES)

CONDITION_OF: Final = {
    signal: MEMORY_PRESSURE if signal in OF_MEMORY else PID_PRESSURE if signal is Signal.PID else DISK_PRESSURE
    for signal in Signal
}

RESOURCE_OF: Final = {
    signal: "memory"
    if signal in OF_MEMORY
    else "pids"
    if signal is Signal.PID
    else "inodes"
    if signal in OF_INODES
    else "ephemeral-storage"
    for signal in Signal
}
"""As the message of an evicted pod calls it."""


@dataclass(frozen=True, slots=True)
class SignalObservation:
    """What was seen of one signal: bytes or counts, and when."""

    available: int
    capacity: int
    at: float
