"""The labels by which a job knows its pods: its uid and its name, in the template and in the selector.

A job without `manualSelector` selects by its uid alone, so no two jobs ever share a pod. Pure.

Source: the strategy of batch/v1 Job, Kubernetes 1.34.
"""

from __future__ import annotations

from typing import Final

from rayched.v1.workloads_pb2 import Job

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod of an Indexed job."""
_LEGACY: Final = {CONTROLLER_UID: "controller-uid", JOB_NAME: "job-name"}

GENERATED: Final = frozenset((*_LEGACY, *_LEGACY.values()))


def generated(job: Job) -> dict[str, str]:
    """The labels of its template."""
    texts = {CONTROLLER_UID: job.metadata.uid, JOB_NAME: job.metadata.name}
    return {label: text for key, text in texts.items() for label in (key, _LEGACY[key])}


def select_by_uid(job: Job) -> None:
    """In place, where the job has a uid; labels that are there already stay."""
    uid = job.metadata.uid
    if not uid:
        return
    labels = job.spec.template.metadata.labels
    for label, text in generated(job).items():
        if label not in labels:
            labels[label] = text
    if not job.spec.HasField("selector"):
        job.spec.selector.match_labels[CONTROLLER_UID] = uid
