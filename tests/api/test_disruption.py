"""Budgets as a table: what a status says, and what an eviction takes from it."""

from __future__ import annotations

import pytest

from rayched.api.disruption import (
    BudgetedPod,
    Controller,
    DisruptionRefusal,
    counts_against_budgets,
    goes_for_free,
    judge,
    selector_of,
    take,
)
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget

NOW = 1_000_000
WEB = Controller("ReplicaSet", "web", "uid-web")
API = Controller("ReplicaSet", "api", "uid-api")
SCALES = {"uid-web": 4, "uid-api": 10}


def a_budget(*, least: int | str | None = None, most: int | str | None = None, generation: int = 1) -> PodDisruptionBudget:
    budget = PodDisruptionBudget()
    budget.metadata.generation = generation
    for amount, field in ((least, budget.spec.min_available), (most, budget.spec.max_unavailable)):
        if isinstance(amount, int):
            field.int_value = amount
        elif amount is not None:
            field.string_value = amount
    return budget


def pods(ready: int, unready: int = 0, deleting: int = 0, controller: Controller | None = WEB) -> list[BudgetedPod]:
    found = [BudgetedPod(f"ready-{i}", controller, True, False) for i in range(ready)]
    found += [BudgetedPod(f"unready-{i}", controller, False, False) for i in range(unready)]
    return found + [BudgetedPod(f"deleting-{i}", controller, True, True) for i in range(deleting)]


def scale_of(controller: Controller) -> int | None:
    return SCALES.get(controller.uid)


@pytest.mark.parametrize(
    ("budget", "found", "expected", "desired", "healthy", "allowed"),
    [
        # minAvailable as a number counts the pods there are, with or without a controller.
        (a_budget(least=2), pods(3), 3, 2, 3, 1),
        (a_budget(least=2), pods(3, controller=None), 3, 2, 3, 1),
        (a_budget(least=3), pods(3), 3, 3, 3, 0),
        (a_budget(least=5), pods(3), 3, 5, 3, 0),
        (a_budget(least=0), pods(3), 3, 0, 3, 3),
        (a_budget(least=0), pods(0), 0, 0, 0, 0),
        # What is not ready or goes already is not healthy; what goes is still expected.
        (a_budget(least=1), pods(2, unready=1, deleting=1), 4, 1, 2, 1),
        # Percentages and maxUnavailable are of the scale that the controllers are to have.
        (a_budget(least="50%"), pods(3), 4, 2, 3, 1),
        (a_budget(least="51%"), pods(4), 4, 3, 4, 1),
        (a_budget(least="100%"), pods(4), 4, 4, 4, 0),
        (a_budget(least="0%"), pods(4), 4, 0, 4, 4),
        (a_budget(most=1), pods(4), 4, 3, 4, 1),
        (a_budget(most=1), pods(3), 4, 3, 3, 0),
        (a_budget(most=0), pods(4), 4, 4, 4, 0),
        (a_budget(most=9), pods(4), 4, 0, 4, 4),
        (a_budget(most="25%"), pods(4), 4, 3, 4, 1),
        (a_budget(most="26%"), pods(4), 4, 2, 4, 2),
        # Each controller counts once; pods without one do not raise what is expected.
        (a_budget(most=2), pods(4) + pods(10, controller=API), 14, 12, 14, 2),
        (a_budget(most=1), pods(3, controller=None), 0, 0, 3, 0),
        # A budget without an amount allows nothing, as nothing is expected.
        (a_budget(), pods(3), 0, 0, 3, 0),
    ],
)
def test_a_status_counts_what_is_expected_wanted_healthy_and_allowed(
    budget: PodDisruptionBudget, found: list[BudgetedPod], expected: int, desired: int, healthy: int, allowed: int
) -> None:
    status = judge(budget, found, scale_of, NOW).status
    assert (status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed) == (
        expected,
        desired,
        healthy,
        allowed,
    )
    (condition,) = status.conditions
    wanted = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    assert (condition.type, condition.status, condition.reason) == ("DisruptionAllowed", *wanted)


def test_a_status_says_which_spec_it_is_about_and_when_its_condition_turned() -> None:
    budget = a_budget(least=2, generation=7)
    budget.status.CopyFrom(judge(budget, pods(3), scale_of, NOW).status)
    assert budget.status.observed_generation == budget.status.conditions[0].observed_generation == 7
    budget.status.CopyFrom(judge(budget, pods(4), scale_of, NOW + 5).status)
    assert budget.status.conditions[0].last_transition_time.seconds == NOW
    budget.status.CopyFrom(judge(budget, pods(2), scale_of, NOW + 9).status)
    assert budget.status.conditions[0].last_transition_time.seconds == NOW + 9
    assert len(budget.status.conditions) == 1


