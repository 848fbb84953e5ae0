"""What the agent tells the cluster: the latest status of each pod, the node's status, signs of life. Three threads, none of the
loop's.

Of a pod only the latest status counts, so the queue is never longer than there are pods, however long no replica answers; then
all of it goes out at once. A refusal for good is told to the agent; anything else is tried again.
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
_SIGNS_A_GRACE: Final = 5
"""So many signs of life may be lost before the node counts as lost."""
_SUPERSEDED: Final = "superseded"
_AGAIN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)

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
        self._status: NodeStatus | None = None
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
            self._pods[update.uid] = update
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Statuses of pods that wait to be told."""
        with self._lock:
            return len(self._pods)

    def forget(self, uid: str) -> None:
        with self._lock:
            self._pods.pop(uid, None)

    def node(self, status: NodeStatus) -> None:
        with self._lock:
            self._status = status
        self._wake.set()

    def _report(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait()
            self._stopped.wait(_FLUSH_SECONDS)
            self._wake.clear()
            if self.incarnation and not self._flush():
                self._stopped.wait(_RETRY_SECONDS)
                self._wake.set()
            with self._lock:
                if not self._pods and self._status is None:
                    self._idle.set()

    def _flush(self) -> bool:
        """Whether nothing has to be tried again."""
        with self._lock:
            pods, self._pods = self._pods, {}
            status, self._status = self._status, None
        try:
            if status is not None:
                self._client.report_node(self._node, self.incarnation, status)
                status = None
            updates = list(pods.values())
            outcomes = self._client.report_pods(self._node, self.incarnation, updates) if updates else ()
        except ApiError as error:
            if _is_superseded(error):
                self._outcomes.superseded()
            log.warning("reports of node %s wait: %s", self._node, error)
            self._again(pods.values(), status)
            return False
        failed = [update for update, error in zip(updates, outcomes, strict=True) if not self._settle(update, error)]
        self._again(failed, None)
        return not failed

    def _settle(self, update: PodStatusUpdate, error: ApiError | None) -> bool:
        """Whether that is an answer; else it is told once more."""
        if error is not None and _is_superseded(error):
            self._outcomes.superseded()
            return False
        if error is not None and error.code in _AGAIN:
            return False
        self._outcomes.pod_reported(update, error)
        return True

    def _again(self, updates: Iterable[PodStatusUpdate], status: NodeStatus | None) -> None:
        with self._lock:
            for update in updates:
                self._pods.setdefault(update.uid, update)
            self._status = self._status or status

    def _live(self) -> None:
        while not self._stopped.is_set():
            if self.incarnation:
                sent_at = self._outcomes.clock()
                try:
                    answer = self._client.live(self._node, self.incarnation, timeout_seconds=self._heartbeat_seconds)
                except ApiError as error:
                    log.warning("node %s is not heard of: %s", self._node, error)
                else:
                    if answer.superseded:
                        self._outcomes.superseded()
                    elif answer.unknown:
                        self._outcomes.unknown()
                    else:
                        self._outcomes.acknowledged(sent_at)
            self._stopped.wait(self._heartbeat_seconds if self.incarnation else _FLUSH_SECONDS)


def _is_superseded(error: ApiError) -> bool:
    return error.code is grpc.StatusCode.FAILED_PRECONDITION and _SUPERSEDED in error.message
