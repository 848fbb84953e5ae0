"""Nodes that Ray has lost: their Nodes are deleted once nothing runs there any more, as no node of Ray gets such a name again.

The agent says so, by the phases of its pods. Where it cannot, because its host is dead, the Node stays: pods may run there still,
and nobody takes their place.
"""

from __future__ import annotations

import logging
from typing import Final

import grpc

from rayched.api.termination import FINAL_PHASES
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Node, Pod

LOOK_SECONDS: Final = 5.0


class DepartedNodes:
    """`add` a name, and `turn` again and again. Times are of any monotonic clock."""

    def __init__(self, client: Client, log: logging.Logger) -> None:
        self._client = client
        self._log = log
        self._due: dict[str, float] = {}
        """By name, when it is looked at next."""

    def add(self, name: str) -> None:
        """Whether it has a Node or not."""
        self._due.setdefault(name, float("-inf"))

    def turn(self, now: float) -> None:
        for name in [name for name, due in self._due.items() if due <= now]:
            if self._is_settled(name):
                del self._due[name]
            else:
                self._due[name] = now + LOOK_SECONDS

    def _is_settled(self, name: str) -> bool:
        try:
            node = self._client.get("node", name)
            pods = list(self._client.list("pods", field_selector=f"spec.nodeName={name}"))
            assert isinstance(node, Node)
            if _is_ready(node) or not all(isinstance(pod, Pod) and pod.status.phase in FINAL_PHASES for pod in pods):
                return False
            self._client.delete("node", name, uid=node.metadata.uid)
        except ApiError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return True
            self._log.warning("%s: whether its pods have ended is not known yet: %s", name, error)
            return False
        self._log.info("%s: nothing runs there any more, and its Node is deleted", name)
        return True


def _is_ready(node: Node) -> bool:
    """Its agent says so, or did until a moment ago."""
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
