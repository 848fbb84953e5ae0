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
from rayched.v1.core_pb2 import Taint, Toleration

TAINTS_MAX: Final = 64
"""With more taints all tolerations count."""


class KnownTaints:
    """The taints, in the order in which they came first."""

    __slots__ = ("_keys", "_ordered", "revision")

    def __init__(self) -> None:
        self._keys: set[tuple[str, str, str]] = set()
        self._ordered: list[Taint] = []
        self.revision = 0
        """Grows with every taint that is new."""
        self.add((Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE),))

    @property
    def are_all(self) -> bool:
        """Whether there are so many that every toleration counts."""
        return len(self._ordered) > TAINTS_MAX

    def add(self, taints: Iterable[Taint]) -> None:
        for taint in taints:
            key = taint.key, taint.value, taint.effect
            if key not in self._keys and not self.are_all:
                self._keys.add(key)
                self._ordered.append(taint)
                self.revision += 1

    def since(self, revision: int) -> Sequence[Taint] | None:
        """Taints that came after a revision; None: all tolerations count now."""
        return None if self.are_all else self._ordered[revision:]

    def counting(self, tolerations: Iterable[Toleration], among: Sequence[Taint] | None = None) -> list[Toleration]:
        """The tolerations that cover any of some taints, or of all that are known."""
        if self.are_all:
            return list(tolerations)
        taints = self._ordered if among is None else among
        return [toleration for toleration in tolerations if any(tolerates(toleration, taint) for taint in taints)]
