"""What a PostFilter plugin finds of an attempt for which no node is feasible, and the preemption that it may ask for.

The scheduler leaves a `FailedAttempt` in the attempt's CycleState. A plugin says whether to preempt and by which rules; to look
for victims needs the scheduler's columns, so that is done behind `preempt`. It decides only: nothing ends before the plugin's
result says so.

Who writes a plugin of his own: pods are removed and put back by priority. A filter that other pods pass or fail for reasons that
have nothing to do with their priority works, but a plugin that wants the victims in another order has to choose them itself.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from rayched.framework.diagnosis import Diagnosis
from rayched.framework.plugin import PostFilterResult
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.status import Status
from rayched.snapshot.templates import PodTemplate

FAILED_ATTEMPT: Final = "FailedAttempt"
"""Its key in the CycleState."""


@runtime_checkable
class FailedAttempt(Protocol):
    @property
    def uid(self) -> str: ...

    @property
    def template(self) -> PodTemplate: ...

    @property
    def diagnosis(self) -> Diagnosis:
        """Why no node is feasible."""

    def preempt(self, args: DefaultPreemptionArgs) -> tuple[PostFilterResult | None, Status]:
        """Where lower pods would have to go for this one, and which.

        SUCCESS with the result; UNSCHEDULABLE with the reason, where preemption is not allowed (no result: a nomination stays)
        or helps nowhere (a result without a node: it ends).
        """
