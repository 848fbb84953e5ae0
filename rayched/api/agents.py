"""What kind of agent a node has: an annotation says it. Pure.

A hollow agent runs nothing, so its pods may be removed when it is not heard of. An agent that runs processes is the only one that
can say that they have ended.
"""

from __future__ import annotations

from typing import Final

from rayched.v1.core_pb2 import Node

AGENT_ANNOTATION: Final = "rayched.dev/agent"
HOLLOW: Final = "hollow"
"""A node that somebody else made is answered for as well when it has that annotation with this value."""
PROCESSES: Final = "processes"
INCARNATION_ANNOTATION: Final = "rayched.dev/incarnation"
"""Of the agent that registered last. Written after that registration, so whoever has seen it has seen all that was before."""

SHUT_DOWN_MESSAGE: Final = "node is shutting down, and all its pods have ended"
"""Of the condition Ready, as the agent's last word: nothing runs on the node, nor begins there unless it is ready again."""


def runs_processes(node: Node) -> bool:
    return node.metadata.annotations.get(AGENT_ANNOTATION) == PROCESSES
