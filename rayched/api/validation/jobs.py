"""Rules for jobs.

Source: the validation package of batch, Kubernetes 1.34.
"""

from __future__ import annotations

from typing import Final

from rayched.api import kinds
from rayched.api.errors import quoted
from rayched.api.gangs import GANG_ANNOTATION, NO, YES
from rayched.api.job_labels import CONTROLLER_UID, generated
from rayched.api.names import label_fault, subdomain_fault
from rayched.api.validation.faults import Faults
from rayched.api.validation.metadata import check_metadata
from rayched.api.validation.selection import check_selector
from rayched.v1.workloads_pb2 import Job

INDEXED: Final = "Indexed"
COMPLETION_MODES: Final = ("NonIndexed", INDEXED)
POD_REPLACEMENT_POLICIES: Final = ("TerminatingOrFailed", "Failed")
_INDEXES_MAX: Final = 100_000
_OPTIONAL_COUNTS: Final = {
    "parallelism": "parallelism",
    "completions": "completions",
    "active_deadline_seconds": "activeDeadlineSeconds",
    "backoff_limit": "backoffLimit",
    "ttl_seconds_after_finished": "ttlSecondsAfterFinished",
}


def check_job(job: Job, faults: Faults) -> None:
    check_metadata(job.metadata, kinds.JOB, subdomain_fault, faults)
    if (asked := job.metadata.annotations.get(GANG_ANNOTATION)) is not None:
        faults.choice(f"metadata.annotations[{quoted(GANG_ANNOTATION)}]", asked, (YES, NO))
    spec = job.spec
    for field, name in _OPTIONAL_COUNTS.items():
        faults.not_negative(f"spec.{name}", getattr(spec, field))
    faults.choice("spec.completionMode", spec.completion_mode, COMPLETION_MODES)
    faults.choice("spec.podReplacementPolicy", spec.pod_replacement_policy, POD_REPLACEMENT_POLICIES)
    if spec.completion_mode == INDEXED:
        _check_indexes(job, faults)
    selector = spec.selector if spec.HasField("selector") else None
    if selector is not None and not spec.manual_selector:
        _check_generated(job, faults)
    check_selector(selector, spec.template, faults, ("OnFailure", "Never"))


def _check_generated(job: Job, faults: Faults) -> None:
    """Without manualSelector two jobs never share a pod, so nothing but what is made of its own uid and name will do."""
    selector, labels = job.spec.selector, job.spec.template.metadata.labels
    if dict(selector.match_labels) != {CONTROLLER_UID: job.metadata.uid} or selector.match_expressions:
        faults.add("spec.selector", "is not the one that is made of the job's uid; leave it out, or set spec.manualSelector")
    for label, text in generated(job).items():
        if labels.get(label) != text:
            where = f"spec.template.metadata.labels[{quoted(label)}]"
            faults.add(where, f"{quoted(labels.get(label, ''))} must be {quoted(text)}; leave it out, or set spec.manualSelector")


def _check_indexes(job: Job, faults: Faults) -> None:
    spec = job.spec
    if not spec.HasField("completions"):
        faults.add("spec.completions", "is required when completionMode is Indexed")
        return
    if spec.completions > _INDEXES_MAX:
        faults.add("spec.completions", f"{spec.completions} is too many for completionMode Indexed; at most {_INDEXES_MAX}")
    if spec.parallelism > _INDEXES_MAX:
        faults.add("spec.parallelism", f"{spec.parallelism} is too many for completionMode Indexed; at most {_INDEXES_MAX}")
    # Each pod is called by its index, as a host.
    last = f"{job.metadata.name}-{max(spec.completions - 1, 0)}"
    fault = label_fault(last)
    if fault is not None and subdomain_fault(job.metadata.name) is None:
        faults.add("metadata.name", f"the pod of the last index is called by it as a host: {fault}")
