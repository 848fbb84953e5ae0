"""Dry runs of many rows at once where filters come down to room: the same verdicts as row by row, in columns.

Rows with fewer pods than others are filled up with nobody, who takes up nothing.

Axes: rows are those given, in their order; slots are the places of a row's pods, in their order.
Pure. Cost: some 15 numpy calls, and 8 more for each pod of the row with most of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayched.engine.free_resources import FreeResources
from rayched.engine.trial_rows import numbers_of
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.templates import PodTemplate

Slots = NDArray[np.bool_]
"""Shape (rows, slots)."""


class PodsOfRows(NamedTuple):
    """Pods that could go, of some rows. All of shape (rows, slots)."""

    there: Slots
    """Whether the slot has a pod; those of a row come first."""
    numbers: NDArray[np.intp]
    """Of their templates, see `snapshot.template_amounts`; any where nobody is there."""


class Together(NamedTuple):
    """What became of rows that were tried together."""

    fits: BoolColumn
    """Whether the incoming pod fits once all the pods are off. Shape (rows,)."""
    gone: Slots
    """Pods that cannot stay, on rows where it fits."""


def tried_together(
    room: FreeResources, rows: Sequence[int], pods: PodsOfRows, coming: Mapping[int, Sequence[PodTemplate]]
) -> Together:
    """As `FreeResources.stay` for each row; `coming`: pods nominated to rows, by row."""
    at_places = (
        [(template, place) for place, row in enumerate(rows) if row in coming for template in coming[row]] if coming else ()
    )
    left = room.left_of(numbers_of(rows), at_places)
    amounts = room.amounts_of(pods.numbers) * pods.there
    left += amounts.sum(axis=2)
    fits: BoolColumn = np.all(left >= 0, axis=0)
    gone: Slots = np.zeros(pods.there.shape, np.bool_)
    for slot in range(pods.there.shape[1]):
        beside = left - amounts[:, :, slot]
        stays: BoolColumn = np.all(beside >= 0, axis=0)
        gone[:, slot] = np.logical_not(stays)
        np.copyto(left, beside, where=stays)
    gone &= pods.there
    gone &= fits[:, None]
    return Together(fits, gone)
