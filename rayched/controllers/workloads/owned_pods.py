"""What a controller knows of a pod, and the pods of one controller sorted by what has become of them.

| pod | in |
|---|---|
| has not ended, and nobody asked it to | `active` |
| has not ended, and was asked to | `terminating` |
| has ended, and the finalizer of its job says that it is not counted yet | `uncounted` |
| has ended otherwise | only in `every` |

A pod is in one of them at a time, so that what is decided costs what has changed and not what is there. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rayched.api.job_labels import COMPLETION_INDEX
from rayched.api.readiness import ready_since
from rayched.api.selectors import matches_all
from rayched.api.termination import FINAL_PHASES, is_tracked
from rayched.store.entries import Entry
from rayched.v1.core_pb2 import Pod

_STALE_MAX: Final = 64
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


class ControllerLink(NamedTuple):
    """A pod's reference to its controller. A copy: the message would keep the whole pod in memory."""

    api_version: str
    kind: str
    name: str
    uid: str
    block_owner_deletion: bool


@dataclass(frozen=True, slots=True, eq=False)
class OwnedPod:
    """A pod as it lies in the store, reduced to what is decided by. Times are the writers' wall clocks', in Unix seconds."""

    entry: Entry
    name: str
    uid: str
    labels: Mapping[str, str]
    owner: ControllerLink | None
    """Its controller. None: it has none."""
    node_name: str
    phase: str
    ready_since: float | None
    """None: it is not ready."""
    created_at: float
    ended_at: float
    """Of one that has ended; 0: nobody says."""
    deleting: bool
    tracked: bool
    """The finalizer of its job holds it."""
    index: int | None
    """Of a pod of an Indexed job; None: none that can be read."""
    restarts: int
    cost: int

    @property
    def key(self) -> bytes:
        return self.entry.key

    @property
    def ended(self) -> bool:
        return self.phase in FINAL_PHASES


def facts_of_pod(entry: Entry, pod: Pod) -> OwnedPod:
    metadata, status = pod.metadata, pod.status
    statuses = (*status.container_statuses, *status.init_container_statuses)
    annotations = metadata.annotations
    return OwnedPod(
        entry=entry,
        name=metadata.name,
        uid=metadata.uid,
        labels=dict(metadata.labels),
        owner=controller_link(pod),
        node_name=pod.spec.node_name,
        phase=status.phase,
        ready_since=ready_since(pod),
        created_at=float(metadata.creation_timestamp.seconds),
        ended_at=max((float(one.state.terminated.finished_at.seconds) for one in statuses), default=0.0),
        deleting=metadata.HasField("deletion_timestamp"),
        tracked=is_tracked(pod),
        index=_number(annotations[COMPLETION_INDEX]) if COMPLETION_INDEX in annotations else None,
        restarts=sum(one.restart_count for one in statuses),
        cost=(_number(annotations[DELETION_COST], signed=True) or 0) if DELETION_COST in annotations else 0,
    )


def controller_link(pod: Pod) -> ControllerLink | None:
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return ControllerLink(owner.api_version, owner.kind, owner.name, owner.uid, owner.block_owner_deletion)
    return None


def _number(text: str, *, signed: bool = False) -> int | None:
    digits = text[1:] if signed and text[:1] == "-" else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else None


@dataclass(slots=True, eq=False)
class PodSet:
    """The pods of one controller, by key."""

    every: dict[bytes, OwnedPod] = field(default_factory=dict)
    active: dict[bytes, OwnedPod] = field(default_factory=dict)
    terminating: dict[bytes, OwnedPod] = field(default_factory=dict)
    uncounted: dict[bytes, OwnedPod] = field(default_factory=dict)
    tracked: dict[bytes, OwnedPod] = field(default_factory=dict)
    """Those that the finalizer of their job holds, whatever has become of them."""
    names: set[str] = field(default_factory=set)
    n_ready: int = 0
    """Of the active ones, as the next one is."""
    n_restarts: int = 0
    listener: Callable[[OwnedPod | None, OwnedPod | None], None] | None = None
    """Is told of each pod that comes, changes or goes, as it was and as it is. There is one at most."""
    unlabelled: set[bytes] = field(default_factory=set)
    """Active ones that do not have all labels of the template."""
    ripening: dict[bytes, float] = field(default_factory=dict)
    """Active ones that are ready, and since when, until `ripen` has found them ready for long enough."""
    _ripe_next: list[tuple[float, bytes]] = field(default_factory=list)
    """A heap of those; what is not as in `ripening` is over."""
    _wanted: dict[str, str] = field(default_factory=dict)
    _min_ready_seconds: float = 0.0

    def put(self, pod: OwnedPod) -> None:
        old = self._take(pod.key)
        self.every[pod.key] = pod
        self.names.add(pod.name)
        if pod.tracked:
            self.tracked[pod.key] = pod
        if pod.ended:
            if pod.tracked:
                self.uncounted[pod.key] = pod
        elif pod.deleting:
            self.terminating[pod.key] = pod
        else:
            self.active[pod.key] = pod
            self._see(pod)
            self.n_ready += pod.ready_since is not None
            self.n_restarts += pod.restarts
        if self.listener is not None:
            self.listener(old, pod)

    def _see(self, pod: OwnedPod) -> None:
        if not matches_all(self._wanted, pod.labels):
            self.unlabelled.add(pod.key)
        if pod.ready_since is not None and self._min_ready_seconds:
            self.ripening[pod.key] = pod.ready_since
            heapq.heappush(self._ripe_next, (pod.ready_since, pod.key))
            if len(self._ripe_next) > 2 * len(self.ripening) + _STALE_MAX:
                self._ripe_next = [(since, key) for key, since in self.ripening.items()]
                heapq.heapify(self._ripe_next)

    def expect(self, labels: Mapping[str, str], min_ready_seconds: float) -> None:
        """What the template says; where that is new all active pods are looked at."""
        if (self._wanted, self._min_ready_seconds) == (labels, min_ready_seconds):
            return
        self._wanted, self._min_ready_seconds = dict(labels), min_ready_seconds
        self.unlabelled.clear()
        self.ripening.clear()
        self._ripe_next.clear()
        for pod in self.active.values():
            self._see(pod)

    def ripen(self, now: float) -> float | None:
        """Lets go who has been ready for long enough; when the next one will have been, None: there is none."""
        while self._ripe_next:
            since, key = self._ripe_next[0]
            if self.ripening.get(key) == since:
                if since + self._min_ready_seconds > now:
                    return since + self._min_ready_seconds
                del self.ripening[key]
            heapq.heappop(self._ripe_next)
        return None

    def remove(self, key: bytes) -> OwnedPod | None:
        pod = self._take(key)
        if pod is not None and self.listener is not None:
            self.listener(pod, None)
        return pod

    def _take(self, key: bytes) -> OwnedPod | None:
        pod = self.every.pop(key, None)
        if pod is None:
            return None
        self.names.discard(pod.name)
        if self.active.pop(key, None) is not None:
            self.n_ready -= pod.ready_since is not None
            self.n_restarts -= pod.restarts
        self.unlabelled.discard(key)
        for table in (self.ripening, self.tracked, self.terminating, self.uncounted):
            table.pop(key, None)
        return pod
