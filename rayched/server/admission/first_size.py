"""What a node may offer to pods: no more of anything than it did when it came first, unless an administrator allows it. Pure.

An agent that could raise its allocatable could draw any pod to it. What it registered with first is an annotation of the Node
(rayched/api/node_size.py) that agents cannot write. An administrator raises it there, or deletes the Node. Where the annotation
cannot be read the node may offer what it offers now: then nothing is raised, and no agent falls silent for it.

Source: the rules for nodes in docs/nodes.md; Kubernetes has nothing like it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rayched.api.errors import quoted
from rayched.api.node_size import SIZE_ANNOTATION, SizeTextError, sizes_of
from rayched.api.quantity import QuantityError, milli_value
from rayched.v1.core_pb2 import Node
from rayched.v1.meta_pb2 import Quantity


def note_first_size(node: Node, allocatable: Mapping[str, Quantity]) -> None:
    """Unless it is noted already."""
    if SIZE_ANNOTATION not in node.metadata.annotations and allocatable:
        amounts = {name: amount.string for name, amount in sorted(allocatable.items())}
        node.metadata.annotations[SIZE_ANNOTATION] = json.dumps(amounts, sort_keys=True)


def size_fault(node: Node, allocatable: Mapping[str, Quantity]) -> str:
    """What of it is more than the node may have; empty: nothing. Of what is no quantity validation tells."""
    if SIZE_ANNOTATION not in node.metadata.annotations:
        return ""
    whence = "as it registered first"
    try:
        first = sizes_of(node.metadata.annotations[SIZE_ANNOTATION])
    except SizeTextError as error:
        first = {name: amount.string for name, amount in node.status.allocatable.items()}
        whence = f"as it offers now, for the annotation {error}"
    faults = []
    for name, amount in sorted(allocatable.items()):
        allowed = first.get(name, "0")
        if _milli(amount.string) > _milli(allowed):
            faults.append(f"status.allocatable[{quoted(name)}]: found {amount.string}, allowed is up to {allowed}")
    if not faults:
        return ""
    return f"{'; '.join(faults)}, {whence} (an administrator changes annotation {SIZE_ANNOTATION})"


def _milli(text: str) -> int:
    try:
        return milli_value(text)
    except QuantityError:
        return 0
