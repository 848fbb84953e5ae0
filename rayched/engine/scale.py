"""How wide totals are, and how a row that is not feasible stands in them.

A row that a filter rejects is `infeasible`: so low that no scores lift it to 0, and so high that a sum of two stays in the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rayched.framework.plugin import MAX_NODE_SCORE

TotalColumn = NDArray[np.signedinteger[Any]]
"""Totals, or what they are added up from; as narrow as the weights allow."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The integer type of sums and the value of a row that is not feasible."""

    dtype: np.dtype[np.signedinteger[Any]]
    infeasible: int

    @property
    def open(self) -> np.signedinteger[Any]:
        """More than any total."""
        return self.dtype.type(-self.infeasible)

    @property
    def below_open(self) -> np.signedinteger[Any]:
        """From there to `infeasible`."""
        return self.dtype.type(2 * self.infeasible)


def scale_for(weights: Sequence[int]) -> Scale:
    """The narrowest type with room for the highest total, for `infeasible` below its negative, and for four times that."""
    highest = MAX_NODE_SCORE * sum(weights)
    for dtype in (np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64)):
        infeasible = int(np.iinfo(dtype).min) // 4
        if highest < -infeasible:
            return Scale(dtype, infeasible)
    raise ValueError(f"weights of score plugins add up to {sum(weights)}, allowed is less than {2**61 // MAX_NODE_SCORE}")
