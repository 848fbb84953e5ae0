"""What a node may offer to pods: no more of anything than it did when it came first, unless an administrator allows it. Pure.

An agent that could raise its allocatable could draw any pod to it. What it registered with first is an annotation of the Node
that agents cannot write. An administrator raises it there, or deletes the Node.

Source: the rules for nodes in docs/nodes.md; Kubernetes has nothing like it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from rayched.api.errors import quoted
from rayched.api.quantity import QuantityError, milli_value
from rayched.v1.core_pb2 import Node
from rayched.v1.meta_pb2 import Quantity

SIZE_ANNOTATION: Final = "rayched.dev/registered-allocatable"


def note_first_size(node: Node, allocatable: Mapping[str, Quantity]) -> None:
    """Unless it is noted already."""
    if SIZE_ANNOTATION not in node.metadata.annotations and allocatable:
        amounts = {name: amount.string for name, amount in sorted(allocatable.items())}
        node.metadata.annotations[SIZE_ANNOTATION] = json.dumps(amounts, sort_keys=True)


def size_fault(node: Node, allocatable: Mapping[str, Quantity]) -> str:
    """What of it is more than the node may have; empty: nothing."""
    if SIZE_ANNOTATION not in node.metadata.annotations:
        return ""
    try:
        first = json.loads(node.metadata.annotations[SIZE_ANNOTATION])
        most = {name: milli_value(text) for name, text in first.items()}
    except (ValueError, AttributeError, TypeError, QuantityError) as error:
        return f"annotation {SIZE_ANNOTATION}: cannot be read ({error}); want an object of quantities by resource"
    faults = []
    for name, amount in sorted(allocatable.items()):
        if milli_value(amount.string) > most.get(name, 0):
            allowed = first.get(name, "0")
            faults.append(f"status.allocatable[{quoted(name)}]: found {amount.string}, allowed is up to {allowed}")
    if not faults:
        return ""
    return f"{'; '.join(faults)}, as it registered first (an administrator changes annotation {SIZE_ANNOTATION})"