def test_a_controller_that_is_not_there_allows_nothing_and_is_named() -> None:
    budget = a_budget(most=1)
    budget.status.CopyFrom(judge(budget, pods(4), scale_of, NOW).status)
    lost = [*pods(4), BudgetedPod("stray", Controller("Job", "night", "uid-night"), True, False)]
    status = judge(budget, lost, scale_of, NOW).status
    assert (status.disruptions_allowed, status.current_healthy) == (0, 4)
    (condition,) = status.conditions
    assert (condition.status, condition.reason) == ("False", "SyncFailed")
    assert condition.message == 'pod "stray" is controlled by Job "night" with uid "uid-night", which is not there'
    again = judge(budget, pods(4), scale_of, NOW).status
    assert (again.disruptions_allowed, again.conditions[0].message) == (1, "")


def test_an_evicted_pod_does_not_count_until_its_deletion_is_seen_or_two_minutes_have_passed() -> None:
    budget = a_budget(least=1)
    budget.status.disrupted_pods["ready-0"].seconds = NOW
    budget.status.disrupted_pods["gone"].seconds = NOW
    judged = judge(budget, pods(2), scale_of, NOW + 119)
    assert (judged.status.current_healthy, judged.status.disruptions_allowed) == (1, 0)
    assert list(judged.status.disrupted_pods) == ["ready-0"]
    assert judged.recheck_at_seconds == NOW + 120
    judged = judge(budget, pods(2), scale_of, NOW + 120)
    assert (judged.status.current_healthy, list(judged.status.disrupted_pods), judged.recheck_at_seconds) == (2, [], None)
    seen = [BudgetedPod("ready-0", WEB, True, True), BudgetedPod("ready-1", WEB, True, False)]
    assert list(judge(budget, seen, scale_of, NOW + 1).status.disrupted_pods) == []


@pytest.mark.row("K11.2")
def test_an_eviction_takes_one_disruption_until_none_is_left() -> None:
    budget = a_budget(least=1)
    budget.status.CopyFrom(judge(budget, pods(3), scale_of, NOW).status)
    assert [take(budget, f"ready-{i}", NOW) for i in range(3)] == [None, None, DisruptionRefusal.USED_UP]
    assert dict(budget.status.disrupted_pods).keys() == {"ready-0", "ready-1"}
    assert budget.status.conditions[0].reason == "InsufficientPods"


def test_a_status_of_another_generation_allows_nothing() -> None:
    budget = a_budget(least=1)
    budget.status.CopyFrom(judge(budget, pods(3), scale_of, NOW).status)
    budget.metadata.generation = 2
    assert take(budget, "ready-0", NOW) is DisruptionRefusal.NOT_OBSERVED


def a_pod(phase: str = "Running", ready: bool = True, deleting: bool = False) -> Pod:
    pod = Pod()
    pod.status.phase = phase
    pod.status.conditions.add(type="Ready", status="True" if ready else "False")
    if deleting:
        pod.metadata.deletion_timestamp.seconds = NOW
    return pod


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        (a_pod(), True),
        (a_pod(ready=False), True),
        (a_pod("Unknown"), True),
        (a_pod("Pending"), False),
        (a_pod("Succeeded"), False),
        (a_pod("Failed"), False),
        (a_pod(deleting=True), False),
    ],
)
def test_budgets_have_a_say_about_what_runs(pod: Pod, counts: bool) -> None:
    assert counts_against_budgets(pod) is counts


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "ready", "free"),
    [
        ("", 2, 2, False, True),
        ("IfHealthyBudget", 2, 2, False, True),
        ("IfHealthyBudget", 1, 2, False, False),
        ("IfHealthyBudget", 0, 0, False, False),
        ("AlwaysAllow", 1, 2, False, True),
        ("AlwaysAllow", 2, 2, True, False),
        ("", 2, 2, True, False),
    ],
)
def test_unhealthy_pods_go_for_free_as_the_budgets_policy_says(
    policy: str, healthy: int, desired: int, ready: bool, free: bool
) -> None:
    budget = a_budget(least=desired)
    if policy:
        budget.spec.unhealthy_pod_eviction_policy = policy
    budget.status.current_healthy, budget.status.desired_healthy = healthy, desired
    assert goes_for_free(budget, a_pod(ready=ready)) is free


def test_the_empty_selector_selects_all_pods_and_none_at_all_selects_none() -> None:
    budget = a_budget(least=1)
    assert not selector_of(budget).matches({"app": "web"})
    budget.spec.selector.SetInParent()
    assert selector_of(budget).matches({"app": "web"})
    budget.spec.selector.match_labels["app"] = "api"
    assert not selector_of(budget).matches({"app": "web"})
