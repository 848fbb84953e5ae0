"""By what key a strategic merge patch merges the lists of objects. Pure.

A list that is not in here is replaced as a whole: tolerations, taints, arguments, terms of affinity among them.

Source: `patchStrategy` and `patchMergeKey` in the types of k8s.io/api 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SET: Final = ""
"""The key of a list of plain values that is merged as a set."""


@dataclass(frozen=True, slots=True)
class MergedList:
    """How a list is merged: the key that tells its items apart, and the type of an item."""

    key: str
    item: str = ""
    retain_keys: bool = False


_METADATA: Final = {"ownerReferences": MergedList("uid"), "finalizers": MergedList(SET)}
_CONTAINERS: Final = MergedList("name", "Container")

LISTS: Final[Mapping[str, Mapping[str, MergedList]]] = {
    "ObjectMeta": _METADATA,
    "PodSpec": {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "imagePullSecrets": MergedList("name"),
        "schedulingGates": MergedList("name"),
        "hostAliases": MergedList("ip"),
        "topologySpreadConstraints": MergedList("topologyKey"),
        "volumes": MergedList("name", retain_keys=True),
        "resourceClaims": MergedList("name", retain_keys=True),
    },
    "Container": {
        "env": MergedList("name"),
        "ports": MergedList("containerPort"),
        "volumeMounts": MergedList("mountPath"),
        "volumeDevices": MergedList("devicePath"),
    },
    "PodStatus": {"conditions": MergedList("type"), "podIPs": MergedList("ip"), "hostIPs": MergedList("ip")},
    "NodeSpec": {"podCIDRs": MergedList(SET)},
    "NodeStatus": {"conditions": MergedList("type"), "addresses": MergedList("type")},
    "ServiceSpec": {"ports": MergedList("port")},
    "Status": {"conditions": MergedList("type")},
}
"""By type and field."""

_WORKLOAD: Final = {"metadata": "ObjectMeta", "spec": "WorkloadSpec", "status": "Status"}

TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "Pod": {"metadata": "ObjectMeta", "spec": "PodSpec", "status": "PodStatus"},
    "Node": {"metadata": "ObjectMeta", "spec": "NodeSpec", "status": "NodeStatus"},
    "Service": {"metadata": "ObjectMeta", "spec": "ServiceSpec", "status": "Status"},
    "ReplicaSet": _WORKLOAD,
    "StatefulSet": _WORKLOAD,
    "ReplicationController": _WORKLOAD,
    "Job": _WORKLOAD,
    "PodDisruptionBudget": {"metadata": "ObjectMeta", "spec": "PodDisruptionBudgetSpec", "status": "Status"},
    "WorkloadSpec": {"template": "PodTemplateSpec"},
    "PodTemplateSpec": {"metadata": "ObjectMeta", "spec": "PodSpec"},
}
"""The type of a field, by the type that has it. A kind that is not in here has metadata alone that is merged by keys."""

REPLACED: Final[Mapping[str, frozenset[str]]] = {"PodDisruptionBudgetSpec": frozenset({"selector"})}
"""Objects that a patch replaces as a whole."""


def field_type(owner: str, field: str) -> str:
    """Empty: a type without lists that are merged by keys."""
    found = TYPES.get(owner)
    if found is None:
        return "ObjectMeta" if field == "metadata" else ""
    return found.get(field, "")
