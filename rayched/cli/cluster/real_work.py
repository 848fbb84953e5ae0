"""Pods that really run, while a demo kills its leader: what is submitted, where it may run, and what became of it.

The work is a pod that counts, ReplicaSets that serve and Jobs that end (`examples/work`). Its nodes are tainted, so that
nothing else of the demo runs there: its other pods have no command.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from rayched.api.kinds import POD, AnyObject, of_message
from rayched.api.termination import FINAL_PHASES
from rayched.cli.cluster.rehearsal import RehearsalFailed, StillWaiting, apply_all
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.replica.cluster.free_ports import free_port
from rayched.v1.core_pb2 import Pod, PodSpec, Taint
from rayched.v1.workloads_pb2 import Job, ReplicaSet

RUNS_PODS: Final = "rayched.dev/runs-pods"
"""Label and taint of the nodes: what runs there has to want it and to bear it."""
_LOOK_SECONDS: Final = 0.1
_END_SECONDS_MAX: Final = 10.0
_GRACE_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class Count:
    """What a pod wrote that counts from 1 on."""

    last: int
    skipped: int
    """Numbers that do not follow the one before: left out, twice, or from the beginning again."""
    pause_seconds: float
    """The longest between two numbers."""


@dataclass(frozen=True, slots=True)
class WorkFound:
    """What became of the work."""

    nodes: int
    """Nodes that pods ran on."""
    ran: int
    ended: int
    """Those of them that have succeeded."""
    failed: int
    restarts: int
    count: Count

    @property
    def words(self) -> list[str]:
        """What is wrong."""
        wrong = []
        if self.failed or self.restarts:
            wrong.append(f"of the pods that ran {self.failed} failed, and containers were restarted {self.restarts} times")
        if self.count.skipped or not self.count.last:
            wrong.append(f"the counter is at {self.count.last}, and {self.count.skipped} numbers do not follow the one before")
        return wrong


class RealWork:
    """Used by one thread. Whoever begins it ends it."""

    def __init__(self, client: Client, nodes: Sequence[str], objects: Iterable[AnyObject]) -> None:
        """Pods, ReplicaSets and Jobs; the first Pod is the one that counts. Raises ValueError where there is none."""
        self._client = client
        self._nodes = tuple(nodes)
        self.objects = [_pinned(item) for item in objects]
        counters = [item for item in self.objects if isinstance(item, Pod)]
        if not counters:
            raise ValueError("no Pod among the objects: one that counts is wanted")
        self._counter = counters[0]

    @property
    def lasting_pods(self) -> int:
        """How many go on when all is done: those of jobs have ended then."""
        return sum(map(_lasting_pods_of, self.objects))

    def begin(self) -> None:
        """Keeps other pods off the nodes, and submits. Raises ApiError, RehearsalFailed."""
        for node in self._nodes:
            self._client.taint(node, add=[Taint(key=RUNS_PODS, value="true", effect="NoSchedule")])
        apply_all(self._client, self.objects)

    def wait(self, seconds: float) -> None:
        """Until jobs are complete, replicas ready, and the counter counts. Raises ApiError, RehearsalFailed after the time."""
        deadline = time.monotonic() + seconds
        waiting = StillWaiting()
        while undone := [item for item in self.objects if not self._is_done(item)]:
            first = f"{undone[0].kind} {undone[0].metadata.name} is not where it should be"
            if time.monotonic() > deadline:
                raise RehearsalFailed(f"{first} after {seconds:.0f} s")
            waiting.tell(first)
            time.sleep(_LOOK_SECONDS)

    def found(self) -> WorkFound:
        pods = self._pods()
        statuses = [status for pod in pods for status in pod.status.container_statuses]
        ran = [pod for pod in pods if _ran(pod)]
        with self._client.logs(self._counter.metadata.name, self._counter.metadata.namespace, timestamps=True) as chunks:
            count = counted(b"".join(chunk.data for chunk in chunks).decode())
        return WorkFound(
            nodes=len({pod.spec.node_name for pod in ran}),
            ran=len(ran),
            ended=sum(pod.status.phase == "Succeeded" for pod in pods),
            failed=sum(pod.status.phase == "Failed" for pod in pods),
            restarts=sum(status.restart_count for status in statuses),
            count=count,
        )

    def end(self) -> None:
        """Deletes the work, and waits a little for its pods to end. Raises nothing: their nodes stop what is left."""
        with contextlib.suppress(ApiError):
            for item in self.objects:
                metadata = item.metadata
                self._client.delete(of_message(item), metadata.name, metadata.namespace, grace_period_seconds=_GRACE_SECONDS)
            deadline = time.monotonic() + _END_SECONDS_MAX
            while time.monotonic() < deadline and any(pod.status.phase not in FINAL_PHASES for pod in self._pods()):
                time.sleep(_LOOK_SECONDS)

    def _pods(self) -> list[Pod]:
        return [pod for pod in self._client.list(POD) if isinstance(pod, Pod) and pod.spec.node_name in self._nodes]

    def _is_done(self, item: AnyObject) -> bool:
        now = self._client.get(of_message(item), item.metadata.name, item.metadata.namespace)
        match now:
            case Pod():
                return _ran(now)
            case ReplicaSet():
                return now.status.ready_replicas == now.spec.replicas
            case Job():
                return any(one.type == "Complete" and one.status == "True" for one in now.status.conditions)
        raise AssertionError(now.kind)


def counted(text: str) -> Count:
    """Of lines with a time of RFC 3339, a space and a number."""
    lines = [line.split(" ") for line in text.splitlines()]
    numbers = [0, *(int(number) for _, number in lines)]
    times = [datetime.fromisoformat(time) for time, _ in lines]
    return Count(
        last=numbers[-1],
        skipped=sum(after != before + 1 for before, after in pairwise(numbers)),
        pause_seconds=max(((after - before).total_seconds() for before, after in pairwise(times)), default=0.0),
    )


def _ran(pod: Pod) -> bool:
    states = [status.state for status in pod.status.container_statuses]
    return any(state.HasField("running") or state.HasField("terminated") for state in states)


def _lasting_pods_of(item: AnyObject) -> int:
    match item:
        case ReplicaSet():
            return item.spec.replicas
        case Job():
            return 0
    return 1


def _pinned(item: AnyObject) -> AnyObject:
    """A copy whose pods run on the tainted nodes alone, and listen on a port that is free. Raises ValueError for other kinds."""
    if not isinstance(item, Pod | ReplicaSet | Job):
        raise ValueError(f"{item.kind} {item.metadata.name}: want a Pod, a ReplicaSet or a Job")
    copy = deepcopy(item)
    copy.metadata.namespace = copy.metadata.namespace or "default"
    spec: PodSpec = copy.spec if isinstance(copy, Pod) else copy.spec.template.spec
    spec.tolerations.add(key=RUNS_PODS, operator="Exists", effect="NoSchedule")
    terms = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    terms.add().match_expressions.add(key=RUNS_PODS, operator="Exists")
    for container in spec.containers:
        for variable in container.env:
            if variable.name == "PORT":
                port = free_port()
                variable.value = str(port)
                container.readiness_probe.http_get.port.int_value = port
    return copy
