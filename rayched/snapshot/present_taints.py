"""Taints that any node has or had: a toleration that covers none of them makes no difference.

Pods tolerate many taints of which a cluster has none. Without such tolerations pods of many templates ask the same.

Taints are never forgotten while the table lives, as plans are made for those that there are. With too many, every toleration
counts. The taint that stands for a cordoned node is known from the start, as no node has to carry it.

Owner: one table. Cost: a comparison for each toleration and taint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rayched.api.tolerations import NO_SCHEDULE, tolerates
from rayched.api.well_known_taints import UNSCHEDULABLE
from rayched.snapshot.grow_only import GrowOnlySet
from rayched.v1.core_pb2 import Taint, Toleration

TAINTS_MAX: Final = 64
"""With more taints all tolerations count."""


class PresentTaints(GrowOnlySet[Taint]):
    """The taints."""

    __slots__ = ("_taint_keys",)

    def __init__(self) -> None:
        super().__init__(TAINTS_MAX)
        self._taint_keys: set[str] = set()
        """Of all of them: most tolerations are of taints of other keys."""
        self.add((Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE),))

    def add(self, taints: Iterable[Taint]) -> None:
        for taint in taints:
            self._add((taint.key, taint.value, taint.effect), taint)
            if not self.are_all:
                self._taint_keys.add(taint.key)

    def counting(self, tolerations: Iterable[Toleration], among: Sequence[Taint] | None = None) -> list[Toleration]:
        """The tolerations that cover any of some taints, or of all that are known."""
        if self.are_all:
            return list(tolerations)
        taints, keys = self._ordered if among is None else among, self._taint_keys
        return [
            toleration
            for toleration in tolerations
            if (not (key := toleration.key) or key in keys) and any(tolerates(toleration, taint) for taint in taints)
        ]
