"""Budgets in a preemption: whose end violates one, and who may not end at all.

A budget allows so many disruptions now. Counted from the most important pod down, those beyond the number violate it; they are
put back first, and so become victims as a last resort only. A hard budget is counted from the least important pod up, and those
beyond the number are no potential victims at all.

Pure. Source: filterPodsWithPDBViolation of kube-scheduler 1.34; hard budgets are our own.
Cost: a comparison with each budget of a pod's namespace; nothing without budgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rayched.scheduler.candidates import Victim
from rayched.snapshot.budgets import Budget, Budgets


def parted(victims: list[Victim], budgets: Budgets) -> tuple[list[Victim], list[Victim]]:
    """Those whose end violates a budget, and the others; given and returned the most important first."""
    if not budgets:
        return [], victims
    spent: Counter[tuple[str, str]] = Counter()
    violating: list[Victim] = []
    others: list[Victim] = []
    for victim in victims:
        matching = _of(victim, budgets)
        spent.update((budget.namespace, budget.name) for budget in matching)
        violates = any(spent[budget.namespace, budget.name] > budget.allowed for budget in matching)
        (violating if violates else others).append(victim)
    return violating, others


def within_hard_limits(victims: Sequence[Victim], budgets: Budgets) -> list[Victim]:
    """Those who may end for a single pod, in the order given (the most important first)."""
    spent: Counter[tuple[str, str]] = Counter()
    kept: list[Victim] = []
    for victim in reversed(victims):
        template = victim.pod.template
        if template.pod_group and budgets.is_of_whole(template.namespace, template.pod_group):
            continue
        matching = [budget for budget in _of(victim, budgets) if budget.is_hard]
        if all(spent[budget.namespace, budget.name] < budget.allowed for budget in matching):
            spent.update((budget.namespace, budget.name) for budget in matching)
            kept.append(victim)
    return kept[::-1]


def _of(victim: Victim, budgets: Budgets) -> list[Budget]:
    template = victim.pod.template
    there = budgets.of(template.namespace)
    if not there:
        return []
    name = victim.pod.facts.name.partition("/")[2]
    return [budget for budget in there if budget.counts(template.namespace, name, template.labels)]
