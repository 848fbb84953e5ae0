"""Raw scores turned into 0..100 relative to the highest one: the two forms that kube-scheduler's plugins share.

Integers, division rounds down as in Go for what is not negative. Raw scores above `high` belong to rows that are not feasible;
their results lie outside 0..100 and are not used.

Source: DefaultNormalizeScore of kube-scheduler 1.34. Cost: two or three numpy calls.
"""

from __future__ import annotations

import numpy as np

from rayched.framework.plugin import MAX_NODE_SCORE
from rayched.snapshot.columns import ScoreColumn


def most_first(raw: ScoreColumn, high: int) -> ScoreColumn:
    """The highest raw score becomes 100, zero stays 0. Shape (rows,), int64."""
    if high <= 0:
        return raw.copy()
    return MAX_NODE_SCORE * raw // high


def fewest_first(raw: ScoreColumn, high: int) -> ScoreColumn:
    """The highest raw score becomes 0, zero becomes 100. Shape (rows,), int64."""
    if high <= 0:
        return np.full(raw.shape, MAX_NODE_SCORE, np.int64)
    return MAX_NODE_SCORE - MAX_NODE_SCORE * raw // high
