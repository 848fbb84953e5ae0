"""`rayched node` that is killed at one step: `python -m tests.nodes.dying_agent POINT node NAME ...`.

A real agent and a real SIGKILL. The step is done, or was about to be done, and nothing of the agent's that would follow.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from rayched.cli.main import main
from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.disk import PodDirectory
from rayched.nodes.agent.pod_life import PodLife
from rayched.nodes.agent.shim_link import ShimLink

POINTS: dict[str, tuple[type, str, bool, Callable[[Any, Any], bool]]] = {
    "accepted": (PodDirectory, "accept", True, lambda args, fields: True),
    "attempt made": (PodDirectory, "begin_attempt", True, lambda args, fields: True),
    "spec written": (PodDirectory, "write_spec", True, lambda args, fields: True),
    "start asked": (ShimLink, "ask", True, lambda args, fields: args[1] == "start"),
    "start answered": (PodLife, "started", False, lambda args, fields: True),
    "end heard": (PodLife, "ended", False, lambda args, fields: True),
    "end reported": (
        NodeAgentClient,
        "report_pods",
        True,
        lambda args, fields: any(one.status.phase in ("Failed", "Succeeded") for one in args[3]),
    ),
    "ending written": (PodDirectory, "save", True, lambda args, fields: args[1] == "ending"),
    "stop asked": (ShimLink, "ask", True, lambda args, fields: args[1] == "stop"),
    "removal reported": (NodeAgentClient, "report_pods", True, lambda args, fields: any(one.remove for one in args[3])),
}
"""By name: whose method, whether it is done before, and which of its calls it is about."""


def plant(point: str) -> None:
    owner, name, done_before, is_meant = POINTS[point]
    real = getattr(owner, name)

    def dies(*args: Any, **fields: Any) -> Any:
        if not is_meant(args, fields):
            return real(*args, **fields)
        if done_before:
            real(*args, **fields)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")

    setattr(owner, name, dies)


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    main()
