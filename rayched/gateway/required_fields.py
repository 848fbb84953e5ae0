"""Fields that Kubernetes' API always gives, also where they are zero. Pure.

rayched leaves out what is not set. Typed clients, the official one of Python among them, refuse an object without these, and
with it the whole list that it is in; and a script that looks for `exitCode == 0` finds nothing.

Source: the fields without `omitempty` in k8s.io/api 1.34, of the kinds that are served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

Document = dict[str, Any]

_CONTAINER_STATUS: Final[Mapping[str, Any]] = {"image": "", "imageID": "", "ready": False, "restartCount": 0}
_NODE_INFO: Final[Mapping[str, Any]] = dict.fromkeys(
    (
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ),
    "",
)
_BUDGET: Final[Mapping[str, Any]] = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}
_CONDITION: Final[Mapping[str, Any]] = {"reason": "", "message": ""}
_SCALED: Final = ("ReplicaSet", "ReplicationController", "StatefulSet")
_PLAIN: Final = frozenset({"Event", "PriorityClass", "RuntimeClass"})
"""Kinds without spec and status. All others always have both, empty or not."""
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_STATES: Final = ("state", "lastState")


def fill(document: Document) -> Document:
    """The document itself, with what was missing."""
    kind = document["kind"]
    if kind in _PLAIN:
        return document
    document.setdefault("spec", {})
    status = document.setdefault("status", {})
    if kind in _SCALED:
        status.setdefault("replicas", 0)
    elif kind == "Pod":
        for one in _items(status, _STATUSES):
            _default(one, _CONTAINER_STATUS)
            for state in _STATES:
                terminated = one.get(state, {}).get("terminated")
                if terminated is not None:
                    terminated.setdefault("exitCode", 0)
    elif kind == "Node" and "nodeInfo" in status:
        _default(status["nodeInfo"], _NODE_INFO)
    elif kind == "PodDisruptionBudget":
        _default(status, _BUDGET)
        for one in _items(status, ("conditions",)):
            _default(one, _CONDITION)
    return document


def _items(status: Document, names: Iterable[str]) -> list[Document]:
    return [one for name in names for one in status.get(name, ())]


def _default(document: Document, fields: Mapping[str, Any]) -> None:
    for name, zero in fields.items():
        document.setdefault(name, zero)
