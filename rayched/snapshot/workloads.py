"""What scheduling reads of a cluster besides nodes and pods: labels of namespaces, and what Services and controllers select.

Owner: one Snapshot. `namespaces_revision` and `workloads_revision` tell readers when to look again.
Cost: a pod's Services are looked for among those of its namespace, one by one.

Source: listers of kube-scheduler 1.34; DefaultSelector of its PodTopologySpread.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from google.protobuf.message import Message

from rayched.api.selectors import Operator, Requirement, SelectorError, matches_all
from rayched.snapshot.pod_selection import LabelConditions, conditions_of, hold
from rayched.snapshot.referenced_labels import ReferencedLabels
from rayched.v1.core_pb2 import Namespace, Pod, ReplicationController, Service
from rayched.v1.workloads_pb2 import ReplicaSet, StatefulSet

K = TypeVar("K")
V = TypeVar("V")

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_CONTROLLERS: Final = {("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")}


class Workloads:
    """Namespaces, Services and controllers."""

    __slots__ = ("_controllers", "_mentioned", "_namespaces", "_services", "namespaces_revision", "workloads_revision")

    def __init__(self, mentioned: ReferencedLabels) -> None:
        """`mentioned` is told what selectors mention."""
        self._mentioned = mentioned
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._services: dict[str, dict[str, Mapping[str, str]]] = {}
        """Namespace to name to selector."""
        self._controllers: dict[tuple[str, str, str], Mapping[str, str] | LabelConditions] = {}
        """(kind, namespace, name) to selector; that of a ReplicationController is plain labels."""
        self.namespaces_revision = 0
        self.workloads_revision = 0

    def set_object(self, kind: str, namespace: str, name: str, message: Message | None) -> bool:
        """Take over an object's new state; None: it is gone. False: nothing that scheduling reads has changed."""
        match message:
            case None if kind == "Namespace":
                changed = self._namespaces.pop(name, None) is not None
            case None if kind == "Service":
                changed = self._services.get(namespace, {}).pop(name, None) is not None
                if not self._services.get(namespace, True):
                    del self._services[namespace]
            case None:
                missing = object()
                changed = self._controllers.pop((kind, namespace, name), missing) is not missing
            case Namespace():
                changed = _put(self._namespaces, name, dict(message.metadata.labels))
            case Service():
                self._mentioned.add_labels(message.spec.selector)
                changed = _put(self._services.setdefault(namespace, {}), name, dict(message.spec.selector))
            case ReplicationController():
                self._mentioned.add_labels(message.spec.selector)
                changed = _put(self._controllers, (kind, namespace, name), dict(message.spec.selector))
            case ReplicaSet() | StatefulSet():
                conditions = _selector_of(message)
                self._mentioned.add_conditions(conditions)
                changed = _put(self._controllers, (kind, namespace, name), conditions)
            case _:
                return False
        if changed:
            if kind == "Namespace":
                self.namespaces_revision += 1
            else:
                self.workloads_revision += 1
        return changed

    # ------------------------------------------------------------------------------------------------------- namespaces

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """None where it is not there (yet)."""
        return self._namespaces.get(namespace, _NOTHING)

    def namespaces_meeting(self, conditions: LabelConditions) -> frozenset[str]:
        """Names of the namespaces that are there and whose labels meet the conditions."""
        return frozenset(name for name, labels in self._namespaces.items() if hold(conditions, labels))

    # -------------------------------------------------------------------------------------------------------- workloads

    def siblings_of(self, pod: Pod) -> tuple[Requirement, ...]:
        """What selects the pods that belong together with this one; () where nothing does.

        The selectors of all Services that select the pod and of its controlling owner, all of which must hold.
        """
        merged: dict[str, str] = {}
        labels = pod.metadata.labels
        for selector in self._services.get(pod.metadata.namespace, {}).values():
            if selector and matches_all(selector, labels):
                merged.update(selector)
        owner = next((one for one in pod.metadata.owner_references if one.controller), None)
        more: Mapping[str, str] | LabelConditions = ()
        if owner is not None and (owner.api_version, owner.kind) in _CONTROLLERS:
            more = self._controllers.get((owner.kind, pod.metadata.namespace, owner.name), ())
        if isinstance(more, Mapping):
            merged.update(more)
            more = ()
        plain = (Requirement(key, Operator.IN, frozenset((value,))) for key, value in sorted(merged.items()))
        return tuple(dict.fromkeys((*plain, *(more or ()))))


def _put(table: dict[K, V], key: K, value: V) -> bool:
    if key in table and table[key] == value:
        return False
    table[key] = value
    return True


def _selector_of(workload: ReplicaSet | StatefulSet) -> LabelConditions:
    try:
        return conditions_of(workload.spec.selector if workload.spec.HasField("selector") else None)
    except SelectorError:
        return None
