"""PodDisruptionBudgets as preemption reads them: whom they are about, and how many disruptions they allow now.

A budget is best effort for preemption: pods are evicted against it only where no other choice makes room. With the annotation
`rayched.dev/preemption-limit: hard` it is a limit that preemption keeps. A pod group that ends as a whole (`disruptionMode: all`)
is such a limit for a single pod that wants room: it never takes one member.

Owner: one Snapshot. Source: PodDisruptionBudget (policy/v1), getPodDisruptionBudgets of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.api.selectors import SelectorError
from rayched.snapshot.pod_selection import LabelConditions, conditions_of, hold
from rayched.v1.workloads_pb2 import PodDisruptionBudget

LIMIT_ANNOTATION: Final = "rayched.dev/preemption-limit"
HARD: Final = "hard"


@dataclass(frozen=True, slots=True)
class Budget:
    namespace: str
    name: str
    conditions: LabelConditions
    """On labels of pods. Empty, or None: the budget is about nobody."""
    allowed: int
    disrupted: frozenset[str]
    """Names of pods whose disruption it has accounted for already."""
    is_hard: bool

    def counts(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the end of this pod is a disruption more. A pod without labels is in nobody's budget."""
        if namespace != self.namespace or not labels or not self.conditions or name in self.disrupted:
            return False
        return hold(self.conditions, labels)


class Budgets:
    """All budgets, by namespace."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Budget]] = {}
        self._wholes: set[tuple[str, str]] = set()
        self.any_hard = False
        """Whether one of them is a hard limit."""
        self.revision = 0
        """Grows with every change."""

    def __bool__(self) -> bool:
        return bool(self._by_namespace or self._wholes)

    def set(self, namespace: str, name: str, budget: PodDisruptionBudget | None) -> None:
        """Take over a budget's new state; None: it is gone."""
        self.revision += 1
        there = self._by_namespace.setdefault(namespace, {})
        if budget is not None:
            there[name] = _read(namespace, name, budget)
        else:
            there.pop(name, None)
            if not there:
                del self._by_namespace[namespace]
        self._look()

    def set_whole(self, namespace: str, name: str, *, is_whole: bool) -> None:
        """A pod group came, changed or went."""
        if is_whole is ((namespace, name) in self._wholes):
            return
        self.revision += 1
        (self._wholes.add if is_whole else self._wholes.discard)((namespace, name))
        self._look()

    def is_of_whole(self, namespace: str, pod_group: str) -> bool:
        """Whether a pod of this group ends with all others of it or not at all."""
        return bool(self._wholes) and (namespace, pod_group) in self._wholes

    def _look(self) -> None:
        there = (one for budgets in self._by_namespace.values() for one in budgets.values())
        self.any_hard = bool(self._wholes) or any(one.is_hard for one in there)

    def of(self, namespace: str) -> Sequence[Budget]:
        """In the order in which they came."""
        there = self._by_namespace.get(namespace)
        return tuple(there.values()) if there else ()


def _read(namespace: str, name: str, budget: PodDisruptionBudget) -> Budget:
    try:
        conditions = conditions_of(budget.spec.selector if budget.spec.HasField("selector") else None)
    except SelectorError:
        conditions = None
    is_hard = budget.metadata.annotations.get(LIMIT_ANNOTATION) == HARD
    # Nothing is taken from a status that was computed for an earlier spec; where that is best effort, it counts as it is.
    is_current = budget.status.observed_generation >= budget.metadata.generation
    return Budget(
        namespace=namespace,
        name=name,
        conditions=conditions,
        allowed=budget.status.disruptions_allowed if is_current or not is_hard else 0,
        disrupted=frozenset(budget.status.disrupted_pods),
        is_hard=is_hard,
    )
