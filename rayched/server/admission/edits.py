"""What administrators change on nodes and labels: cordon, taints, labels, with kubectl's rules. Pure; objects change in place.

Each function raises EditRefused with one line. Whether anything changed is told by comparing before and after.

Source: `kubectl cordon`, `taint` and `label` of 1.34.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.errors import quoted
from rayched.v1.core_pb2 import Node, Taint
from rayched.v1.meta_pb2 import ObjectMeta


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


def _name(taint: Taint) -> str:
    return f"{quoted(taint.key)}:{taint.effect}" if taint.effect else quoted(taint.key)
