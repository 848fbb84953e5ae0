"""DefaultPreemption: where no node is feasible, make room by ending pods of lower priority.

PostFilter: on each node where that could help, all lower pods are taken off on trial and put back one by one, those whose
end violates a PodDisruptionBudget first, then the more important ones; who cannot be put back is a victim. The node is chosen
by fewest violations, then lowest highest priority, lowest sum of priorities, fewest victims, latest start among the highest. The
pod is nominated to it and waits for its victims to end; lower nominations there are cleared.

Never a pod of equal or higher priority, never pods of several nodes for one pod, and quality of service plays no part. A pod with
preemptionPolicy Never makes no room. One whose victims still end on its nominated node makes no more.

Not in kube-scheduler, both off by default: budgets that are a hard limit (`rayched.snapshot.budgets`), and `minRuntimeSeconds`,
for which a pod runs before it may be preempted.

Source: pod.spec.priority and preemptionPolicy (core/v1), DefaultPreemptionArgs, kube-scheduler 1.34.
Cost: see `scheduler.preemption`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.cycle_state import CycleState
from rayched.framework.plugin import PostFilterPlugin, PostFilterResult, RegisteringPlugin
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.preemption import FAILED_ATTEMPT, FailedAttempt
from rayched.framework.queueing_hints import Hint, Look, PreparedHint, ReadsNoLabels, Registration, Way
from rayched.framework.status import Status, error
from rayched.v1.core_pb2 import Pod


class DefaultPreemption(PostFilterPlugin, RegisteringPlugin):
    name: Final = names.DEFAULT_PREEMPTION

    def __init__(self, args: DefaultPreemptionArgs) -> None:
        self.args = args

    def post_filter(self, state: CycleState, pod: Pod) -> tuple[PostFilterResult | None, Status]:  # noqa: ARG002
        failed = state.read(FAILED_ATTEMPT)
        # Not by the protocol: in Python 3.11 it takes 100 µs to find out whether an object is of one.
        if not hasattr(failed, "preempt"):
            return None, error("preemption: the attempt did not fail in a scheduler that can preempt")
        result, status = cast(FailedAttempt, failed).preempt(self.args)
        if not status.reasons:
            return result, status
        return result, Status(status.code, (f"preemption: {status.message()}",))

    def registrations(self) -> Sequence[Registration]:
        return (
            Registration(ClusterEvent(Resource.POD, Action.DELETE), PreparedHint(lambda _: _VictimDeletionHint(), _deletion)),
        )


@dataclass(frozen=True, slots=True)
class _VictimDeletionHint(ReadsNoLabels):
    """Those who rejected the pod tell whether the end of another helps it; having tried to preempt adds nothing to that."""

    @property
    def ways(self) -> tuple[Way, ...]:
        return ()

    def __call__(self, look: Look) -> Hint:  # noqa: ARG002
        return Hint.SKIP


def _deletion(old: Pod, new: None) -> Look:  # noqa: ARG001
    return Look()
