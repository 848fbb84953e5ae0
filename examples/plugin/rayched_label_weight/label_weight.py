"""LabelWeight: prefers nodes whose labels weigh more. The vectorised form: one call for all nodes.

Score: 100 times the weight of the labels that a node has, over the weight of all that count.
Cost: one comparison of a column for each label that counts. All pods share one column, kept until a node's labels change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rayched.snapshot.columns import Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod
from rayched_label_weight.arguments import weights_of


class LabelWeight:
    name = "LabelWeight"
    # What is read of nodes: a column is computed again for the nodes of which this has changed.
    reads = Log.LABELS

    def __init__(self, args: Any) -> None:
        self._weights = weights_of(args)
        self._total = sum(self._weights.values())

    def key(self, pod: Pod) -> tuple[()]:
        """What is read of the pod: nothing, so that all pods have the same column."""
        return ()

    def prepare(self, pod: Pod) -> None:
        return None

    def score(self, state: None, rows: Rows) -> ScoreColumn:
        """Shape (rows,), int64, 0..100."""
        found = np.zeros(rows.n, np.int64)
        for (key, value), weight in self._weights.items():
            number = rows.snapshot.label_value_id(value)
            if number is not None:
                found += np.where(rows.label(key) == number, weight, 0)
        return found * 100 // self._total
