"""SimpleLabelWeight: LabelWeight in the simple form, one call for each node. Fine for hundreds of nodes."""

from __future__ import annotations

from typing import Any

from rayched.framework.simple_plugin import NodeView
from rayched.snapshot.columns import Log
from rayched.v1.core_pb2 import Pod
from rayched_label_weight.arguments import weights_of


class SimpleLabelWeight:
    reads = Log.LABELS

    def __init__(self, args: Any) -> None:
        self._weights = weights_of(args)
        self._total = sum(self._weights.values())

    def score_node(self, pod: Pod, node: NodeView) -> int:
        """0 to 100."""
        labels = node.metadata.labels
        return sum(weight for (key, value), weight in self._weights.items() if labels.get(key) == value) * 100 // self._total
