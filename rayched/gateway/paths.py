"""Which resource the path of a request names. Pure.

    /api/v1/namespaces/NS/pods/NAME/eviction      /apis/GROUP/VERSION/namespaces/NS/PLURAL
    /api/v1/nodes/NAME                            /apis/GROUP/VERSION/PLURAL

Source: the request info of Kubernetes 1.34's API server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rayched.api.kinds import NAMESPACE
from rayched.gateway import served
from rayched.gateway.served import ServedResource

_SUBRESOURCES_OF_NAMESPACES: Final = ("status", "finalize")
_BINDINGS: Final = "bindings"
"""Another place for bindings of pods, which are named in the body there."""


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A collection where `name` is empty; otherwise one object, or something below it."""

    resource: ServedResource
    namespace: str
    """Empty: all of them, or a kind of the cluster."""
    name: str = ""
    subresource: str = ""


def parse(path: str) -> ResourcePath | None:
    """None: nothing that is served lies there."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        return None
    if "" in rest:
        return None
    namespace = ""
    if rest[0] == NAMESPACE.plural and len(rest) > 2 and rest[2] not in _SUBRESOURCES_OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    if namespace and version == "v1" and rest == [_BINDINGS]:
        return ResourcePath(served.PODS, namespace, "", served.BINDING.name)
    resource = served.find(version, rest[0])
    if resource is None or (namespace and not resource.kind.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    if name and resource.kind.namespaced and not namespace:
        return None
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and resource.subresource(subresource) is None:
        return None
    return ResourcePath(resource, namespace, name, subresource)
