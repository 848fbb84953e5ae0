"""Disruption budgets as rules on values: what a PodDisruptionBudget's status is, and what an eviction takes from it.

```
  expectedPods        minAvailable as a number: the pods selected; else the scale of all controllers of those pods
  desiredHealthy      minAvailable, or expectedPods - maxUnavailable; percentages are of expectedPods, rounded up
  currentHealthy      pods selected that are ready, and neither deleted nor entered in disruptedPods
  disruptionsAllowed  currentHealthy - desiredHealthy; 0 when that is negative, or nothing is expected
```

A pod is entered in disruptedPods by its eviction and leaves it when the deletion is seen, or two minutes later, when whoever was
to delete it did not. A status is believed only for the generation of the spec that it was computed for.

Pure: the time comes in. Source: policy/v1, the disruption controller and the eviction of pods in Kubernetes 1.34. Differs from
it: Deployments are not served, so a ReplicaSet's own scale counts.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rayched.api.conditions import set_condition
from rayched.api.errors import quoted
from rayched.api.readiness import is_ready
from rayched.api.selectors import LabelSelectorMatcher
from rayched.v1.core_pb2 import Pod
from rayched.v1.meta_pb2 import IntOrString
from rayched.v1.workloads_pb2 import PodDisruptionBudget, PodDisruptionBudgetStatus

DELETION_SECONDS_MAX: Final = 120
"""How long an evicted pod may still be without its deletion before it counts again."""
DISRUPTED_PODS_MAX: Final = 2_000

ALWAYS_ALLOW: Final = "AlwaysAllow"
DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
SUFFICIENT_PODS: Final = "SufficientPods"
INSUFFICIENT_PODS: Final = "InsufficientPods"
SYNC_FAILED: Final = "SyncFailed"


@dataclass(frozen=True, slots=True)
class Controller:
    """The object that made a pod and replaces it."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class BudgetedPod:
    """What budgets ask about a pod."""

    name: str
    controller: Controller | None
    ready: bool
    deleting: bool


def facts_of(pod: Pod) -> BudgetedPod:
    return BudgetedPod(pod.metadata.name, controller_of(pod), is_ready(pod), pod.metadata.HasField("deletion_timestamp"))


def controller_of(pod: Pod) -> Controller | None:
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return Controller(owner.kind, owner.name, owner.uid)
    return None


def selector_of(budget: PodDisruptionBudget) -> LabelSelectorMatcher:
    """The budget's selector, for pods of its own namespace. Without one it selects none, the empty one selects all."""
    return LabelSelectorMatcher(budget.spec.selector if budget.spec.HasField("selector") else None)


# --------------------------------------------------------------------------------------------------------------- status


@dataclass(frozen=True, slots=True)
class Judged:
    """A budget's status as it should be; `recheck_at_seconds` is when it changes by the mere passing of time."""

    status: PodDisruptionBudgetStatus
    recheck_at_seconds: int | None = None


ScaleOf = Callable[[Controller], int | None]
"""How many pods a controller is to have; None: there is no such controller."""


class _NoController(Exception):
    """A pod names a controller that is not there: nobody can tell how many pods there should be."""


def judge(budget: PodDisruptionBudget, pods: Iterable[BudgetedPod], scale_of: ScaleOf, now_seconds: int) -> Judged:
    """The status of a budget that selects exactly these pods."""
    pods = list(pods)
    old = budget.status
    status = PodDisruptionBudgetStatus(observed_generation=budget.metadata.generation)
    status.conditions.MergeFrom(old.conditions)
    try:
        expected, desired = _expected_and_desired(budget, pods, scale_of)
    except _NoController as fault:
        # What was counted last stays to be seen, but nothing may be taken from it.
        status.CopyFrom(old)
        status.observed_generation = budget.metadata.generation
        status.disruptions_allowed = 0
        _set_condition(status, SYNC_FAILED, str(fault), now_seconds)
        return Judged(status)
    recheck_at = None
    healthy = 0
    for pod in pods:
        if pod.deleting:
            continue
        if pod.name in old.disrupted_pods:
            entered = old.disrupted_pods[pod.name]
            expires_at = entered.seconds + DELETION_SECONDS_MAX
            if expires_at > now_seconds:
                status.disrupted_pods[pod.name].CopyFrom(entered)
                recheck_at = expires_at if recheck_at is None else min(recheck_at, expires_at)
                continue
        healthy += pod.ready
    status.current_healthy, status.desired_healthy, status.expected_pods = healthy, desired, expected
    status.disruptions_allowed = max(healthy - desired, 0) if expected > 0 else 0
    _set_condition(status, "", "", now_seconds)
    return Judged(status, recheck_at)


