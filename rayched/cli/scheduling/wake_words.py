"""What the scheduling queue says of a pod, in words for a person. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rayched.api.columns import NONE
from rayched.cli.printing import counted
from rayched.v1.services_pb2 import PendingPod

_WORDS: Final[dict[str, str]] = {
    "AssignedPodAdd": "a pod is placed",
    "AssignedPodDelete": "a pod leaves its node",
    "AssignedPodUpdatePodLabel": "labels of a placed pod change",
    "AssignedPodUpdatePodScaleDown": "a placed pod asks for less",
    "NamespaceUpdate": "a namespace changes",
    "NodeAdd": "a node is added",
    "NodeDelete": "a node is removed",
    "NodeUpdateNodeAllocatable": "a node offers more",
    "NodeUpdateNodeAnnotation": "annotations of a node change",
    "NodeUpdateNodeCondition": "conditions of a node change",
    "NodeUpdateNodeLabel": "labels of a node change",
    "NodeUpdateNodeTaint": "taints of a node change",
    "PodAdd": "a pod is created",
    "PodDelete": "a pod leaves",
    "PodUpdatePodLabel": "labels of a pod change",
    "PodUpdatePodScaleDown": "a pod asks for less",
    "PodUpdatePodSchedulingGatesEliminated": "its gates are lifted",
    "PodUpdatePodToleration": "its tolerations change",
    "UnschedulablePodUpdate": "the pod itself changes",
    "UnschedulablePodUpdatePodLabel": "its labels change",
    "UnschedulablePodUpdatePodScaleDown": "it asks for less",
    "UnschedulablePodUpdatePodSchedulingGatesEliminated": "its gates are lifted",
    "UnschedulablePodUpdatePodToleration": "its tolerations change",
    "*All": "anything changes",
}
_CAPITALS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def in_words(labels: Iterable[str]) -> str:
    """`a node is added; labels of a node change`; events of plugins that nobody knows here stand as they are."""
    return "; ".join(dict.fromkeys(_WORDS.get(label) or _CAPITALS.sub(" ", label).lower() for label in labels))


def waiting_rows(waiting: PendingPod) -> list[tuple[str, str]]:
    """Names and texts: where it waits, who holds it back, and what has to happen before it is tried again."""
    rows = [
        ("Queue", f"{waiting.queue}, after {counted(waiting.attempts, 'attempt')}"),
        ("Held by", ", ".join(waiting.held_by) or NONE),
    ]
    return [*rows, ("Retried when", in_words(waiting.would_wake))] if waiting.would_wake else rows
