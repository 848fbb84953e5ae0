"""The conditions of a job: what they say, and how they are set. Pure; times are Unix seconds.

    FailureTarget ──▶ pods are deleted and counted ──▶ Failed
    SuccessCriteriaMet ─────▶ pods are counted ──────▶ Complete
    Suspended: True while it is, False once it goes on

Source: batch/v1 JobCondition, Kubernetes 1.34.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rayched.api.conditions import set_condition
from rayched.v1.workloads_pb2 import JobCondition, JobStatus

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
SUSPENDED: Final = "Suspended"
SUCCESS_CRITERIA_MET: Final = "SuccessCriteriaMet"
FAILURE_TARGET: Final = "FailureTarget"
TERMINAL: Final = {SUCCESS_CRITERIA_MET: COMPLETE, FAILURE_TARGET: FAILED}
"""What each of the first becomes once no pod is left."""


class JobVerdict(NamedTuple):
    """A condition that is to become true."""

    type: str
    reason: str
    message: str


COMPLETIONS_REACHED: Final = JobVerdict(SUCCESS_CRITERIA_MET, "CompletionsReached", "Reached expected number of succeeded pods")
BACKOFF_LIMIT_EXCEEDED: Final = JobVerdict(FAILURE_TARGET, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE_EXCEEDED: Final = JobVerdict(FAILURE_TARGET, "DeadlineExceeded", "Job was active longer than specified deadline")
_SUSPENDED: Final = JobVerdict(SUSPENDED, "JobSuspended", "Job suspended")
_RESUMED: Final = JobVerdict(SUSPENDED, "JobResumed", "Job resumed")


def true_condition(status: JobStatus, *types: str) -> JobCondition | None:
    return next((found for found in status.conditions if found.type in types and found.status == "True"), None)


def verdict_in(status: JobStatus) -> JobVerdict | None:
    """What was decided about the job before; it stays."""
    found = true_condition(status, *TERMINAL)
    return None if found is None else JobVerdict(found.type, found.reason, found.message)


def become(status: JobStatus, verdict: JobVerdict, now: float) -> None:
    """Sets the condition to True in place."""
    _set(status, verdict, "True", now)


def set_suspended(status: JobStatus, suspended: bool, now: float) -> bool:
    """Says in place whether the job is suspended; whether that is news. A job that never was says nothing."""
    present = next((found for found in status.conditions if found.type == SUSPENDED), None)
    wanted = "True" if suspended else "False"
    if (present is None and not suspended) or (present is not None and present.status == wanted):
        return False
    _set(status, _SUSPENDED if suspended else _RESUMED, wanted, now)
    return True


def _set(status: JobStatus, verdict: JobVerdict, wanted: str, now: float) -> None:
    condition = set_condition(status.conditions, verdict.type, wanted, verdict.reason, verdict.message, now)
    condition.last_probe_time.CopyFrom(condition.last_transition_time)
