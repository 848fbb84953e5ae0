"""Ends the watch of an agent when another one has registered its node: what it saw would not be its own any more.

A registration writes the node's object behind its own incarnation, so the hub tells of it, and etcd is asked only where the
object names another incarnation than the watch's. Nothing that comes behind that object reaches the older agent.

Cost: a look-up a response; one read at etcd when the watch is opened.
"""

from __future__ import annotations

from rayched.api.agents import INCARNATION_ANNOTATION
from rayched.server.objects import CallTarget
from rayched.server.services.incarnations import Incarnations
from rayched.server.watching.watch_hub import WatchHub
from rayched.v1.core_pb2 import Node


class NodeWatchFence:
    """Of one stream. `incarnation` 0: its caller has none."""

    def __init__(self, incarnations: Incarnations, target: CallTarget, incarnation: int) -> None:
        self._incarnations = incarnations
        self._target = target
        self._incarnation = incarnation
        self._looked_at = 0
        """The revision of the node's object that was looked at last."""

    async def at_the_start(self) -> None:
        """Raises FAILED_PRECONDITION, which says which incarnation is over."""
        await self._incarnations.refuse_superseded(self._target, self._incarnation)

    async def check(self, hub: WatchHub) -> None:
        """Before a response is sent. Raises as `at_the_start`."""
        entry = hub.find(self._target.key)
        if entry is None or entry.mod_revision == self._looked_at:
            return
        node = hub.encoder.message(entry)
        named = node.metadata.annotations.get(INCARNATION_ANNOTATION, "") if isinstance(node, Node) else "?"
        if named != str(self._incarnation or ""):
            # The object may be older than this incarnation, and anybody may have written there.
            await self._incarnations.refuse_superseded(self._target, self._incarnation)
        self._looked_at = entry.mod_revision
