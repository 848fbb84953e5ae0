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
STATUS: Final = "status"
SCALE: Final = Subresource("scale", "Scale", "autoscaling", "v1", ("get", "patch", "update"))


def _status(kind: Kind, *more_verbs: str) -> Subresource:
    """Of an object: it is the object. Agents write those of nodes and pods; all others are the leader's."""
    return Subresource(STATUS, kind.name, kind.group, kind.api_version.rpartition("/")[2], ("get", *more_verbs))


_POD_STREAMS: Final = (ATTACH, BINDING, EVICTION, EXEC, LOG, PORT_FORWARD)
_REPORTED: Final = ("patch", "update")

_MORE: Final[Mapping[str, ServedResource]] = {
    one.kind.name: one
    for one in (
        ServedResource(kinds.POD, subresources=(*_POD_STREAMS, _status(kinds.POD, *_REPORTED)), categories=_ALL),
        ServedResource(kinds.NODE, subresources=(_status(kinds.NODE, *_REPORTED),)),
        ServedResource(kinds.NAMESPACE, subresources=(_status(kinds.NAMESPACE),)),
        ServedResource(kinds.POD_DISRUPTION_BUDGET, subresources=(_status(kinds.POD_DISRUPTION_BUDGET),)),
        ServedResource(kinds.POD_GROUP, subresources=(_status(kinds.POD_GROUP),)),
        ServedResource(kinds.SERVICE, categories=_ALL),
        ServedResource(kinds.REPLICA_SET, subresources=(SCALE, _status(kinds.REPLICA_SET)), categories=_ALL),
        ServedResource(kinds.STATEFUL_SET, subresources=(SCALE,), categories=_ALL),
        ServedResource(kinds.REPLICATION_CONTROLLER, subresources=(SCALE,), categories=_ALL),
        ServedResource(kinds.JOB, subresources=(_status(kinds.JOB),), categories=_ALL),
        ServedResource(kinds.EVENT, verbs=READ_VERBS),
    )
}

METRICS_VERSION: Final = "metrics.k8s.io/v1beta1"
LEASES_VERSION: Final = "coordination.k8s.io/v1"
ACCESS_VERSION: Final = "authorization.k8s.io/v1"
IDENTITY_VERSION: Final = "authentication.k8s.io/v1"


def _unstored(name: str, plural: str, version: str, message: type[Node | Pod], *verbs: str) -> ServedResource:
    """What is kept nowhere, and has no message of its own: of a node, or of a pod, and then in its namespace."""
    kind = Kind(name, plural, (), version, message is Pod, message, message.DESCRIPTOR.name.lower())
    return ServedResource(kind, verbs, has_schema=False)


_UNSTORED: Final = (
    _unstored("NodeMetrics", "nodes", METRICS_VERSION, Node, "get", "list"),
    _unstored("PodMetrics", "pods", METRICS_VERSION, Pod, "get", "list"),
    _unstored("Lease", "leases", LEASES_VERSION, Pod, "get", "list"),
    _unstored("SelfSubjectAccessReview", "selfsubjectaccessreviews", ACCESS_VERSION, Node, "create"),
    _unstored("SelfSubjectReview", "selfsubjectreviews", IDENTITY_VERSION, Node, "create"),
)

RESOURCES: Final = (*(_MORE.get(kind.name, ServedResource(kind)) for kind in kinds.KINDS), *_UNSTORED)

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
