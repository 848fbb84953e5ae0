"""PostFilter: what the plugins make of an attempt for which no node is feasible, and the nomination that follows.

Owner: the Scheduler. Source: RunPostFilterPlugins and prepareCandidate of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rayched.engine.nominations import Nomination
from rayched.framework.diagnosis import Diagnosis
from rayched.framework.plugin import PostFilterResult
from rayched.framework.preemption import FAILED_ATTEMPT
from rayched.scheduler.attempt import Attempt, AttemptFailure, Preemption
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.preemption import Evaluator, Preemptor
from rayched.scheduler.waiting import WaitingPods
from rayched.snapshot.snapshot import Snapshot

DIAGNOSIS: Final = "Diagnosis"
"""Where PostFilter plugins find, in the attempt's CycleState, why no node is feasible."""

PREEMPTED: Final = "preempted"
"""Why a pod that waited at Permit and was chosen as a victim is turned down. No plugin did that, so it is tried again soon."""


class PostFilterStep:
    """Runs the PostFilter plugins of failed attempts."""

    def __init__(self, snapshot: Snapshot, nominations: Nominations, waiting: WaitingPods) -> None:
        self._snapshot, self._nominations, self._waiting = snapshot, nominations, waiting
        self.runs = 0

    def run(
        self,
        evaluator: Evaluator,
        attempt: Attempt,
        failure: AttemptFailure,
        diagnosis: Diagnosis,
        nominated: Sequence[Nomination],
        now_unix: float,
    ) -> AttemptFailure:
        """The failure with what PostFilter makes of it."""
        preemptor = Preemptor(attempt.uid, attempt.template, diagnosis, attempt.number, nominated, now_unix, evaluator)
        attempt.state.write(DIAGNOSIS, diagnosis)
        attempt.state.write(FAILED_ATTEMPT, preemptor)
        self.runs += 1
        result, answer = attempt.lifecycle.post_filter(attempt.state, attempt.pod)
        if answer.reasons:
            failure = replace(failure, message=f"{failure.message} {answer.message()}")
        return failure if result is None else self._nominated(attempt, failure, result)

    def _nominated(self, attempt: Attempt, failure: AttemptFailure, result: PostFilterResult) -> AttemptFailure:
        """PostFilter's result holds from now on, also before it is written: for the pods that come next."""
        node_name, preemption = result.nominated_node_name, None
        if result.victims:
            cleared = self._nominations.below(attempt.template.priority, node_name)
            for uid in cleared:
                self._nominations.forget(uid)
            victims = tuple(uid for uid in result.victims if not self.ends_anyway(uid))
            if victims or cleared:
                preemption = Preemption(node_name, victims, cleared)
        self._nominations.nominate(attempt.uid, attempt.template, node_name)
        return replace(failure, nominated_node_name=node_name, preemption=preemption)

    def ends_anyway(self, uid: str) -> bool:
        """Whether the victim is ending already, or waits at Permit; then its attempt is all that ends."""
        bound = self._snapshot.bound(uid)
        return bound is None or bound.terminating or self._waiting.reject(uid, "", PREEMPTED)
