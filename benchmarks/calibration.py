"""A loop whose CPU time tells how fast this machine is at the moment: what rayched does most, small numpy calls and dictionaries.

It never changes, so that ratios to it can be compared over versions.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

_ROUNDS: Final = 4_000
_ROWS: Final = 5_000


def seconds() -> float:
    """CPU time of the loop; the lower of two runs."""
    return min(_once(), _once())


def _once() -> float:
    column = np.arange(_ROWS, dtype=np.int16)
    seen: dict[str, int] = {}
    began = time.process_time()
    for number in range(_ROUNDS):
        column[number % _ROWS] = number % 100
        best = column.max()
        rows = (column == best).nonzero()[0]
        seen[f"pod-{number}"] = rows.item(0)
        for place in range(20):
            seen[f"pod-{place}"] = place
    return time.process_time() - began
