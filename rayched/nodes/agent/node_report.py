"""What the agent says of its node: conditions, told when they change and every five minutes otherwise. The agent's loop owns it.

Source: kubelet's node status, Kubernetes 1.34; there a changed pressure may wait for 10 s, here it is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.node_object import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE, set_conditions
from rayched.v1.core_pb2 import Node, NodeStatus

STATUS_SECONDS: Final = 10.0
UNCHANGED_STATUS_SECONDS: Final = 300.0
_READY: Final = "Ready"
_EVENTS: Final = {
    (_READY, True): "NodeReady",
    (_READY, False): "NodeNotReady",
    (MEMORY_PRESSURE, True): "NodeHasInsufficientMemory",
    (MEMORY_PRESSURE, False): "NodeHasSufficientMemory",
    (DISK_PRESSURE, True): "NodeHasDiskPressure",
    (DISK_PRESSURE, False): "NodeHasNoDiskPressure",
    (PID_PRESSURE, True): "NodeHasInsufficientPID",
    (PID_PRESSURE, False): "NodeHasSufficientPID",
}


class NodeReport:
    """`tell` gets a status that is to be reported, `event` what has changed."""

    def __init__(self, node: str, tell: Callable[[NodeStatus], None], event: Callable[[PodEvent], None]) -> None:
        self._node = node
        self._tell = tell
        self._event = event
        self._pressures: list[str] = []
        self._faults: dict[str, str] = {}
        self._said = b""
        self._said_at = 0.0
        self._was: dict[str, bool] = {}
        self.due = 0.0

    @property
    def pressures(self) -> list[str]:
        return self._pressures

    def under(self, pressures: Iterable[str]) -> None:
        """Conditions that hold."""
        found = list(pressures)
        if found != self._pressures:
            self._pressures = found
            self.due = 0.0

    def fault(self, what: str, text: str) -> None:
        """Why the node is not ready, by what is at fault; empty: that is in order again."""
        if self._faults.get(what, "") != text:
            self._faults[what] = text
            self.due = 0.0

    def stored(self, node: Node) -> None:
        """As the cluster has it. Where it says otherwise, as of a node that was not heard of for a while, it is told again."""
        there = {one.type: one.status for one in node.status.conditions}
        if self._said and any(there.get(one.type) != one.status for one in NodeStatus.FromString(self._said).conditions):
            self._said = b""
            self.due = 0.0

    def turn(self, now: float, *, may_tell: bool) -> None:
        """To be called when `due` has come."""
        self.due = now + STATUS_SECONDS
        faults = [text for _, text in sorted(self._faults.items()) if text]
        status = NodeStatus()
        set_conditions(status, self._pressures, faults)
        said = status.SerializeToString(deterministic=True)
        if may_tell and (said != self._said or now - self._said_at >= UNCHANGED_STATUS_SECONDS):
            self._said, self._said_at = said, now
            self._tell(status)
            self._tell_changes(is_ready=not faults)

    def _tell_changes(self, *, is_ready: bool) -> None:
        now = {_READY: is_ready} | {kind: kind in self._pressures for kind in (MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE)}
        for kind, holds in now.items():
            # As it begins a node is as it should be, which is worth telling of readiness alone.
            if self._was.get(kind, False) != holds:
                reason = _EVENTS[kind, holds]
                self._event(PodEvent("Normal", reason, f"Node {self._node} status is now: {reason}"))
        self._was = now
