"""What administrators change: cordon, taints, labels, numbers of replicas, with kubectl's rules. Pure; objects change in place.

Each function raises EditRefused with one line. Whether anything changed is told by comparing before and after.

Source: `kubectl cordon`, `taint`, `label` and `scale` of 1.34.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.errors import quoted
from rayched.api.kinds import SCALED, AnyObject, of_message
from rayched.v1.core_pb2 import Node, ReplicationController, Taint
from rayched.v1.meta_pb2 import ObjectMeta
from rayched.v1.workloads_pb2 import Job, ReplicaSet, StatefulSet


class EditRefused(Exception):
    """The edit contradicts itself or the object as it is. The object may be half changed: to be thrown away."""


def edit_taints(node: Node, add: Iterable[Taint], remove: Iterable[Taint], overwrite: bool, now: Timestamp) -> None:
    """A taint is known by its key and effect. Removal without an effect removes all of the key."""
    add, remove = list(add), list(remove)
    taints = list(node.spec.taints)
    for gone in remove:
        if any(gone.key == taint.key and gone.effect in ("", taint.effect) for taint in add):
            raise EditRefused(f"taint {_name(gone)}: cannot be added and removed at once")
        kept = [taint for taint in taints if not (gone.key == taint.key and gone.effect in ("", taint.effect))]
        if len(kept) == len(taints):
            raise EditRefused(f"taint {_name(gone)}: the node does not have it")
        taints = kept
    for new in add:
        same = next((taint for taint in taints if (taint.key, taint.effect) == (new.key, new.effect)), None)
        if same is None:
            taint = Taint()
            taint.CopyFrom(new)
            if taint.effect == "NoExecute" and not taint.HasField("time_added"):
                taint.time_added.CopyFrom(now)
            taints.append(taint)
        elif same.value == new.value:
            continue
        elif not overwrite:
            raise EditRefused(f"taint {_name(new)}: the node has it with value {quoted(same.value)}, and overwrite is not set")
        else:
            same.value = new.value
    copies = [Taint.FromString(taint.SerializeToString()) for taint in taints]
    del node.spec.taints[:]
    node.spec.taints.extend(copies)


def edit_labels(metadata: ObjectMeta, add: Mapping[str, str], remove: Iterable[str], overwrite: bool) -> None:
    """Removing a label that is not there is no fault."""
    remove = list(remove)
    for key in remove:
        if key in add:
            raise EditRefused(f"label {quoted(key)}: cannot be set and removed at once")
    for key, wanted in sorted(add.items()):
        found = metadata.labels.get(key)
        if found is not None and found != wanted and not overwrite:
            raise EditRefused(f"label {quoted(key)}: has value {quoted(found)} already, and overwrite is not set")
    for key in remove:
        metadata.labels.pop(key, None)
    for key, wanted in add.items():
        metadata.labels[key] = wanted


def scale(message: AnyObject, replicas: int, expected: int | None) -> int:
    """How many pods a controller is to have, or a job runs at a time; gives how many it were. Scaled already is no fault."""
    if isinstance(message, Job):
        before = message.spec.parallelism if message.spec.HasField("parallelism") else 1
    elif isinstance(message, ReplicaSet | StatefulSet | ReplicationController):
        before = message.spec.replicas if message.spec.HasField("replicas") else 1
    else:
        raise EditRefused(f"a {of_message(message).name} cannot be scaled; want one of {', '.join(kind.name for kind in SCALED)}")
    if before == replicas:
        return before
    if expected is not None and before != expected:
        raise EditRefused(f"expected replicas to be {expected}, was {before}")
    if isinstance(message, Job):
        message.spec.parallelism = replicas
    else:
        message.spec.replicas = replicas
    message.metadata.generation += 1
    return before


def _name(taint: Taint) -> str:
    return f"{quoted(taint.key)}:{taint.effect}" if taint.effect else quoted(taint.key)
