"""What the agent says of its node: conditions, told when they change and every five minutes otherwise. The agent's loop owns it.

Of pressures nothing is told before somebody has looked: an agent that begins anew takes none away that holds. Each registration
is told all of it again, whatever the cluster had before.

Source: kubelet's node status, Kubernetes 1.34; there a changed pressure may wait for 10 s, here it is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.node_object import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE, set_conditions
from rayched.v1.core_pb2 import ContainerImage, Node, NodeStatus

STATUS_SECONDS: Final = 10.0
UNCHANGED_STATUS_SECONDS: Final = 300.0
_IMAGES_MAX: Final = 50
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

    def __init__(
        self, node: Node, tell: Callable[[NodeStatus], None], event: Callable[[PodEvent], None], *, is_watched: bool = True
    ) -> None:
        """`node`: as it is registered first. `is_watched`: somebody looks for pressure; otherwise there never is any."""
        self.node = node
        self._name = node.metadata.name
        self._tell = tell
        self._event = event
        self._is_known = not is_watched
        """Whether somebody has looked."""
        self._pressures: list[str] = []
        self._faults: dict[str, str] = {}
        self._images: list[ContainerImage] = []
        self._said = b""
        self._said_at = 0.0
        self._was: dict[str, bool] = {}
        self.due = 0.0
        self.current = NodeStatus()
        """All conditions as they are now, in a message that never changes: any thread may read it. What nobody knows yet holds
        not."""
        self._note()

    @property
    def pressures(self) -> list[str]:
        return self._pressures

    def under(self, pressures: Iterable[str]) -> None:
        """Conditions that hold."""
        found = list(pressures)
        if found != self._pressures or not self._is_known:
            self._pressures, self._is_known = found, True
            self._note()
            self.due = 0.0

    def fault(self, what: str, text: str) -> None:
        """Why the node is not ready, by what is at fault; empty: that is in order again."""
        if self._faults.get(what, "") != text:
            self._faults[what] = text
            self._note()
            self.due = 0.0

    def has_images(self, images: Iterable[ContainerImage]) -> None:
        """The largest are told, with the next status."""
        self._images = sorted(images, key=lambda one: (-one.size_bytes, *one.names))[:_IMAGES_MAX]

    def registered(self) -> None:
        """What was told before may be gone."""
        self._said = b""
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
        conditions = [one for one in self.current.conditions if self._is_known or one.type == _READY]
        status = NodeStatus(conditions=conditions, images=self._images)
        said = status.SerializeToString(deterministic=True)
        if may_tell and (said != self._said or now - self._said_at >= UNCHANGED_STATUS_SECONDS):
            self._said, self._said_at = said, now
            self._tell(status)
            self._tell_changes()

    def _note(self) -> None:
        found = NodeStatus()
        set_conditions(found, self._pressures, self._present_faults())
        self.current = found

    def _present_faults(self) -> list[str]:
        return [text for _, text in sorted(self._faults.items()) if text]

    def _tell_changes(self) -> None:
        now = {_READY: not self._present_faults()}
        now |= {kind: kind in self._pressures for kind in (MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE)}
        for kind, holds in now.items():
            # As it begins a node is as it should be, which is worth telling of readiness alone.
            if self._was.get(kind, False) != holds:
                reason = _EVENTS[kind, holds]
                self._event(PodEvent("Normal", reason, f"Node {self._name} status is now: {reason}"))
        self._was = now
