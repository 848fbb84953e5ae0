"""What PodTopologySpread reads of the incoming pod, and which rows its constraints count.

Cost: of `selected` and `tolerated` one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.api.selectors import NodeSelectorMatcher
from rayched.api.tolerations import first_untolerated
from rayched.plugins.node_selection import by_selector, with_labels
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.pod_selection import LabelConditions
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod, Taint, Toleration

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
HONOR: Final = "Honor"
HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint, its selector compiled."""

    max_skew: int
    topology_key: str
    min_domains: int
    conditions: LabelConditions
    """None: nothing is selected. () selects every pod; none of those that are bound counts, though."""
    honors_affinity: bool
    honors_taints: bool


@dataclass(frozen=True, slots=True)
class Spreading:
    """What of the incoming pod decides."""

    pod: Pod
    namespace: str
    labels: Mapping[str, str]
    hard: tuple[Constraint, ...]
    soft: tuple[Constraint, ...]
    by_default: bool
    """The constraints are the profile's; what they select, the pod's Services and its owner say."""
    needs_all_keys: bool
    """In scores, a row that lacks one of the soft constraints' keys gets nothing at all."""
    node_labels: Mapping[str, str]
    node_selector: NodeSelectorMatcher | None
    tolerations: tuple[Toleration, ...]


def selected(state: Spreading, rows: Rows) -> BoolColumn:
    """Rows that the pod's node selector and required node affinity select. Shape (rows,)."""
    found = with_labels(state.node_labels, rows)
    return found if state.node_selector is None else found & by_selector(state.node_selector, rows)


def tolerated(state: Spreading, rows: Rows) -> BoolColumn:
    """Rows without a taint that would keep the pod off. Shape (rows,)."""
    sets: Sequence[Sequence[Taint]] = rows.snapshot.taint_sets
    passing: NDArray[np.bool_] = np.zeros(len(sets) + 1, np.bool_)
    for number in np.unique(rows.taint_set).tolist():
        if number >= 0:
            passing[number] = first_untolerated(state.tolerations, sets[number]) is None
    return passing[rows.taint_set]
