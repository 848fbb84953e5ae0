"""What a replica gives a SchedulerActor, and what it gets from it: plain values, which cross a process border."""

from __future__ import annotations

from dataclasses import dataclass

from rayched.actors.configured import ProfilesText
from rayched.actors.log_sending import LogTarget
from rayched.core.explaining import PodLook
from rayched.queue.flags import DEFAULT_FLAGS, QueueFlags
from rayched.scheduler.scheduler import Draws
from rayched.snapshot.allocated_rows import AllocatedRows


@dataclass(frozen=True)
class SchedulerActorConfig:
    """What a SchedulerActor needs to know."""

    etcd_endpoints: tuple[str, ...]
    root: str
    belief_path: str
    profiles: ProfilesText
    seed: int
    shard_always: bool = False
    """Ask the workers for every full evaluation, however small."""
    queue_flags: QueueFlags = DEFAULT_FLAGS
    """For the queue that goes with the scheduler."""
    logs: LogTarget | None = None
    """Of the actors; None: only Ray's own files."""
    identity: str = ""
    """Of the replica, as its Events name it."""


@dataclass(frozen=True)
class WorkerPlace:
    """Where a worker runs."""

    pid: int
    host: str
    ray_node: str
    """As Ray calls the node of its cluster."""
    pid_space: str
    """The pid means something only where this is the same."""


@dataclass(frozen=True)
class WorkerCounts:
    """What a worker has done for one scheduler."""

    name: str
    evaluations: int
    rows: int
    """Of columns."""
    seconds: float
    """That it computed."""
    under_way: int
    """Questions that are not answered yet."""


@dataclass(frozen=True)
class SchedulerStatus:
    """What the scheduler is doing, as of one moment."""

    leads: bool
    epoch: int
    revision: int
    nodes: int
    bound_pods: int
    assumed_pods: int
    pending_pods: dict[str, int]
    attempts: dict[str, int]
    worker_evaluations: int
    worker_local_evaluations: int
    handover_seconds: float
    """What handing an evaluation over to workers takes."""
    pool: tuple[WorkerCounts, ...]
    """In the order in which the scheduler was told of its workers."""
    events: dict[str, int]
    """Written and dropped."""
    attempt_durations: list[int]
    """Of bound pods, by ATTEMPT_BUCKETS of attempt_metrics.py."""
    sli_durations: list[int]
    """The same by SLI_BUCKETS."""
    pid: int


@dataclass(frozen=True)
class PlanBasis:
    """What of the scheduler decides where all else is equal, as of one moment."""

    leads: bool
    revision: int
    draws: Draws
    rows: tuple[str, ...]
    """Names of the nodes by row; "" is a row without a node."""


@dataclass(frozen=True)
class Allocated:
    """What pods take up on some nodes, as of one moment. A standby knows it, too."""

    revision: int
    rows: AllocatedRows


@dataclass(frozen=True)
class Explained:
    """What was found about a pod, to be put into words by whoever asked; or why it cannot be explained."""

    leads: bool
    look: PodLook | None
    problem: str = ""
