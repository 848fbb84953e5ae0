"""Registers the node and follows its pods: one thread, whose findings are posted to the agent's loop.

A list is shown only when it is as new as the node's own registration, so that nothing is done for what was deleted before. A list
that fails shows nothing, and nothing is stopped because of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc

from rayched.client.errors import ApiError
from rayched.client.node_agent import NodeAgentClient
from rayched.client.watch import EventType, WatchStream
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import RegisterNodeRequest

_PAUSE_SECONDS: Final = 1.0
_BEHIND_SECONDS: Final = 0.05
_REFUSALS: Final = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FollowerPorts:
    """Called by the following thread; each of them only posts to the loop."""

    registered: Callable[[Node, int], None]
    refused: Callable[[ApiError], None]
    """The cluster does not let this agent have the node, or not any more."""
    listed: Callable[[list[Pod]], None]
    """All pods of the node."""
    changed: Callable[[Pod], None]
    gone: Callable[[Pod], None]


class NodeFollower:
    """Start it once, stop it once."""

    def __init__(self, client: NodeAgentClient, request: RegisterNodeRequest, ports: FollowerPorts) -> None:
        self._client = client
        self._request = request
        self._ports = ports
        self._node = request.node.metadata.name
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._registering = threading.Lock()
        self._incarnation = 0
        self._watch: WatchStream | None = None
        self._thread = threading.Thread(target=self._run, name="node-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        self._stopped.set()
        with self._lock:
            if self._watch is not None:
                self._watch.close()
        self._thread.join(seconds)

    def register(self) -> bool:
        """Once more, by whoever finds that the node is unknown or this incarnation over; whether it worked."""
        with self._registering:
            try:
                answer = self._client.begin(self._request)
            except ApiError as error:
                if error.code in _REFUSALS:
                    self._ports.refused(error)
                else:
                    log.warning("node %s is not registered yet: %s", self._node, error)
                return False
            # What was taken over once is this agent's own.
            self._request.take_over = False
            self._incarnation = answer.incarnation
            self._ports.registered(answer.node, answer.incarnation)
            return True

    def _run(self) -> None:
        while not self._stopped.is_set():
            if not self._incarnation and not self.register():
                self._stopped.wait(_PAUSE_SECONDS)
                continue
            try:
                self._follow()
            except ApiError as error:
                if error.code is not grpc.StatusCode.OUT_OF_RANGE:
                    log.warning("pods of node %s cannot be followed: %s", self._node, error)
                    self._stopped.wait(_PAUSE_SECONDS)

    def _follow(self) -> None:
        selector = f"spec.nodeName={self._node}"
        listing = self._client.list_all("pods", field_selector=selector)
        if listing.revision < self._incarnation:
            self._stopped.wait(_BEHIND_SECONDS)
            return
        self._ports.listed([pod for pod in listing.objects if isinstance(pod, Pod)])
        stream = self._client.watch("pods", field_selector=selector, start_revision=listing.revision + 1)
        with self._lock:
            self._watch = stream
        with stream:
            if self._stopped.is_set():
                return
            for event in stream:
                if isinstance(event.object, Pod):
                    (self._ports.gone if event.type is EventType.DELETED else self._ports.changed)(event.object)
