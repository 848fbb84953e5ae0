"""What the gateway serves: the kinds of rayched as Kubernetes' resources, with their groups, verbs and subresources. Pure.

Source: the resources of Kubernetes 1.34 (`kubectl get --raw /api/v1` and its like).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rayched.api import kinds
from rayched.api.kinds import Kind
from rayched.v1.core_pb2 import Node, Pod

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_VERBS: Final = ("get", "list", "watch")
_ALL: Final = ("all",)


@dataclass(frozen=True, slots=True)
class Subresource:
    """Something below an object, as pods/NAME/eviction; what is sent there may be of another group than the object."""

    name: str
    kind: str
    group: str
    version: str
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A kind at its place."""

    kind: Kind
    verbs: tuple[str, ...] = VERBS
    subresources: tuple[Subresource, ...] = ()
    categories: tuple[str, ...] = ()
    has_schema: bool = True
    """OpenAPI has its fields."""

    @property
    def version(self) -> str:
        return self.kind.api_version.rpartition("/")[2]

    @property
    def plural_with_group(self) -> str:
        """As messages name it: `pods`, `replicasets.apps`."""
        return f"{self.kind.plural}.{self.kind.group}" if self.kind.group else self.kind.plural

    def subresource(self, name: str) -> Subresource | None:
        return next((one for one in self.subresources if one.name == name), None)


ATTACH: Final = Subresource("attach", "PodAttachOptions", "", "v1", ("create", "get"))
BINDING: Final = Subresource("binding", "Binding", "", "v1", ("create",))
EVICTION: Final = Subresource("eviction", "Eviction", "policy", "v1", ("create",))
EXEC: Final = Subresource("exec", "PodExecOptions", "", "v1", ("create", "get"))
LOG: Final = Subresource("log", "Pod", "", "v1", ("get",))
PORT_FORWARD: Final = Subresource("portforward", "PodPortForwardOptions", "", "v1", ("create", "get"))
SCALE: Final = Subresource("scale", "Scale", "autoscaling", "v1", ("get", "patch", "update"))

_MORE: Final[Mapping[str, ServedResource]] = {
    one.kind.name: one
    for one in (
        ServedResource(kinds.POD, subresources=(ATTACH, BINDING, EVICTION, EXEC, LOG, PORT_FORWARD), categories=_ALL),
        ServedResource(kinds.SERVICE, categories=_ALL),
        ServedResource(kinds.REPLICA_SET, subresources=(SCALE,), categories=_ALL),
        ServedResource(kinds.STATEFUL_SET, subresources=(SCALE,), categories=_ALL),
        ServedResource(kinds.REPLICATION_CONTROLLER, subresources=(SCALE,), categories=_ALL),
        ServedResource(kinds.JOB, categories=_ALL),
        ServedResource(kinds.EVENT, verbs=READ_VERBS),
    )
}

METRICS_VERSION: Final = "metrics.k8s.io/v1beta1"
_METRICS: Final = (
    ServedResource(Kind("NodeMetrics", "nodes", (), METRICS_VERSION, False, Node, "node"), ("get", "list"), has_schema=False),
    ServedResource(Kind("PodMetrics", "pods", (), METRICS_VERSION, True, Pod, "pod"), ("get", "list"), has_schema=False),
)
"""What is used, which is stored nowhere: the messages are those of whose usage it is."""

RESOURCES: Final = (*(_MORE.get(kind.name, ServedResource(kind)) for kind in kinds.KINDS), *_METRICS)

GROUP_VERSIONS: Final[Mapping[str, tuple[ServedResource, ...]]] = {
    version: tuple(one for one in RESOURCES if one.kind.api_version == version)
    for version in dict.fromkeys(one.kind.api_version for one in RESOURCES)
}
"""By "v1", "apps/v1", in the order in which discovery tells them."""

_BY_PLACE: Final = {(one.kind.api_version, one.kind.plural): one for one in RESOURCES}


PODS: Final = _BY_PLACE["v1", kinds.POD.plural]


def find(group_version: str, plural: str) -> ServedResource | None:
    """What is served at /api/v1/PLURAL or /apis/GROUP/VERSION/PLURAL."""
    return _BY_PLACE.get((group_version, plural))
