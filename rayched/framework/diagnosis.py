"""Why no node is feasible: the first failing filter of each node, counted per reason, and the message that users read.

    0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint {gpu: }.

Source: Diagnosis and FitError of kube-scheduler 1.34. Reasons are sorted as texts, counts included. A rejection by PreFilter
stands for all nodes and is printed once, without a count. Nodes that PreFilter left out have no failing plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.framework.status import Status
from rayched.snapshot.columns import CodeColumn

NO_NODES: Final = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What kept a pod off the nodes. Columns have the shape (n_rows,)."""

    n_nodes: int
    pre_filter: Status
    """SUCCESS, or PreFilter's rejection; then the rest is empty."""
    reasons: Mapping[str, int]
    """Each reason with the number of nodes it holds for; a node has one or more."""
    unschedulable_plugins: frozenset[str]
    """Plugins that rejected a node, or the pod as a whole, or left nodes out."""
    pending_plugins: frozenset[str]
    """Plugins that keep the pod waiting for something outside the cluster."""
    codes: CodeColumn
    """The code that keeps the pod off each row; SUCCESS where it is feasible, and for rows that are no nodes."""
    failing: NDArray[np.int16]
    """The place in `filters` of the first filter that rejects the row; -1 where none does."""
    filters: tuple[str, ...] = field(default=())
    """Names of the filters that were asked, in their order."""
    rejections: Mapping[str, int] = field(default_factory=dict)
    """Nodes by the first plugin that keeps the pod off them; plugins that left nodes out together are named together."""

    def message(self) -> str:
        """The sentence that says so; what PostFilter adds comes after it."""
        if not self.n_nodes:
            return NO_NODES
        if not self.pre_filter.ok:
            return f"0/{self.n_nodes} nodes are available: {self.pre_filter.message()}."
        return none_available(self.n_nodes, self.reasons)


def none_available(n_nodes: int, reasons: Mapping[str, int]) -> str:
    """The sentence, from each reason with the number of nodes it holds for."""
    text = f"0/{n_nodes} nodes are available:"
    counted = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"{text} {', '.join(counted)}." if counted else text


def left_out_by(narrowing: Iterable[str]) -> str:
    """The reason of nodes that PreFilter left out."""
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}]"


def nothing_left_by(narrowing: Iterable[str]) -> str:
    """The reason of a pod for which PreFilter left no node at all."""
    plugins = sorted(narrowing)
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}] simultaneously"
