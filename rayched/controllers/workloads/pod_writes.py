"""The writes of the workload controllers: decisions about pods as guarded transactions. No I/O; time and entries come in.

Each is conditional on the pod that was decided on and, as the carrier sends them, on the epoch. What makes a pod belong to a
controller is conditional on the controller too; what takes a pod whose controller is gone, on that being so still.

Source: PodControllerRefManager and the garbage collector of Kubernetes 1.34.
"""

from __future__ import annotations

from typing import Final

from rayched.api.termination import FINAL_PHASES, JOB_TRACKING, Ending, ask_to_end
from rayched.controllers.workloads.owned_pods import OwnedPod
from rayched.controllers.workloads.pod_making import refer_to
from rayched.controllers.workloads.workload_view import OWNERS, PodOwner, SeenGroup, WorkloadView
from rayched.store.codec import decode_entry, encode
from rayched.store.keys import Keys
from rayched.store.transactions import GuardedDelete, GuardedPut, Write
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import Object

OP_CREATE: Final = "create"
OP_ADOPT: Final = "adopt"
OP_RELEASE: Final = "release"
OP_DELETE: Final = "delete"
OP_COUNT: Final = "count"
"""The finalizer goes."""
OP_STATUS: Final = "workload"


class AttemptNumbers:
    """Numbers the writes of one process under one epoch after another."""

    def __init__(self, incarnation: str) -> None:
        """`incarnation` is unlike that of any other process."""
        self._incarnation = incarnation
        self._number = 0

    def next(self, op: str, epoch: int, revision: int) -> LeaderWrite:
        self._number += 1
        attempt = f"{self._incarnation}-{op}-{self._number}"
        return LeaderWrite(op=op, epoch=epoch, attempt=attempt, decided_at_revision=revision)


class PodWrites:
    """Those decided at one revision under one epoch."""

    def __init__(self, keys: Keys, view: WorkloadView, numbers: AttemptNumbers, epoch: int, wall: float) -> None:
        self._keys, self._view, self._numbers = keys, view, numbers
        self._epoch, self._wall = epoch, wall

    def next(self, op: str) -> LeaderWrite:
        return self._numbers.next(op, self._epoch, self._view.revision)

    def adoption(self, workload: PodOwner, found: OwnedPod) -> Write:
        """The pod becomes the workload's, which has to be as it was seen."""
        pod = decode_entry(found.entry).pod
        refer_to(pod, workload)
        return self._put(found, pod, OP_ADOPT, workload.condition)

    def release(self, found: OwnedPod) -> Write:
        """The pod is nobody's any more: its labels are no longer those that its controller selects."""
        pod = decode_entry(found.entry).pod
        kept = [owner for owner in pod.metadata.owner_references if not owner.controller]
        del pod.metadata.owner_references[:]
        pod.metadata.owner_references.extend(kept)
        return self._untracked(found, pod, OP_RELEASE)

    def deletion(self, found: OwnedPod, *, tracked: bool, also: tuple[tuple[bytes, int], ...] = ()) -> Write:
        """The pod is to end. `tracked`: its job is to count it; else the finalizer goes with the same write.

        `also` has the controller of a pod that was chosen among others: a deletion of which nobody knows what became of it could
        else still arrive when others have been chosen.
        """
        pod = decode_entry(found.entry).pod
        if not tracked:
            _untrack(pod)
        if ask_to_end(pod, None, int(self._wall)) is Ending.REMOVE:
            return GuardedDelete(found.key, found.entry.mod_revision, also)
        return self._put(found, pod, OP_DELETE, also)

    def counted(self, found: OwnedPod) -> Write:
        """The finalizer goes, and with it a pod that only it held."""
        return self._untracked(found, decode_entry(found.entry).pod, OP_COUNT)

    def of_stray(self, found: OwnedPod) -> Write:
        """The end of a pod whose controller is gone; one that does not depend on it only loses the finalizer of its job."""
        owner = found.owner
        assert owner is not None
        namespace = self._namespace(found)
        key = self._keys.object_key(OWNERS[owner.api_version, owner.kind], namespace, owner.name)
        also = ((key, self._view.revision_at(key)),)
        if owner.block_owner_deletion:
            return self.deletion(found, tracked=False, also=also)
        return self._untracked(found, decode_entry(found.entry).pod, OP_COUNT, also)

    def of_owner(self, workload: PodOwner, item: Object) -> GuardedPut:
        """The workload itself, with its next status or as it is."""
        write, entry = self.next(OP_STATUS), workload.entry
        return GuardedPut(entry.key, entry.mod_revision, encode(item, write), attempt=write.attempt)

    def of_stray_group(self, group: SeenGroup, job: bytes) -> Write:
        """The end of the group of a job that is gone."""
        return GuardedDelete(group.entry.key, group.entry.mod_revision, ((job, self._view.revision_at(job)),))

    def _namespace(self, found: OwnedPod) -> str:
        name = self._keys.parse(found.key)
        assert name is not None
        return name.namespace

    def _untracked(self, found: OwnedPod, pod: Pod, op: str, also: tuple[tuple[bytes, int], ...] = ()) -> Write:
        _untrack(pod)
        over = not pod.spec.node_name or pod.status.phase in FINAL_PHASES
        if pod.metadata.HasField("deletion_timestamp") and over:
            return GuardedDelete(found.key, found.entry.mod_revision, also)
        return self._put(found, pod, op, also)

    def _put(self, found: OwnedPod, pod: Pod, op: str, also: tuple[tuple[bytes, int], ...] = ()) -> GuardedPut:
        write = self.next(op)
        value = encode(Object(pod=pod), write)
        return GuardedPut(found.key, found.entry.mod_revision, value, also=also, attempt=write.attempt)


def _untrack(pod: Pod) -> None:
    kept = [finalizer for finalizer in pod.metadata.finalizers if finalizer != JOB_TRACKING]
    del pod.metadata.finalizers[:]
    pod.metadata.finalizers.extend(kept)
