"""The leader's writes about nodes and the pods on them: decisions as guarded transactions. No I/O; entries and time come in.

Each write is conditional on the object that was decided on, on what the decision rests on besides (the node's revision, or the
revision of its heartbeat), and, as the carrier sends them, on the epoch. It carries epoch, attempt and the revision that the view
had seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rayched.api.kinds import NODE
from rayched.api.readiness import cut_off
from rayched.api.termination import (
    DELETION_BY_POD_GC,
    DELETION_BY_TAINT_MANAGER,
    Ending,
    ask_to_end,
    end_object,
    mark_disrupted,
)
from rayched.controllers.node_lifecycle import EndKind, NodeEdit, PodEnd
from rayched.store.codec import decode_entry, encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.removals import removal
from rayched.store.transactions import GuardedPut, Write
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import Object

OP_TAINT: Final = "taint"
OP_EVICT: Final = "evict"
OP_FAIL: Final = "fail"
OP_STATUS: Final = "status"
_OPS: Final = {EndKind.EVICT: OP_EVICT, EndKind.FAIL: OP_FAIL, EndKind.NOT_READY: OP_STATUS, EndKind.REMOVE: OP_FAIL}


class NodeWrites:
    """Builds the writes of one leader's term; numbers its attempts."""

    def __init__(self, keys: Keys, incarnation: str) -> None:
        """`incarnation` is unlike that of any other process."""
        self._keys = keys
        self._incarnation = incarnation
        self._number = 0

    def of_node(self, edit: NodeEdit, epoch: int, revision: int) -> GuardedPut:
        """The node as it is to be; a lost one only while its heartbeat has not changed."""
        write = self._leader_write(OP_TAINT, epoch, revision)
        also = () if edit.heartbeat is None else ((self._keys.heartbeat(edit.name), edit.heartbeat),)
        value = encode(Object(node=edit.node), write)
        return GuardedPut(edit.facts.key, edit.facts.mod_revision, value, also=also, attempt=write.attempt)

    def of_pod(self, end: PodEnd, entry: Entry, records: Mapping[str, Entry], epoch: int, revision: int, wall: float) -> Write:
        """What becomes of the pod that `entry` holds. `records` are those of submissions, by uid."""
        pod, name = decode_entry(entry).pod, end.facts.node_name
        also = () if end.node_revision is None else ((self._keys.object_key(NODE, "", name), end.node_revision),)
        if end.heartbeat is not None:
            also = (*also, (self._keys.heartbeat(name), end.heartbeat))
        match end.end:
            case EndKind.EVICT:
                mark_disrupted(pod, DELETION_BY_TAINT_MANAGER, f"node {name} is tainted: {end.taints}", int(wall))
                gone = ask_to_end(pod, None, int(wall)) is Ending.REMOVE
            case EndKind.FAIL:
                mark_disrupted(pod, DELETION_BY_POD_GC, f"node {name} no longer exists", int(wall))
                pod.status.phase = "Failed"
                gone = False
            case EndKind.NOT_READY:
                cut_off(pod, int(wall))
                gone = False
            case EndKind.REMOVE:
                # One that its job has not counted becomes Failed, and goes when it is.
                gone = end_object(pod, int(wall)) is Ending.REMOVE
        if gone:
            uid = end.facts.uid
            return removal(entry.key, entry.mod_revision, uid, records.get(uid), int(wall * 1000), also)
        write = self._leader_write(_OPS[end.end], epoch, revision)
        return GuardedPut(entry.key, entry.mod_revision, encode(Object(pod=pod), write), also=also, attempt=write.attempt)

    def _leader_write(self, op: str, epoch: int, revision: int) -> LeaderWrite:
        self._number += 1
        attempt = f"{self._incarnation}-{op}-{self._number}"
        return LeaderWrite(op=op, epoch=epoch, attempt=attempt, decided_at_revision=revision)
