"""Registers the node and follows it and its pods: one thread, whose findings are posted to the agent's loop.

A state is shown only when it is as new as the node's own registration, and as all that was shown before: a replica may lag behind
the one before it. A watch that fails shows nothing, and nothing is stopped because of it; nor because of an object that is there
and cannot be read. One that ends as its incarnation is over is opened again under the next one alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc

from rayched.client.errors import ApiError
from rayched.client.node_agent import NodeAgentClient, NodeState, NodeWatch, UnreadableObject
from rayched.client.watching import EventType
from rayched.nodes.agent.agent_settings import AgentSettings
from rayched.nodes.agent.node_report import NodeReport
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import RegisterNodeRequest, RegisterNodeResponse

_PAUSE_SECONDS: Final = 1.0
_BEHIND_SECONDS: Final = 0.05
_REFUSALS: Final = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FollowerPorts:
    """Called by the following thread; each of them only posts to the loop."""

    registered: Callable[[RegisterNodeResponse, float], None]
    """With when the registration was sent."""
    refused: Callable[[ApiError], None]
    """The cluster does not let this agent have the node, or not any more."""
    superseded: Callable[[int], None]
    """This incarnation is over: by another agent, or by a later registration of this one."""
    listed: Callable[[NodeState, frozenset[str]], None]
    """With the uids of pods that may run on another machine, whose agent had the node before."""
    clock: Callable[[], float]
    changed: Callable[[Pod], None]
    gone: Callable[[Pod], None]
    node_changed: Callable[[Node | None], None]
    """None: its object is gone."""


class NodeRegistration:
    """What the agent registers with. One thread at a time."""

    def __init__(self, settings: AgentSettings, report: NodeReport, agent_id: str) -> None:
        self._report = report
        self._request = RegisterNodeRequest(
            node=report.node,
            agent_id=agent_id,
            machine_id=settings.machine.machine_id,
            boot_id=settings.machine.boot_id,
            agent_version=settings.version,
            address=settings.address,
            take_over=settings.take_over,
        )

    @property
    def node(self) -> str:
        """Its name."""
        return self._request.node.metadata.name

    def request(self) -> RegisterNodeRequest:
        """With the node's conditions as they are now."""
        conditions = self._request.node.status.conditions
        del conditions[:]
        conditions.extend(self._report.current.conditions)
        return self._request

    def begun(self, incarnation: int) -> None:
        """It worked."""
        # What was taken over once is this agent's own.
        self._request.take_over = False
        self._request.last_incarnation = incarnation


class NodeFollower:
    """Start it once, stop it once."""

    def __init__(self, client: NodeAgentClient, registration: NodeRegistration, ports: FollowerPorts) -> None:
        self._client = client
        self._registration = registration
        self._ports = ports
        self._node = registration.node
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._registering = threading.Lock()
        self._incarnation = 0
        self._begun = threading.Event()
        """There is a new one since the watch was opened, or it is all over."""
        self._replaced_before = 0
        self._as_new_as = 0
        """No older state is shown. 0: not registered yet."""
        self._watch: NodeWatch | None = None
        self._thread = threading.Thread(target=self._run, name="node-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        self._stopped.set()
        self._begun.set()
        with self._lock:
            if self._watch is not None:
                self._watch.close()
        self._thread.join(seconds)

    def register(self) -> bool:
        """Once more, by whoever finds that the node is unknown or this incarnation over; whether it worked."""
        with self._registering:
            sent_at = self._ports.clock()
            try:
                answer = self._client.begin(self._registration.request())
            except ApiError as error:
                if error.code in _REFUSALS:
                    self._ports.refused(error)
                else:
                    log.warning("node %s is not registered yet: %s", self._node, error)
                return False
            self._registration.begun(answer.incarnation)
            # It is newer than all that was seen, unless etcd was restored, and then that was of another history.
            self._as_new_as, self._replaced_before = answer.incarnation, answer.replaced_before
            self._incarnation = answer.incarnation
            self._begun.set()
            self._ports.registered(answer, sent_at)
            return True

    def _run(self) -> None:
        while not self._stopped.is_set():
            if not self._as_new_as and not self.register():
                self._stopped.wait(_PAUSE_SECONDS)
                continue
            self._begun.clear()
            incarnation = self._incarnation
            try:
                self._follow(incarnation)
            except ApiError as error:
                if error.superseded_incarnation is not None:
                    self._ports.superseded(incarnation)
                    # Where another agent has the node there is none, and nothing is followed any more.
                    self._begun.wait()
                elif error.code is not grpc.StatusCode.OUT_OF_RANGE:
                    log.warning("node %s cannot be followed: %s", self._node, error)
                    self._stopped.wait(_PAUSE_SECONDS)

    def _follow(self, incarnation: int) -> None:
        watch = self._client.watch_node(self._node, incarnation)
        with self._lock:
            self._watch = watch
        if self._stopped.is_set():
            return
        try:
            for found in watch:
                if self._stopped.is_set():
                    return
                if isinstance(found, NodeState):
                    if found.revision < self._as_new_as:
                        self._stopped.wait(_BEHIND_SECONDS)
                        return
                    self._as_new_as = found.revision
                    for one in found.unreadable:
                        _warn_of(one)
                    self._ports.listed(found, self._left_behind(found))
                    continue
                if isinstance(found, UnreadableObject):
                    _warn_of(found)
                    continue
                self._as_new_as = max(self._as_new_as, found.revision)
                gone = found.type is EventType.DELETED
                if isinstance(found.object, Pod):
                    (self._ports.gone if gone else self._ports.changed)(found.object)
                elif isinstance(found.object, Node):
                    self._ports.node_changed(None if gone else found.object)
        finally:
            watch.close()

    def _left_behind(self, state: NodeState) -> frozenset[str]:
        """Pods that were on the node when another machine had it."""
        before = self._replaced_before
        if not before:
            return frozenset()
        try:
            listing = self._client.list_all("pods", field_selector=f"spec.nodeName={self._node}", revision=before)
        except ApiError as error:
            if error.code is not grpc.StatusCode.OUT_OF_RANGE:
                raise
            # That revision was compacted. What did not change since was there then; what began may have begun elsewhere.
            old = (pod for pod in state.pods if int(pod.metadata.resource_version) <= before or pod.status.HasField("start_time"))
            return frozenset(pod.metadata.uid for pod in old)
        return frozenset(found.metadata.uid for found in listing.objects)


def _warn_of(found: UnreadableObject) -> None:
    log.warning("%s %s/%s cannot be read; what runs of it goes on", *found)
