"""NodeResourcesBalancedAllocation: prefer nodes whose resources would be used in equal shares with this pod.

Score: 100 * (1 - standard deviation of the shares used), cut to an integer; a share above 1 counts as 1, a resource of which the
node has none does not count. A pod that requests none of the resources is skipped: it would be drawn to the best balanced node
for no reason.

Source: NodeResourcesBalancedAllocationArgs, kube-scheduler 1.34. Floats in its order of operations: two shares use half their
distance, more the root of the mean square.
Cost: about nine numpy calls for cpu and memory where every node has both, twice that and four a resource for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.api.resources import balanced_requests
from rayched.framework import names
from rayched.framework.accelerated import StackingPlugin
from rayched.framework.plugin import MAX_NODE_SCORE, PodPart, PodReadingPlugin, ScorePlugin
from rayched.framework.plugin_args import NodeResourcesBalancedAllocationArgs
from rayched.plugins.node_resources.scoring import CPU_AND_MEMORY, place_to_score
from rayched.snapshot.columns import Log, ResourceTable, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import MEMORY
from rayched.v1.core_pb2 import Pod

FloatColumn = NDArray[np.float64]
FloatTable = NDArray[np.float64]
"""Shape (resources, rows)."""


@dataclass(frozen=True, slots=True)
class BalancedState:
    amounts: tuple[int, ...]
    """Milli-CPU, bytes or counts, in the order of the arguments' resources."""
    column: NDArray[np.int64]
    """The same. Shape (resources, 1); of many keys (.., keys)."""


class NodeResourcesBalancedAllocation(StackingPlugin, ScorePlugin, PodReadingPlugin):
    name: Final = names.NODE_RESOURCES_BALANCED_ALLOCATION
    reads: Final = Log.USAGE
    reads_pod: Final = PodPart.LEAST

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = tuple(resource.name for resource in args.resources)

    def key(self, pod: Pod) -> tuple[int, ...] | None:
        amounts = self._amounts(pod)
        return amounts if any(amounts) else None

    def prepare(self, pod: Pod) -> BalancedState:
        amounts = self._amounts(pod)
        return BalancedState(amounts, np.array(amounts, np.int64)[:, None])

    def stack(self, states: Sequence[BalancedState]) -> BalancedState | None:
        """Requests side by side in place of rows."""
        if self._resources != CPU_AND_MEMORY:
            return None
        if len(states) == 1:
            return states[0]
        return BalancedState((), np.concatenate([state.column for state in states], axis=1))

    def _amounts(self, pod: Pod) -> tuple[int, ...]:
        return balanced_requests(pod, self._resources)

    def score(self, state: BalancedState, rows: Rows) -> ScoreColumn:
        """Shape (rows,), int64, 0..100."""
        if self._resources == CPU_AND_MEMORY:
            capacity = rows.allocatable[: MEMORY + 1]
            used = rows.requested[: MEMORY + 1] + state.column
            if np.count_nonzero(capacity) == capacity.size:
                shares = used / capacity
                np.minimum(shares, 1.0, out=shares)
                deviation = _half_distance(shares)
            else:
                deviation = _half_distance(_shares(used, capacity))
                deviation *= np.logical_and(capacity[0], capacity[1])
        else:
            places = [
                (i, place)
                for i, (name, amount) in enumerate(zip(self._resources, state.amounts, strict=True))
                if (place := place_to_score(name, amount, rows)) is not None
            ]
            capacity = rows.allocatable[[place for _, place in places]]
            used = rows.requested[[place for _, place in places]] + state.column[[i for i, _ in places]]
            deviation = _deviation(_shares(used, capacity), capacity)
        np.subtract(1.0, deviation, out=deviation)
        deviation *= float(MAX_NODE_SCORE)
        return deviation.astype(np.int64)


def _shares(used: ResourceTable, capacity: ResourceTable) -> FloatTable:
    """Used shares, at most 1; 0 of a resource that is not there. Shape (resources, rows)."""
    shares = used / np.maximum(capacity, 1)
    np.minimum(shares, 1.0, out=shares)
    shares *= capacity > 0
    return shares


def _half_distance(shares: FloatTable) -> FloatColumn:
    """The standard deviation of two shares. Shape (rows,)."""
    distance: FloatColumn = shares[0] - shares[1]
    np.abs(distance, out=distance)
    distance *= 0.5
    return distance


def _deviation(shares: FloatTable, capacity: ResourceTable) -> FloatColumn:
    """Standard deviation over the resources that are there, on each row; 0 for fewer than two. Shape (rows,).

    A share that is not there is 0.0, which leaves sums as they are.
    """
    there = capacity > 0
    counts = there.sum(0)
    total = np.zeros(shares.shape[1], np.float64)
    for share in shares:
        total += share
    mean = total / np.maximum(counts, 1)
    squares = np.zeros(shares.shape[1], np.float64)
    for share, offered in zip(shares, there, strict=True):
        squares += (share - mean) * (share - mean) * offered
    # Of two shares half the distance is taken, which is not the same to the last bit.
    largest = shares.max(0, initial=0.0)
    smallest = np.where(there, shares, 1.0).min(0, initial=1.0)
    of_two = (largest - smallest) * 0.5
    return np.where(counts > 2, np.sqrt(squares / np.maximum(counts, 1)), np.where(counts == 2, of_two, 0.0))
