"""percentageOfNodesToScore: look for so many feasible nodes and no more, and begin the next search where this one ended.

By default all nodes are looked at, as that is cheap here; then nothing of this module is used. With a lower percentage the pod
goes to the best of the first feasible nodes in the order of `node_order`, beginning at a start that moves on with each search, so
that all nodes get their turn. 0 stands for a share that shrinks from 50 % with the size of the cluster, to 5 % at the least. Up
to 100 feasible nodes nothing is left out.

A low percentage (below 10) makes choices poor: prefer 100.

Source: numFeasibleNodesToFind, findNodesThatPassFilters, nextStartNodeIndex of kube-scheduler 1.34, as it works with one thread:
a search ends before the first feasible node that is one too many. PreFilter's nodes are searched in the same order.
Cost: a few passes over the nodes, and a second evaluation of the scores.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rayched.engine.evaluation import Evaluation
from rayched.scheduler.node_order import NodeOrder
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.table import NodeTable

FEASIBLE_MIN: Final = 100
"""So many feasible nodes are looked for at least, whatever the percentage."""
ADAPTIVE_START: Final = 50
ADAPTIVE_NODES_PER_PERCENT: Final = 125
"""The adaptive share loses one percent for each so many nodes."""
ADAPTIVE_MIN: Final = 5
ALL: Final = 100


def n_feasible_to_find(percentage: int, n_nodes: int) -> int:
    """How many feasible nodes are enough among so many."""
    if n_nodes < FEASIBLE_MIN or percentage >= ALL:
        return n_nodes
    share = percentage or max(ADAPTIVE_MIN, ADAPTIVE_START - n_nodes // ADAPTIVE_NODES_PER_PERCENT)
    return max(FEASIBLE_MIN, n_nodes * share // ALL)


class Sampling:
    """Where the next search begins; one for all profiles of a scheduler."""

    __slots__ = ("_order", "_table", "start")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._order = NodeOrder(table)
        self.start = 0
        """Place in the order of nodes."""

    def left_out(self, percentage: int, evaluation: Evaluation) -> RowIndex | None:
        """Feasible rows that this search does not reach; None: it reaches all. The start moves on."""
        order = self._order.rows()
        n_all = len(order)
        if evaluation.narrowed is not None:
            chosen = [row for row in map(self._table.row_of, evaluation.narrowed) if row is not None]
            order = order[np.isin(order, chosen)]
        n_nodes = len(order)
        if not n_nodes:
            return None
        searched = np.roll(order, -(self.start % n_nodes))
        feasible = evaluation.feasible[searched].nonzero()[0]
        enough = n_feasible_to_find(percentage, n_nodes)
        n_searched = int(feasible[enough]) if len(feasible) > enough else n_nodes
        self.start = (self.start + n_searched) % n_all
        return searched[feasible[enough:]] if len(feasible) > enough else None
