"""What the agent tells the cluster: the latest status of each pod, the node's status, signs of life. Two threads, none of the
loop's.

Of a pod only the latest status counts, so the queue is never longer than there are pods, however long no replica answers; then
all of it goes out at once. A refusal for good is told to the agent; anything else is tried again.

Nobody waits for somebody else's fault: statuses of pods do not wait for the node's, and a call on many pods that is refused for
what is in it is made again in halves, until the one that is at fault stands alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import grpc

from rayched.client.errors import ApiError
from rayched.client.node_agent import NodeAgentClient
from rayched.v1.core_pb2 import NodeStatus
from rayched.v1.services_pb2 import PodStatusUpdate

_FLUSH_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 1.0
_REFUSED_SECONDS: Final = 10.0
"""What was refused as it stands is told again, as the cluster may be mended; but not as often."""
_SIGNS_A_GRACE: Final = 5
"""So many signs of life may be lost before the node counts as lost."""
_AGAIN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
_UNREADABLE: Final = grpc.StatusCode.DATA_LOSS
"""The pod's object is there and cannot be read, so its status waits."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReportOutcomes:
    """Called by the reporting threads; each of them only posts to the loop."""

    pod_reported: Callable[[PodStatusUpdate, ApiError | None], None]
    superseded: Callable[[], None]
    """This incarnation is over: by another agent, or by a later registration of this one."""
    unknown: Callable[[], None]
    """The node does not exist any more: it wants to be registered."""
    acknowledged: Callable[[float], None]
    """A sign of life that was sent then was taken."""
    unanswered: Callable[[], None]
    """One was not."""
    clock: Callable[[], float]


