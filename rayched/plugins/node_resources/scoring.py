"""Strategies that turn the use of a node's resources into 0..100: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

A strategy gets tables of shape (resources, rows) of what would be used with the pod and of what there is, and the resources'
weights. A resource of which a node has none does not count on that node. All values are int64 and not negative; divisions cut.

Source: NodeResourcesFit's scoring strategies, kube-scheduler 1.34.
Cost: six to twelve numpy calls, whatever the number of resources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rayched.api.resources import is_scalar
from rayched.framework.plugin import MAX_NODE_SCORE
from rayched.framework.plugin_args import ShapePoint
from rayched.snapshot.columns import ResourceTable, ScoreColumn
from rayched.snapshot.rows import Rows

CPU_AND_MEMORY: Final = ("cpu", "memory")
"""The default, whose places in all tables are the first two."""
BASIC_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources that count also for pods that request none of them."""
MAX_UTILIZATION: Final = 100
MAX_SHAPE_SCORE: Final = 10
"""The highest score in a shape; scores there are scaled to MAX_NODE_SCORE."""

Weights: TypeAlias = NDArray[np.int64]
"""Shape (resources,)."""
ResourceScorer: TypeAlias = Callable[[ResourceTable, ResourceTable, Weights], ScoreColumn]


def place_to_score(name: str, amount: int, rows: Rows) -> int | None:
    """Where a resource stands in the resource tables; None where it does not count for a pod that requests `amount` of it."""
    if name not in BASIC_RESOURCES and (amount == 0 or not is_scalar(name)):
        return None
    return rows.resource(name)


def least_allocated(used: ResourceTable, capacity: ResourceTable, weights: Weights) -> ScoreColumn:
    """Weighted mean of the free share in percent; 0 for a resource that is over capacity. Shape (rows,)."""
    share = capacity - used
    np.maximum(share, 0, out=share)
    return _mean(share, capacity, weights)


def most_allocated(used: ResourceTable, capacity: ResourceTable, weights: Weights) -> ScoreColumn:
    """Weighted mean of the used share in percent; 100 for a resource that is over capacity. Shape (rows,)."""
    return _mean(np.minimum(used, capacity), capacity, weights)


def _mean(share: ResourceTable, capacity: ResourceTable, weights: Weights) -> ScoreColumn:
    """Weighted mean of 100 * share / capacity over the resources of which the node has any. Shape (rows,).

    Of a resource that is not there the share is 0, so any divisor does. Mostly all are there, which takes half of the calls.
    """
    share *= MAX_NODE_SCORE
    if np.count_nonzero(capacity) == capacity.size:
        share //= capacity
        everywhere: ScoreColumn = weights @ share
        everywhere //= max(sum(weights.tolist()), 1)
        return everywhere
    share //= np.maximum(capacity, 1)
    total: ScoreColumn = weights @ share
    total //= np.maximum(weights @ (capacity > 0), 1)
    return total


def requested_to_capacity_ratio(shape: Sequence[ShapePoint]) -> ResourceScorer:
    """The strategy for one shape, tabulated over whole percents of utilization.

    The weighted mean leaves out resources whose score is 0 and is rounded half up.
    """
    by_utilization = np.array([_score_at(shape, percent) for percent in range(MAX_UTILIZATION + 1)], np.int64)

    def score(used: ResourceTable, capacity: ResourceTable, weights: Weights) -> ScoreColumn:
        utilization = np.minimum(used, capacity)
        utilization *= MAX_UTILIZATION
        utilization //= np.maximum(capacity, 1)
        scores = by_utilization[utilization]
        scores *= capacity > 0
        weight_sum = np.maximum(weights @ (scores > 0), 1)
        rounded: ScoreColumn = (2 * (weights @ scores) + weight_sum) // (2 * weight_sum)
        return rounded

    return score


def _score_at(shape: Sequence[ShapePoint], utilization: int) -> int:
    """The score at a utilization in percent, linear between the points, cut towards the point on the left."""
    left = shape[0]
    for point in shape:
        if utilization <= point.utilization:
            if point is left:
                return _scaled(point)
            rise = (_scaled(point) - _scaled(left)) * (utilization - left.utilization)
            run = point.utilization - left.utilization
            return _scaled(left) + (rise // run if rise >= 0 else -(-rise // run))
        left = point
    return _scaled(left)


def _scaled(point: ShapePoint) -> int:
    return point.score * (MAX_NODE_SCORE // MAX_SHAPE_SCORE)
