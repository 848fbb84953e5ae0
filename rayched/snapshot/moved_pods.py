"""Pods that would come to rows or go from them, as those read them who compare pods: which templates matter, and how much.

Owner: rows as they would be. Cost: 0.5 µs a template when it is first asked, then 1 ns for each condition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.columns import BoolColumn, ScoreColumn
from rayched.snapshot.label_columns import LabelColumns
from rayched.snapshot.pod_selection import PodSelector
from rayched.snapshot.templates import PodTemplate

Amounts: TypeAlias = NDArray[np.int64]
"""How much a pod of each template counts. Shape (templates,)."""

Differences: TypeAlias = Mapping[str, ScoreColumn]
"""By name what the pods that would come or go add to each row. Shapes (rows,)."""


class MovedPods:
    """Templates, numbered from 0."""

    __slots__ = ("_asked", "_labels", "templates")

    def __init__(self, templates: Sequence[PodTemplate]) -> None:
        self.templates = templates
        self._labels: LabelColumns | None = None
        self._asked: dict[Hashable, Mapping[str, Amounts]] = {}

    def selected(self, selectors: Sequence[PodSelector]) -> BoolColumn:
        """Templates that all of them select. Shape (templates,)."""
        if self._labels is None:
            self._labels = LabelColumns()
            for template in self.templates:
                self._labels.add(template.namespace, template.labels)
        return self._labels.selected(selectors)

    def amounts(self, key: Hashable, count: Callable[[MovedPods], Mapping[str, Amounts]]) -> Mapping[str, Amounts]:
        """What `count` says, which is asked once for each key."""
        found = self._asked.get(key)
        if found is None:
            found = self._asked[key] = count(self)
        return found

    def known(self, key: Hashable) -> Mapping[str, Amounts]:
        """The same, once it was asked for."""
        return self._asked[key]
