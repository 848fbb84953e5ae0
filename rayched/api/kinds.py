"""The kinds of object that rayched serves: names, API versions, scope and message of each.

The one table that manifests, the store's keys, the server and the command line read. The field of `Object` that holds a
kind, its message class and its JSON names all come from the generated messages.

Source: the REST mappings of Kubernetes 1.34 (`kubectl api-resources`); PodGroup is that of 1.37.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rayched.api.errors import nearest, quoted
from rayched.v1.core_pb2 import Event, Namespace, Node, Pod, ReplicationController, Service
from rayched.v1.workloads_pb2 import (
    Job,
    Object,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    ReplicaSet,
    RuntimeClass,
    StatefulSet,
)

AnyObject = (
    Pod
    | Node
    | Namespace
    | PriorityClass
    | PodDisruptionBudget
    | RuntimeClass
    | Service
    | ReplicaSet
    | StatefulSet
    | ReplicationController
    | Event
    | Job
    | PodGroup
)
"""A message of one of the kinds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object. `field` is its name in the oneof of `Object`."""

    name: str
    plural: str
    short_names: tuple[str, ...]
    api_version: str
    namespaced: bool
    message: type[AnyObject]
    field: str

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def group(self) -> str:
        """The API group: "apps" of "apps/v1"; the core group is ""."""
        return self.api_version.rpartition("/")[0]


class UnknownKind(ValueError):
    """A word that names no kind. The message lists the words that do."""

    def __init__(self, text: str, *, is_advised: bool = False) -> None:
        """`is_advised`: the message also says what may have been meant."""
        super().__init__(text)
        self.is_advised = is_advised


POD: Final = Kind("Pod", "pods", ("po",), "v1", True, Pod, "pod")
NODE: Final = Kind("Node", "nodes", ("no",), "v1", False, Node, "node")
NAMESPACE: Final = Kind("Namespace", "namespaces", ("ns",), "v1", False, Namespace, "namespace")
PRIORITY_CLASS: Final = Kind(
    "PriorityClass", "priorityclasses", ("pc",), "scheduling.k8s.io/v1", False, PriorityClass, "priority_class"
)
POD_DISRUPTION_BUDGET: Final = Kind(
    "PodDisruptionBudget", "poddisruptionbudgets", ("pdb",), "policy/v1", True, PodDisruptionBudget, "pod_disruption_budget"
)
RUNTIME_CLASS: Final = Kind("RuntimeClass", "runtimeclasses", (), "node.k8s.io/v1", False, RuntimeClass, "runtime_class")
SERVICE: Final = Kind("Service", "services", ("svc",), "v1", True, Service, "service")
REPLICA_SET: Final = Kind("ReplicaSet", "replicasets", ("rs",), "apps/v1", True, ReplicaSet, "replica_set")
STATEFUL_SET: Final = Kind("StatefulSet", "statefulsets", ("sts",), "apps/v1", True, StatefulSet, "stateful_set")
REPLICATION_CONTROLLER: Final = Kind(
    "ReplicationController", "replicationcontrollers", ("rc",), "v1", True, ReplicationController, "replication_controller"
)
JOB: Final = Kind("Job", "jobs", (), "batch/v1", True, Job, "job")
POD_GROUP: Final = Kind("PodGroup", "podgroups", ("pg",), "scheduling.k8s.io/v1beta1", True, PodGroup, "pod_group")
EVENT: Final = Kind("Event", "events", ("ev",), "v1", True, Event, "event")

KINDS: Final[tuple[Kind, ...]] = (
    POD,
    NODE,
    NAMESPACE,
    PRIORITY_CLASS,
    POD_DISRUPTION_BUDGET,
    RUNTIME_CLASS,
    SERVICE,
    REPLICA_SET,
    STATEFUL_SET,
    REPLICATION_CONTROLLER,
    JOB,
    POD_GROUP,
    EVENT,
)

SCALED: Final = (REPLICA_SET, STATEFUL_SET, REPLICATION_CONTROLLER, JOB)
"""Kinds that say how many pods there are to be."""

_BY_NAME: Final = {kind.name: kind for kind in KINDS}
_BY_FIELD: Final = {kind.field: kind for kind in KINDS}
_BY_MESSAGE: Final = {kind.message: kind for kind in KINDS}
_BY_WORD: Final = {
    word: kind
    for kind in KINDS
    for base in (kind.singular, kind.plural)
    for word in (base, *([f"{base}.{kind.group}"] if kind.group else []), *kind.short_names)
}


def by_name(name: str) -> Kind:
    """The kind of a manifest's `kind` field; case counts."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UnknownKind(
            f"kind {quoted(name)} is not known; allowed are {', '.join(_BY_NAME)}{_advice(name, lambda kind: kind.name)}"
        ) from None


_WORD_LENGTH_MAX: Final = 40
_NOT_SERVED: Final = {
    ("deployment", "deployments", "deploy"): "a ReplicaSet keeps so many pods running here",
    ("daemonset", "daemonsets", "ds"): "nothing makes a pod for each node here",
    ("cronjob", "cronjobs", "cj"): "nothing starts jobs at times here; a Job runs once",
}
"""Kinds of Kubernetes that make pods, and what to do without them."""


def _advice(word: str, named: Callable[[Kind], str]) -> str:
    """What stands in the place of a kind that is not served, or which one may have been meant, as it is `named` there."""
    word = word.lower().partition(".")[0]
    for names, advice in _NOT_SERVED.items():
        if word in names:
            return f"; {advice}"
    close = nearest(word, _BY_WORD) if len(word) <= _WORD_LENGTH_MAX else ""
    return f"; did you mean {quoted(named(_BY_WORD[close]))}?" if close else ""


def by_word(word: str) -> Kind:
    """The kind that a person means: name, plural or short name in any case, with or without the API group."""
    try:
        return _BY_WORD[word.lower()]
    except KeyError:
        known = ", ".join("|".join((kind.plural, *kind.short_names)) for kind in KINDS)
        advice = _advice(word, lambda kind: kind.plural)
        raise UnknownKind(f"there is no kind {quoted(word)}; allowed are {known}{advice}", is_advised=bool(advice)) from None


def of(item: Object) -> Kind:
    """The kind of what an Object holds; an empty Object is an UnknownKind."""
    field = item.WhichOneof("kind")
    if field is None:
        raise UnknownKind("the object is empty: none of its kinds is set")
    return _BY_FIELD[field]


def of_message(message: AnyObject) -> Kind:
    """The kind of a message."""
    return _BY_MESSAGE[type(message)]


def by_message(message_type: type[AnyObject]) -> Kind:
    """The kind whose messages are of this class. Raises UnknownKind."""
    try:
        return _BY_MESSAGE[message_type]
    except KeyError:
        raise UnknownKind(f"{message_type.__name__} is no kind of object; kinds are {', '.join(_BY_NAME)}") from None


def wrap(message: AnyObject) -> Object:
    """A new Object that holds a copy of the message."""
    item = Object()
    target = getattr(item, _BY_MESSAGE[type(message)].field)
    target.SetInParent()
    target.CopyFrom(message)
    return item


def unwrap(item: Object) -> AnyObject:
    """The message that an Object holds: no copy, changes go into the Object."""
    message: AnyObject = getattr(item, of(item).field)
    return message
