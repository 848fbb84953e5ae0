"""Names of array types and of the aspects of a node that change apart from each other."""

from __future__ import annotations

import enum

import numpy as np
import numpy.ma  # np.unique loads it when it is called first, which would be a wait of 10 ms for a pod
from numpy.typing import NDArray

BoolColumn = NDArray[np.bool_]
CodeColumn = NDArray[np.uint8]
"""A framework Code for each row."""
ScoreColumn = NDArray[np.int64]
IdColumn = NDArray[np.int32]
"""An interned value for each row; -1 where the row has none."""
RowIndex = NDArray[np.intp]
ResourceTable = NDArray[np.int64]
"""Shape (resources, rows): milli-CPU, bytes or counts."""


class Log(enum.IntFlag):
    """Aspects of a row. The snapshot keeps a log of changed rows for each; a plugin declares those it reads.

    Adding or removing a node changes all aspects of its row.
    """

    USAGE = enum.auto()
    """allocatable, requested, non_zero_requested; the number of pods."""
    LABELS = enum.auto()
    """Labels and the name."""
    TAINTS = enum.auto()
    UNSCHEDULABLE = enum.auto()
    IMAGES = enum.auto()
    """Images present; their spread over the cluster, so a change touches every row."""
    PORTS = enum.auto()
    """Host ports in use."""
