"""Tells the cluster of events: a thread of its own, so that neither pods nor their statuses wait for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

import grpc

from rayched.client.errors import ApiError
from rayched.client.node_agent import EVENTS_A_CALL, NodeAgentClient
from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.event_series import EventSeries
from rayched.v1.core_pb2 import Node, Pod

_RETRY_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 10.0
_RETRY_SECONDS_MAX: Final = 60.0
_LOST: Final = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.DATA_LOSS,
)
"""Refusals for good, of events of a pod that is gone for example, or cannot be read."""

log = logging.getLogger(__name__)


class EventReporter:
    """Start it once, stop it once. `of_pod` and `of_node` are for any thread; they never fail and never wait."""

    def __init__(self, client: NodeAgentClient, node: Node, clock: Callable[[], float], incarnation: Callable[[], int]) -> None:
        self._client = client
        self._node = node
        self._name = node.metadata.name
        self._clock = clock
        self._incarnation = incarnation
        self._lock = threading.Lock()
        self._series = EventSeries()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """What may be told goes out first."""
        self._stopped.set()
        self._wake.set()
        self._thread.join(seconds)

    def of_pod(self, pod: Pod, event: PodEvent) -> None:
        log.info("pod %s/%s: %s %s: %s", pod.metadata.namespace, pod.metadata.name, event.kind, event.reason, event.message)
        self._add(pod, event)

    def of_node(self, event: PodEvent) -> None:
        log.info("node %s: %s %s: %s", self._name, event.kind, event.reason, event.message)
        self._add(self._node, event)

    def _add(self, about: Node | Pod, event: PodEvent) -> None:
        with self._lock:
            self._series.add(about, event.kind, event.reason, event.message, self._clock())
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                wait = self._series.due(self._clock()) - self._clock()
            self._wake.wait(min(max(wait, _GATHER_SECONDS), _PATIENCE_SECONDS))
            self._wake.clear()
            self._stopped.wait(_GATHER_SECONDS)
            if self._incarnation():
                self._stopped.wait(self._tell())

    def _tell(self) -> float:
        """Seconds until something is tried again; 0: nothing has to be."""
        with self._lock:
            events = self._series.take(self._clock(), EVENTS_A_CALL)
        if not events:
            return 0.0
        wait = _RETRY_SECONDS
        try:
            outcomes = self._client.report_events(self._name, self._incarnation(), events)
        except ApiError as error:
            log.warning("events of node %s wait: %s", self._name, error)
            failed = [] if _is_lost(error) else events
            wait = _pause_after(error)
        else:
            found = [(event, refusal) for event, refusal in zip(events, outcomes, strict=True) if refusal is not None]
            failed = [event for event, refusal in found if not _is_lost(refusal)]
            wait = max((_pause_after(refusal) for _, refusal in found), default=wait)
            for event, refusal in found:
                if _is_lost(refusal):
                    log.info("event %s of %s %s is not told: %s", event.reason, event.kind, event.name, refusal)
        with self._lock:
            self._series.again(failed)
        return wait if failed else 0.0


def _is_lost(error: ApiError) -> bool:
    """Under the next incarnation what was refused to this one may be told."""
    return error.code in _LOST and error.superseded_incarnation is None


def _pause_after(error: ApiError) -> float:
    """As long as the cluster asks for: where etcd's space is used up that is a while."""
    return min(max(error.retry_after_seconds or 0.0, _RETRY_SECONDS), _RETRY_SECONDS_MAX)
