"""Nodes that Ray has lost: their Nodes are deleted once nothing runs there any more, as no node of Ray gets such a name again.

The agent says so, by the phases of its pods. Where it cannot, because its host is dead, the Node stays: pods may run there still,
and nobody takes their place.

A pod that was bound at the last moment may never have begun, and nobody is left to say so of it. An agent whose last word was
that the node has shut down, with all pods ended, began none after that: such a pod holds the Node no longer. That word has to be
heard while it stands, for the cluster says of a node that is silent that nothing is known of it.
"""

from __future__ import annotations

import logging
from typing import Final

import grpc

from rayched.api.agents import SHUT_DOWN_MESSAGE
from rayched.api.termination import FINAL_PHASES
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Node, NodeCondition, Pod

LOOK_SECONDS: Final = 5.0
"""Much less than the 40 s after which a node counts as silent."""


class DepartedNodes:
    """`add` a name, and `turn` again and again. Times are of any monotonic clock."""

    def __init__(self, client: Client, log: logging.Logger) -> None:
        self._client = client
        self._log = log
        self._due: dict[str, float] = {}
        """By name, when it is looked at next."""
        self._shut_down: set[str] = set()
        """Whose agent's last word that was."""

    def add(self, name: str) -> None:
        """Whether it has a Node or not."""
        self._due.setdefault(name, float("-inf"))

    def turn(self, now: float) -> None:
        for name in [name for name, due in self._due.items() if due <= now]:
            if self._is_settled(name):
                del self._due[name]
                self._shut_down.discard(name)
            else:
                self._due[name] = now + LOOK_SECONDS

    def _is_settled(self, name: str) -> bool:
        try:
            node = self._client.get("node", name)
            pods = list(self._client.list("pods", field_selector=f"spec.nodeName={name}"))
            assert isinstance(node, Node)
            if not self._is_silent(node) or not all(isinstance(pod, Pod) and self._is_over(name, pod) for pod in pods):
                return False
            self._client.delete("node", name, uid=node.metadata.uid)
        except ApiError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return True
            self._log.warning("%s: whether its pods have ended is not known yet: %s", name, error)
            return False
        self._log.info("%s: nothing runs there any more, and its Node is deleted", name)
        return True

    def _is_silent(self, node: Node) -> bool:
        """Its agent does not say that it is ready, and did not until a moment ago. Keeps what it has said."""
        ready = next((one for one in node.status.conditions if one.type == "Ready"), NodeCondition())
        name = node.metadata.name
        if ready.status == "False" and ready.message == SHUT_DOWN_MESSAGE:
            self._shut_down.add(name)
        elif ready.status != "Unknown":
            # Its agent, or another one, has said something else since.
            self._shut_down.discard(name)
        return ready.status != "True"

    def _is_over(self, name: str, pod: Pod) -> bool:
        """It has ended, or has never begun and never will."""
        if pod.status.phase in FINAL_PHASES:
            return True
        has_begun = pod.status.phase not in ("", "Pending") or pod.status.HasField("start_time")
        return not has_begun and name in self._shut_down
