"""`rayched describe` of what makes pods: ReplicaSets, StatefulSets, ReplicationControllers and Jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from rayched.api import kinds
from rayched.api.columns import NONE
from rayched.cli.objects.description_lines import container, controlled_by, field, mapping, shown_annotations, table
from rayched.client.client import Client
from rayched.v1.core_pb2 import Pod, PodTemplateSpec, ReplicationController
from rayched.v1.meta_pb2 import LabelSelector
from rayched.v1.workloads_pb2 import Job, ReplicaSet, StatefulSet

_PHASES: Final = (("Running", "Running"), ("Pending", "Waiting"), ("Succeeded", "Succeeded"), ("Failed", "Failed"))
"""As kubectl counts pods, in its order."""


def maker_lines(client: Client, item: ReplicaSet | StatefulSet | ReplicationController | Job) -> list[str]:
    metadata, selector = item.metadata, _selector(item.spec.selector)
    lines = [
        field("Name", metadata.name),
        field("Namespace", metadata.namespace),
        field("Selector", selector or NONE),
        *mapping("Labels", metadata.labels),
        *mapping("Annotations", shown_annotations(metadata)),
        *controlled_by(metadata),
    ]
    found = client.list(kinds.POD, namespace=metadata.namespace, label_selector=selector)
    owned = [pod for pod in found if isinstance(pod, Pod) and _is_of(pod, metadata.uid)]
    counts = Counter(pod.status.phase or "Pending" for pod in owned)
    active = len(owned) - counts["Succeeded"] - counts["Failed"]
    lines += _job_lines(item) if isinstance(item, Job) else _replica_lines(item, active)
    lines.append(field("Pods Statuses", " / ".join(f"{counts[phase]} {word}" for phase, word in _PHASES)))
    lines += ["Pod Template:", *(f"  {line}" for line in _template_lines(item.spec.template))]
    if not isinstance(item, ReplicaSet | Job) or not item.status.conditions:
        return lines
    rows = [[one.type, one.status, one.reason, one.message] for one in item.status.conditions]
    return [*lines, "Conditions:", *table(["Type", "Status", "Reason", "Message"], rows)]


def _is_of(pod: Pod, uid: str) -> bool:
    return any(owner.controller and owner.uid == uid for owner in pod.metadata.owner_references)


def _replica_lines(item: ReplicaSet | StatefulSet | ReplicationController, active: int) -> list[str]:
    wanted = item.spec.replicas if item.spec.HasField("replicas") else 1
    return [field("Replicas", f"{active} current / {wanted} desired")]


def _job_lines(job: Job) -> list[str]:
    spec, status = job.spec, job.status
    completions = str(spec.completions) if spec.HasField("completions") else "<unset>"
    lines = [
        field("Parallelism", str(spec.parallelism if spec.HasField("parallelism") else 1)),
        field("Completions", completions),
        field("Completion Mode", spec.completion_mode or "NonIndexed"),
        field("Suspend", str(spec.suspend).lower()),
    ]
    for name, moment in (("Start Time", "start_time"), ("Completed At", "completion_time")):
        if status.HasField(moment):
            lines.append(field(name, getattr(status, moment).ToJsonString()))
    if status.completed_indexes:
        lines.append(field("Completed Indexes", status.completed_indexes))
    return lines


def _template_lines(template: PodTemplateSpec) -> list[str]:
    lines = mapping("Labels", template.metadata.labels)
    for heading, some in (("Init Containers", template.spec.init_containers), ("Containers", template.spec.containers)):
        if some:
            lines += [f"{heading}:", *(line for one in some for line in container(one))]
    if template.spec.priority_class_name:
        lines.append(field("Priority Class", template.spec.priority_class_name))
    return lines + mapping("Node-Selectors", template.spec.node_selector)


def _selector(found: LabelSelector | Mapping[str, str]) -> str:
    """As `-l` takes it; empty: none."""
    if not isinstance(found, LabelSelector):
        return ",".join(f"{key}={text}" for key, text in sorted(found.items()))
    parts = [f"{key}={text}" for key, text in sorted(found.match_labels.items())]
    for one in found.match_expressions:
        match one.operator:
            case "Exists":
                parts.append(one.key)
            case "DoesNotExist":
                parts.append(f"!{one.key}")
            case _:
                parts.append(f"{one.key} {one.operator.lower()} ({','.join(one.values)})")
    return ",".join(parts)
