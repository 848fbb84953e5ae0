"""`rayched describe` of a pod group."""

from __future__ import annotations

from collections import Counter

from rayched.api import kinds
from rayched.api.columns import NONE
from rayched.api.termination import FINAL_PHASES
from rayched.cli.objects.description_lines import controlled_by, field, mapping, shown_annotations, table
from rayched.client.client import Client
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodGroup


def group_lines(client: Client, group: PodGroup) -> list[str]:
    """Its members are counted as they are now, also while nobody has decided about it."""
    metadata, spec = group.metadata, group.spec
    gang = spec.scheduling_policy.HasField("gang")
    priority = f"{spec.priority}" + (f" ({spec.priority_class_name})" if spec.priority_class_name else "")
    lines = [
        field("Name", metadata.name),
        field("Namespace", metadata.namespace),
        *mapping("Labels", metadata.labels),
        *mapping("Annotations", shown_annotations(metadata)),
        *controlled_by(metadata),
        field("Priority", priority),
        field("Policy", f"gang, {spec.scheduling_policy.gang.min_count} at least" if gang else "basic"),
        field("Topology", ", ".join(one.key for one in spec.scheduling_constraints.topology) or NONE),
        field("Disruption", "all together" if spec.disruption_mode.HasField("all") else "one by one"),
        field("Members", _members(client, group)),
        "Conditions:",
    ]
    rows = [[one.type, one.status, one.reason, one.message] for one in group.status.conditions]
    return [*lines, *table(["Type", "Status", "Reason", "Message"], rows)]


def _members(client: Client, group: PodGroup) -> str:
    pods = client.list(kinds.POD, namespace=group.metadata.namespace)
    members = [pod for pod in pods if isinstance(pod, Pod) and pod.spec.scheduling_group.pod_group_name == group.metadata.name]
    counts = Counter(map(_stage, members))
    return f"{len(members)}" + (f": {', '.join(f'{count} {stage}' for stage, count in sorted(counts.items()))}" if counts else "")


def _stage(pod: Pod) -> str:
    if pod.metadata.HasField("deletion_timestamp"):
        return "ending"
    if pod.status.phase in FINAL_PHASES:
        return pod.status.phase.lower()
    return "bound" if pod.spec.node_name else "waiting"
