"""What agents report about nodes and pods, merged into the stored objects. Pure: the time comes in.

A node has several authors: its agent (capacity, allocatable, conditions, the labels it registered with) and administrators and
controllers (taints, unschedulable, other labels). A pod's status too: its agent reports the phase and the containers, the
scheduler owns the condition PodScheduled and the nominated node. So a report replaces what its author owns and nothing else.

A report that says nothing new changes nothing, whatever its heartbeat times: the caller compares before and after, and a
node's object then keeps its revision, on which bindings depend.

Source: what kubelet 1.34 owns in the status of nodes and pods. Cost: a copy of the status.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.v1.core_pb2 import Node, NodeStatus, Pod, PodStatus

_PHASES_AFTER: Final = {
    "": ("Pending", "Running", "Succeeded", "Failed", "Unknown"),
    "Pending": ("Pending", "Running", "Succeeded", "Failed", "Unknown"),
    "Running": ("Running", "Succeeded", "Failed", "Unknown"),
    "Unknown": ("Unknown", "Running", "Succeeded", "Failed"),
    "Succeeded": ("Succeeded",),
    "Failed": ("Failed",),
}
"""A pod that has ended stays as it ended, and one that ran does not become pending again."""

_SCHEDULER_CONDITIONS: Final = ("PodScheduled",)
"""Conditions of a pod that agents do not own."""


def register(stored: Node, reported: Node, now: Timestamp) -> None:
    """A node that exists registers again: its labels, annotations and status win, what others set stays."""
    for key, label in reported.metadata.labels.items():
        stored.metadata.labels[key] = label
    for key, note in reported.metadata.annotations.items():
        stored.metadata.annotations[key] = note
    if reported.spec.provider_id:
        stored.spec.provider_id = reported.spec.provider_id
    if reported.spec.pod_cidr:
        stored.spec.pod_cidr = reported.spec.pod_cidr
    report_node(stored, reported.status, now)


def report_node(stored: Node, reported: NodeStatus, now: Timestamp) -> None:
    """Takes over each part of the status that the report has; conditions one by one, by type."""
    status = stored.status
    for mine, theirs in ((status.capacity, reported.capacity), (status.allocatable, reported.allocatable)):
        if theirs:
            _replace_map(mine, theirs)
    for name in ("addresses", "images"):
        if getattr(reported, name):
            _replace_list(getattr(status, name), getattr(reported, name))
    if reported.HasField("node_info"):
        status.node_info.CopyFrom(reported.node_info)
    if reported.phase:
        status.phase = reported.phase
    _merge_conditions(status.conditions, reported.conditions, now)


def report_pod(stored: Pod, reported: PodStatus, now: Timestamp) -> str | None:
    """Takes over what the agent reports of a pod; why not, where it may not follow what is there."""
    status = stored.status
    phase = reported.phase or status.phase
    allowed = _PHASES_AFTER.get(status.phase, ())
    if phase and phase not in allowed:
        return f'status.phase: found "{phase}" after "{status.phase}", allowed are {", ".join(allowed)}'
    conditions = [condition for condition in reported.conditions if condition.type not in _SCHEDULER_CONDITIONS]
    status.phase = phase
    for name in ("message", "reason", "host_ip", "pod_ip", "resize"):
        setattr(status, name, getattr(reported, name))
    if reported.HasField("start_time"):
        status.start_time.CopyFrom(reported.start_time)
    for name in ("container_statuses", "init_container_statuses"):
        _replace_list(getattr(status, name), getattr(reported, name))
    _merge_conditions(status.conditions, conditions, now)
    return None


def _merge_conditions(stored: Any, reported: Iterable[Any], now: Timestamp) -> None:
    """Each reported condition takes the place of the stored one of its type; only a new status counts as a transition."""
    by_type = {condition.type: condition for condition in stored}
    for condition in reported:
        mine = by_type.get(condition.type)
        if mine is not None and _says(mine) == _says(condition):
            continue
        same_status = mine is not None and mine.status == condition.status
        transition = Timestamp()
        transition.CopyFrom(mine.last_transition_time if same_status and mine is not None else now)
        if not same_status and condition.HasField("last_transition_time"):
            transition.CopyFrom(condition.last_transition_time)
        if mine is None:
            mine = by_type[condition.type] = stored.add()
        mine.CopyFrom(condition)
        mine.last_transition_time.CopyFrom(transition)


def _says(condition: Any) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def _replace_map(stored: MutableMapping[str, Any], reported: MutableMapping[str, Any]) -> None:
    for key in set(stored) - set(reported):
        del stored[key]
    for key, quantity in reported.items():
        stored[key].CopyFrom(quantity)  # a map of messages creates an entry when it is asked for it


def _replace_list(stored: Any, reported: Any) -> None:
    del stored[:]
    stored.extend(reported)
