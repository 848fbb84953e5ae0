"""Disruption budgets: whom they are about, how much they allow, and which are limits that preemption keeps."""

from __future__ import annotations

import pytest

from rayched.snapshot.budgets import HARD, LIMIT_ANNOTATION, Budgets
from rayched.v1.workloads_pb2 import PodDisruptionBudget


def a_budget(
    *,
    app: str | None = "web",
    allowed: int = 2,
    disrupted: tuple[str, ...] = (),
    limit: str = "",
    generation: int = 1,
    seen: int = 1,
) -> PodDisruptionBudget:
    budget = PodDisruptionBudget()
    budget.metadata.generation = generation
    if app is not None:
        budget.spec.selector.SetInParent()
        if app:
            budget.spec.selector.match_labels["app"] = app
    if limit:
        budget.metadata.annotations[LIMIT_ANNOTATION] = limit
    budget.status.disruptions_allowed = allowed
    budget.status.observed_generation = seen
    for name in disrupted:
        budget.status.disrupted_pods[name].SetInParent()
    return budget


@pytest.mark.parametrize(
    ("app", "namespace", "name", "labels", "counts"),
    [
        ("web", "here", "web-1", {"app": "web"}, True),
        ("web", "elsewhere", "web-1", {"app": "web"}, False),
        ("web", "here", "web-0", {"app": "web"}, False),
        ("web", "here", "web-1", {"app": "db"}, False),
        ("web", "here", "web-1", {}, False),
        ("", "here", "web-1", {"app": "web"}, False),
        (None, "here", "web-1", {"app": "web"}, False),
    ],
)
def test_a_disruption_counts_where_the_budget_is_about_the_pod_and_has_not_accounted_for_it(
    app: str | None, namespace: str, name: str, labels: dict[str, str], counts: bool
) -> None:
    budgets = Budgets()
    budgets.set("here", "one", a_budget(app=app, disrupted=("web-0",)))
    [budget] = budgets.of("here")
    assert budget.counts(namespace, name, labels) is counts


def test_a_selector_that_cannot_be_read_is_about_nobody() -> None:
    budgets, broken = Budgets(), a_budget()
    broken.spec.selector.match_expressions.add(key="app", operator="Near")
    budgets.set("here", "one", broken)
    assert not budgets.of("here")[0].counts("here", "web-1", {"app": "web"})


@pytest.mark.parametrize(
    ("limit", "generation", "seen", "allowed"),
    [("", 1, 1, 2), ("", 2, 1, 2), (HARD, 1, 1, 2), (HARD, 1, 2, 2), (HARD, 2, 1, 0), ("soft", 2, 1, 2)],
)
def test_a_hard_limit_allows_nothing_that_was_computed_for_an_earlier_spec(
    limit: str, generation: int, seen: int, allowed: int
) -> None:
    budgets = Budgets()
    budgets.set("here", "one", a_budget(limit=limit, generation=generation, seen=seen))
    [budget] = budgets.of("here")
    assert budget.allowed == allowed and budget.is_hard is (limit == HARD) is budgets.any_hard


def test_budgets_come_and_go_by_namespace() -> None:
    budgets = Budgets()
    assert budgets.of("here") == () and [bool(budgets), budgets.revision] == [False, 0]
    budgets.set("here", "one", a_budget())
    budgets.set("here", "two", a_budget(limit=HARD))
    budgets.set("there", "one", a_budget())
    assert [bool(budgets), budgets.any_hard, budgets.revision] == [True, True, 3]
    assert [one.name for one in budgets.of("here")] == ["one", "two"] and len(budgets.of("there")) == 1
    budgets.set("here", "two", None)
    assert [budgets.any_hard] == [False] and [one.name for one in budgets.of("here")] == ["one"]
    for namespace in ("here", "there", "nowhere"):
        budgets.set(namespace, "one", None)
    assert [bool(budgets)] == [False] and budgets.of("here") == ()