def _expected_and_desired(budget: PodDisruptionBudget, pods: list[BudgetedPod], scale_of: ScaleOf) -> tuple[int, int]:
    spec = budget.spec
    if spec.HasField("max_unavailable"):
        expected = _expected_scale(pods, scale_of)
        return expected, max(expected - _share(spec.max_unavailable, expected), 0)
    if not spec.HasField("min_available"):
        return 0, 0
    if spec.min_available.WhichOneof("value") == "int_value":
        return len(pods), spec.min_available.int_value
    expected = _expected_scale(pods, scale_of)
    return expected, _share(spec.min_available, expected)


def _expected_scale(pods: list[BudgetedPod], scale_of: ScaleOf) -> int:
    """The scale of the pods' controllers; pods without one count for nothing."""
    scales: dict[str, int] = {}
    for pod in pods:
        controller = pod.controller
        if controller is None or controller.uid in scales:
            continue
        scale = scale_of(controller)
        if scale is None:
            named = f"{controller.kind} {quoted(controller.name)} with uid {quoted(controller.uid)}"
            raise _NoController(f"pod {quoted(pod.name)} is controlled by {named}, which is not there")
        scales[controller.uid] = scale
    return sum(scales.values())


def _share(amount: IntOrString, total: int) -> int:
    if amount.WhichOneof("value") == "string_value":
        return (int(amount.string_value.removesuffix("%")) * total + 99) // 100
    return amount.int_value


def _set_condition(status: PodDisruptionBudgetStatus, reason: str, message: str, now_seconds: int) -> None:
    """Says whether a disruption is allowed; `reason` is that of a failure."""
    allowed = not reason and status.disruptions_allowed > 0
    reason = reason or (SUFFICIENT_PODS if allowed else INSUFFICIENT_PODS)
    wanted = "True" if allowed else "False"
    condition = set_condition(status.conditions, DISRUPTION_ALLOWED, wanted, reason, message, now_seconds)
    condition.observed_generation = status.observed_generation


# ------------------------------------------------------------------------------------------------------------- eviction


class DisruptionRefusal(enum.Enum):
    """Why a budget does not let a pod go."""

    NOT_OBSERVED = "its status does not say anything about its present spec yet"
    USED_UP = "it allows no disruption now"
    TOO_MANY = "too many evictions are not confirmed by its status yet"


def counts_against_budgets(pod: Pod) -> bool:
    """Whether budgets have a say. A pod that has not started, has ended, or is ending already disrupts nobody."""
    return pod.status.phase not in ("Pending", "Succeeded", "Failed", "") and not pod.metadata.HasField("deletion_timestamp")


def goes_for_free(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether an unhealthy pod may go without anything being taken from the budget, by its unhealthyPodEvictionPolicy."""
    if is_ready(pod):
        return False
    if budget.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
        return True
    return budget.status.current_healthy >= budget.status.desired_healthy > 0


def take(budget: PodDisruptionBudget, pod_name: str, now_seconds: int) -> DisruptionRefusal | None:
    """Takes one disruption from the budget, in place, for this pod; or says why that cannot be."""
    status = budget.status
    if status.observed_generation < budget.metadata.generation:
        return DisruptionRefusal.NOT_OBSERVED
    if status.disruptions_allowed <= 0:
        return DisruptionRefusal.USED_UP
    if len(status.disrupted_pods) >= DISRUPTED_PODS_MAX:
        return DisruptionRefusal.TOO_MANY
    status.disruptions_allowed -= 1
    if not status.disruptions_allowed:
        _set_condition(status, "", "", now_seconds)
    entered = status.disrupted_pods[pod_name]
    entered.seconds, entered.nanos = now_seconds, 0
    return None
