"""What the node controller does between two requests to etcd: from what is known to guarded writes, and what became of them.

    deliveries ──▶ view ─┐
    heartbeats ──▶ ages ─┴▶ decide ──▶ what has to be read ──▶ writes ──▶ settle

Nothing is decided before the view has seen the own epoch: then it has seen all that was written under the epochs before. What was
not done is decided again.

No I/O, no clock and no lock: readings and times come in. Owner: one controller, while it leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rayched.controllers.cluster_view import ClusterView
from rayched.controllers.heartbeat_ages import HeartbeatAges
from rayched.controllers.node_lifecycle import EndKind, NodeEdit, NodeLifecycle, PodEnd
from rayched.controllers.node_settings import NodeSettings
from rayched.controllers.node_writes import NodeWrites
from rayched.controllers.zones import ZoneChange
from rayched.store.codec import decode_entry
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery
from rayched.store.revision_clock import RevisionClock
from rayched.store.transactions import Write
from rayched.v1.workloads_pb2 import Object


@dataclass(frozen=True, slots=True)
class CareDecision:
    """What is to be done under `epoch`, decided on the state of `revision`. `wall` is the wall clock's time, in seconds."""

    epoch: int
    revision: int
    wall: float
    edits: Sequence[NodeEdit]
    ends: Sequence[PodEnd]

    @property
    def pod_keys(self) -> list[bytes]:
        """What has to be read for the writes."""
        return [end.facts.key for end in self.ends]

    @property
    def record_uids(self) -> list[str]:
        """Pods that may go at once: the records of their submissions have to be read too."""
        return [end.facts.uid for end in self.ends if end.end in (EndKind.EVICT, EndKind.REMOVE) and _is_key_part(end.facts.uid)]


class NodeCare:
    """See the module."""

    RULE_THE_VIEW_REACHES_THE_EPOCH: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(
        self,
        keys: Keys,
        settings: NodeSettings,
        ages: HeartbeatAges,
        revisions: RevisionClock,
        writes: NodeWrites,
        decode: Callable[[Entry], Object] = decode_entry,
    ) -> None:
        """`ages`, `revisions` and `writes` outlive the lead. `decode` may share what it gives."""
        self.view = ClusterView(keys, decode)
        self._lifecycle = NodeLifecycle(settings, self.view, ages, revisions)
        self._writes = writes

    def deliver(self, delivery: Delivery) -> bool:
        """Takes in what the watch of the cluster delivered; whether there is something new to look at."""
        return self.view.deliver(delivery)

    def judge(self, now: float) -> ZoneChange:
        """After each reading of the heartbeats."""
        return self._lifecycle.judge(now) if self.view.complete else ZoneChange.NONE

    def decide(self, epoch: int | None, now: float, wall: float) -> CareDecision | None:
        """What is due, by a monotonic clock and the wall clock in seconds; None: nobody may decide anything now."""
        view = self.view
        if epoch is None or not view.complete or (view.revision < epoch and self.RULE_THE_VIEW_REACHES_THE_EPOCH):
            return None
        edits = self._lifecycle.edits_of_nodes(now, wall)
        return CareDecision(epoch, view.revision, wall, edits, self._lifecycle.ends_of_pods(now))

    def writes(self, decided: CareDecision, pods: Sequence[Entry | None], records: Mapping[str, Entry]) -> list[Write]:
        """`pods` as read at `pod_keys`, `records` by uid. Only pods that are still as they were decided on are written."""
        epoch, revision = decided.epoch, decided.revision
        writes: list[Write] = [self._writes.of_node(edit, epoch, revision) for edit in decided.edits]
        for end, entry in zip(decided.ends, pods, strict=True):
            if entry is not None and entry.mod_revision == end.facts.mod_revision:
                writes.append(self._writes.of_pod(end, entry, records, epoch, revision, decided.wall))
        return writes

    def settle(self, decided: CareDecision, done: Collection[bytes]) -> None:
        """The keys whose write was committed; all others are decided again."""
        for edit in decided.edits:
            if edit.facts.key not in done:
                self._lifecycle.not_done(edit.facts.key, edit.name)
        for end in decided.ends:
            if end.facts.key not in done:
                self._lifecycle.not_done(end.facts.key, end.facts.node_name)


def _is_key_part(uid: str) -> bool:
    return bool(uid) and "/" not in uid