class Reporter:
    """Start it once, stop it once. `registered` comes before anything is reported."""

    def __init__(self, client: NodeAgentClient, node: str, heartbeat_seconds: float, outcomes: ReportOutcomes) -> None:
        self._client = client
        self._node = node
        self._heartbeat_seconds = heartbeat_seconds
        self._outcomes = outcomes
        self._lock = threading.Lock()
        self._pods: dict[str, PodStatusUpdate] = {}
        self._kept: dict[str, tuple[float, PodStatusUpdate]] = {}
        """Updates that failed, with when they are told again; none of a pod that has a newer one."""
        self._status: NodeStatus | None = None
        self._status_at = 0.0
        """When it is told."""
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._idle = threading.Event()
        self.incarnation = 0
        self._threads = [
            threading.Thread(target=self._report, name="node-reports", daemon=True),
            threading.Thread(target=self._live, name="node-heartbeats", daemon=True),
        ]

    def registered(self, incarnation: int, grace_seconds: float) -> None:
        """From now on it reports under that incarnation, and often enough for a cluster that bears so long a silence."""
        if grace_seconds:
            self._heartbeat_seconds = min(self._heartbeat_seconds, grace_seconds / _SIGNS_A_GRACE)
        self.incarnation = incarnation

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """What is to be told goes out first, for so long at most."""
        self._idle.clear()
        self._wake.set()
        self._idle.wait(seconds)
        self._stopped.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(seconds)

    def pod(self, update: PodStatusUpdate) -> None:
        with self._lock:
            self._kept.pop(update.uid, None)
            self._pods[update.uid] = update
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Statuses of pods that wait to be told."""
        with self._lock:
            return len(self._pods) + len(self._kept)

    def forget(self, uid: str) -> None:
        with self._lock:
            self._pods.pop(uid, None)
            self._kept.pop(uid, None)

    def node(self, status: NodeStatus) -> None:
        with self._lock:
            self._status, self._status_at = status, 0.0
        self._wake.set()

    def _report(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(self._seconds_left())
            self._stopped.wait(_FLUSH_SECONDS)
            self._wake.clear()
            if self.incarnation:
                self._flush()
            with self._lock:
                if not self._pods and not self._kept and self._status is None:
                    self._idle.set()

    def _seconds_left(self) -> float | None:
        """Until something is told again; None: nothing is."""
        with self._lock:
            times = [at for at, _ in self._kept.values()]
            if self._status is not None:
                times.append(self._status_at)
        return max(min(times) - self._outcomes.clock(), 0.0) if times and self.incarnation else None

    def _flush(self) -> None:
        now = self._outcomes.clock()
        with self._lock:
            for uid, (at, update) in list(self._kept.items()):
                if at <= now:
                    del self._kept[uid]
                    self._pods[uid] = update
            pods, self._pods = self._pods, {}
            status = self._status if self._status_at <= now else None
        if pods:
            self._tell_pods(list(pods.values()))
        if status is not None:
            self._tell_node(status)

    def _tell_node(self, status: NodeStatus) -> None:
        try:
            self._client.report_node(self._node, self.incarnation, status)
        except ApiError as error:
            seconds = self._pause_after(error)
            log.warning("the status of node %s waits for %g s: %s", self._node, seconds, error)
            with self._lock:
                if self._status is status:
                    self._status_at = self._outcomes.clock() + seconds
        else:
            with self._lock:
                if self._status is status:
                    self._status = None

    def _tell_pods(self, updates: list[PodStatusUpdate]) -> None:
        try:
            outcomes = self._client.report_pods(self._node, self.incarnation, updates)
        except ApiError as error:
            seconds = self._pause_after(error)
            if seconds == _REFUSED_SECONDS and len(updates) > 1:
                middle = len(updates) // 2
                self._tell_pods(updates[:middle])
                self._tell_pods(updates[middle:])
                return
            log.warning("%d statuses of pods on node %s wait for %g s: %s", len(updates), self._node, seconds, error)
            self._keep(updates, seconds)
        else:
            for update, refusal in zip(updates, outcomes, strict=True):
                self._settle(update, refusal)

    def _settle(self, update: PodStatusUpdate, error: ApiError | None) -> None:
        """Only an answer is told to the agent."""
        waits = error is not None and (error.code in _AGAIN or error.code is _UNREADABLE or _is_superseded(error))
        if error is None or not waits:
            self._outcomes.pod_reported(update, error)
            return
        seconds = self._pause_after(error)
        log.warning("the status of pod %s/%s waits for %g s: %s", update.namespace, update.name, seconds, error)
        self._keep([update], seconds)

    def _pause_after(self, error: ApiError) -> float:
        """Seconds until what failed so is told again."""
        if _is_superseded(error):
            # An answer to an older incarnation of this very agent says nothing about the present one.
            if error.superseded_incarnation == self.incarnation:
                self._outcomes.superseded()
            return _RETRY_SECONDS
        return _RETRY_SECONDS if error.code in _AGAIN else _REFUSED_SECONDS

    def _keep(self, updates: Iterable[PodStatusUpdate], seconds: float) -> None:
        at = self._outcomes.clock() + seconds
        with self._lock:
            for update in updates:
                if update.uid not in self._pods:
                    self._kept[update.uid] = at, update

    def _live(self) -> None:
        while not self._stopped.is_set():
            if incarnation := self.incarnation:
                sent_at = self._outcomes.clock()
                try:
                    answer = self._client.live(self._node, incarnation, timeout_seconds=self._heartbeat_seconds)
                except ApiError as error:
                    log.warning("node %s is not heard of: %s", self._node, error)
                    self._outcomes.unanswered()
                else:
                    if answer.superseded:
                        if incarnation == self.incarnation:
                            self._outcomes.superseded()
                    elif answer.unknown:
                        self._outcomes.unknown()
                    else:
                        self._outcomes.acknowledged(sent_at)
            self._stopped.wait(self._heartbeat_seconds if self.incarnation else _FLUSH_SECONDS)


def _is_superseded(error: ApiError) -> bool:
    return error.superseded_incarnation is not None
