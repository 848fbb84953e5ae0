"""Whose end violates a budget, and who may not end at all, by counting anew for each pod."""

from __future__ import annotations

from random import Random

import pytest

from rayched.api import kinds
from rayched.scheduler.candidates import Victim
from rayched.scheduler.preemption_budgets import parted, within_hard_limits
from rayched.snapshot.budgets import HARD, LIMIT_ANNOTATION, Budget
from rayched.snapshot.pod_facts import PodFacts
from rayched.snapshot.snapshot import BoundPod, Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.core.builders import a_pod

TEMPLATES = TemplateTable()


def a_victim(number: int, app: str, tier: str) -> Victim:
    template = TEMPLATES.intern(a_pod("one", priority=-number, labels={"app": app, "tier": tier}))
    return Victim(f"u{number}", BoundPod(template, "n1", False, PodFacts(f"default/{app}-{number}", 1.0)))


class World:
    """Budgets for an application or a tier, some of them hard, and pods by importance."""

    def __init__(self, seed: int) -> None:
        self.random, self.snapshot = Random(seed), Snapshot()
        for key, values in (("app", "ab"), ("tier", "xy")):
            for value in values:
                if self.random.random() < 0.8:
                    self.add(key, value)
        self.victims = [a_victim(number, self.random.choice("abc"), self.random.choice("xyz")) for number in range(9)]

    def add(self, key: str, value: str) -> None:
        budget = PodDisruptionBudget()
        budget.spec.selector.match_labels[key] = value
        budget.status.disruptions_allowed = self.random.randrange(4)
        if self.random.random() < 0.5:
            budget.metadata.annotations[LIMIT_ANNOTATION] = HARD
        if self.random.random() < 0.3:
            budget.status.disrupted_pods[f"{value}-3"].SetInParent()
        self.snapshot.set_object(kinds.POD_DISRUPTION_BUDGET.name, "default", f"{key}-{value}", budget)

    @property
    def budgets(self) -> list[Budget]:
        return list(self.snapshot.budgets.of("default"))

    def is_about(self, budget: Budget, victim: Victim) -> bool:
        template = victim.pod.template
        return budget.counts("default", victim.pod.facts.name.removeprefix("default/"), template.labels)

    def exceeds(self, victims: list[Victim], last: Victim, *, hard: bool) -> bool:
        """Whether the end of the last one of these is one too many for a budget that is about it."""
        of_last = [budget for budget in self.budgets if self.is_about(budget, last) and (budget.is_hard or not hard)]
        return any(sum(self.is_about(budget, one) for one in victims) > budget.allowed for budget in of_last)


@pytest.mark.parametrize("seed", range(30))
def test_those_violate_a_budget_that_are_one_too_many_from_the_most_important_pod_down(seed: int) -> None:
    world = World(seed)
    violating, others = parted(world.victims, world.snapshot.budgets)
    expected = [one for place, one in enumerate(world.victims) if world.exceeds(world.victims[: place + 1], one, hard=False)]
    assert violating == expected
    assert others == [one for one in world.victims if one not in expected]


@pytest.mark.parametrize("seed", range(30))
def test_those_may_end_that_no_hard_limit_keeps_from_the_least_important_pod_up(seed: int) -> None:
    world = World(seed)
    ending: list[Victim] = []
    for one in reversed(world.victims):
        if not world.exceeds([*ending, one], one, hard=True):
            ending.append(one)
    assert within_hard_limits(world.victims, world.snapshot.budgets) == [one for one in world.victims if one in ending]


def test_without_budgets_everybody_may_end() -> None:
    victims = [a_victim(number, "a", "x") for number in range(3)]
    assert parted(victims, Snapshot().budgets) == ([], victims)
    assert within_hard_limits(victims, Snapshot().budgets) == victims
