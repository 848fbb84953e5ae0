"""Tolerations against taints: what TaintToleration, the eviction of tainted pods and admission have in common.

An empty effect of a toleration covers all effects, an empty key all keys. The operator Exists covers all values; Equal, the
default, one. Any other operator tolerates nothing.

Source: Toleration and Taint of core/v1, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from rayched.v1.core_pb2 import Taint, Toleration

EQUAL: Final = "Equal"
EXISTS: Final = "Exists"
NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
EFFECTS: Final = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
HARD_EFFECTS: Final = frozenset((NO_SCHEDULE, NO_EXECUTE))
"""The effects that keep a pod off a node."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", EQUAL):
        return toleration.value == taint.value
    return toleration.operator == EXISTS


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of the tolerations covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(
    tolerations: Collection[Toleration], taints: Iterable[Taint], effects: Collection[str] = HARD_EFFECTS
) -> Taint | None:
    """The first of the taints with one of these effects that no toleration covers; None: all are covered."""
    for taint in taints:
        if taint.effect in effects and not tolerated(tolerations, taint):
            return taint
    return None
