"""What a submitter may say in an object, beyond whose namespace it is in. Pure.

| field | a submitter may |
|---|---|
| spec.nodeName | leave it as it is |
| spec.priorityClassName | name the classes of the binding, or those up to 0 without any; the default class; never `system-*` |
| spec.priority | say what the class says |
| spec.schedulerName | name the schedulers of the binding; without any, all |
| spec.tolerations | not tolerate what keeps ordinary pods away, nor everything, unless the binding is privileged |
| hostPort | take those from 1024 on, unless the binding is privileged |
| metadata.ownerReferences | name objects of the same namespace |
| what costs time to decide | ask for the points of the binding, or 200 (pod_points.py) |
| labels and annotations of kubernetes.io, k8s.io | set the well-known ones |

The rules hold for a pod and for the template that a controller makes pods of; those on priority for a PodGroup as well. They
judge the new object and the old one alike: what the old one had and the new one has too is nobody's doing now, so it is let be.
Of a template that is so only while its whole spec is as it was: one more pod of an administrator's template is one that a
submitter could not have made.

Who has several bindings for a namespace may what one of them allows; two never add up.

Source: docs/adr/0032; NodeRestriction and the default priority admission of Kubernetes 1.34 judge alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rayched.access.bindings import SYSTEM_CLASSES, RoleBinding
from rayched.access.pod_points import SUBMITTER_POINTS, points_of
from rayched.access.policy import AccessRole
from rayched.api.defaulting import DEFAULT_NAMESPACE
from rayched.api.errors import FieldError, key_of, quoted
from rayched.api.kinds import KINDS, AnyObject
from rayched.v1.core_pb2 import Container, Event, Pod, PodSpec, ReplicationController, Toleration
from rayched.v1.meta_pb2 import ObjectMeta
from rayched.v1.workloads_pb2 import Job, PodGroup, PodGroupSpec, PriorityClass, ReplicaSet, StatefulSet

HOST_PORT_MIN: Final = 1024
OWNERS_MAX: Final = 20
WELL_KNOWN: Final = frozenset(
    {
        "app.kubernetes.io/component",
        "app.kubernetes.io/created-by",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/name",
        "app.kubernetes.io/part-of",
        "app.kubernetes.io/version",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "controller.kubernetes.io/pod-deletion-cost",
        "kubectl.kubernetes.io/default-container",
        "kubectl.kubernetes.io/last-applied-configuration",
        "kubectl.kubernetes.io/restartedAt",
        "kubernetes.io/change-cause",
        "kubernetes.io/description",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Keys of labels and annotations that say nothing to the cluster that a submitter may not say."""

_RESERVED_DOMAINS: Final = ("kubernetes.io", "k8s.io")
RESTRICTED_DOMAINS: Final = ("node-restriction.kubernetes.io", "node-restriction.rayched.io")
"""Of labels and taints that administrators alone give nodes."""
_GUARDED_TAINTS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_NAMESPACED: Final = frozenset(kind.name for kind in KINDS if kind.namespaced)

RULE_ACCESS_OBJECTS: bool = True
RULE_ACCESS_TEMPLATES: bool = True
RULE_ACCESS_OLD_TEMPLATES: bool = True
"""Broken by tests alone, as the others are."""


class OwnerKey(NamedTuple):
    """An object that another one of the same namespace names as its owner."""

    namespace: str
    kind: str
    name: str
    uid: str


class ObjectWorld(NamedTuple):
    """What the rules look up: all priority classes by name, and those of the named owners that are there."""

    classes: Mapping[str, PriorityClass]
    owners: frozenset[OwnerKey]


class _Fault(NamedTuple):
    """`mark` is equal where an object says the same in the same field."""

    mark: tuple[Any, ...]
    error: FieldError


def object_faults(
    old: AnyObject | None, new: AnyObject, namespace: str, bindings: Iterable[RoleBinding], world: ObjectWorld
) -> list[FieldError]:
    """Why whoever has these bindings may not make the new object of the old one; under the binding that allows most."""
    if not RULE_ACCESS_OBJECTS:
        return []
    if isinstance(new, Event):
        # It asks for nothing; who reports it is set by the server.
        return []
    own = [one for one in bindings if one.role is AccessRole.SUBMITTER and one.covers(namespace)]
    judged = [_faults_under(old, new, binding, world) for binding in own]
    return min(judged, key=len, default=[FieldError("metadata.namespace", "no role binding of a submitter covers it")])


def owners_of(message: AnyObject) -> list[OwnerKey]:
    """The owners that an object names, and that can be in its namespace; those of a template are not looked at by anybody."""
    metadata = message.metadata
    namespace = metadata.namespace or DEFAULT_NAMESPACE
    return [OwnerKey(namespace, one.kind, one.name, one.uid) for one in metadata.owner_references[:OWNERS_MAX]]


def label_faults(keys: Iterable[str]) -> list[FieldError]:
    """Of labels that a submitter sets or removes on a pod that is there."""
    return [
        FieldError(key_of("metadata.labels", key), "labels of kubernetes.io and k8s.io are not for submitters to change")
        for key in keys
        if is_reserved(key)
    ]


def name_reporter(message: AnyObject, identity: str) -> None:
    """An Event says who reported it, whatever was sent."""
    if isinstance(message, Event):
        message.source.component = identity
        message.source.host = ""


def pods_of(message: AnyObject) -> Pod | None:
    """The pod that an object is, or that a controller makes of it."""
    if isinstance(message, Pod):
        return message
    if isinstance(message, ReplicaSet | StatefulSet | ReplicationController | Job):
        return Pod(metadata=message.spec.template.metadata, spec=message.spec.template.spec)
    return None


# ------------------------------------------------------------------------------------------------------------- old and new


def _faults_under(old: AnyObject | None, new: AnyObject, binding: RoleBinding, world: ObjectWorld) -> list[FieldError]:
    let_be = set()
    if old is not None:
        is_as_it_was = isinstance(new, Pod) or _spec(old) == _spec(new) or not RULE_ACCESS_OLD_TEMPLATES
        let_be = {fault.mark for fault in _faults(old, binding, world, with_pod=is_as_it_was)}
    return [fault.error for fault in _faults(new, binding, world, with_pod=True) if fault.mark not in let_be]


def _spec(message: AnyObject) -> bytes:
    spec: Any = getattr(message, "spec", None)
    return b"" if spec is None else spec.SerializeToString(deterministic=True)


def _faults(message: AnyObject, binding: RoleBinding, world: ObjectWorld, *, with_pod: bool) -> Iterator[_Fault]:
    yield from _metadata_faults("metadata", message.metadata)
    yield from _owner_faults(message, world)
    if isinstance(message, PodGroup):
        yield from _priority_faults("spec", message.spec, binding, world.classes)
    pod = pods_of(message) if with_pod else None
    if pod is None:
        return
    if isinstance(message, Pod):
        yield from _pod_faults("spec", pod.spec, binding, world)
    elif RULE_ACCESS_TEMPLATES:
        yield from _metadata_faults("spec.template.metadata", pod.metadata)
        yield from _pod_faults("spec.template.spec", pod.spec, binding, world)


# ---------------------------------------------------------------------------------------------------------------- metadata


def _metadata_faults(path: str, metadata: ObjectMeta) -> Iterator[_Fault]:
    for field, entries in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        for key in sorted(entries):
            if is_reserved(key) and key not in WELL_KNOWN:
                text = "of kubernetes.io and k8s.io submitters set the well-known keys alone, such as app.kubernetes.io/name"
                yield _Fault((path, field, key, entries[key]), FieldError(key_of(f"{path}.{field}", key), text))


def _owner_faults(message: AnyObject, world: ObjectWorld) -> Iterator[_Fault]:
    count = len(message.metadata.owner_references)
    if count > OWNERS_MAX:
        text = f"found {count} owners; at most {OWNERS_MAX} are allowed"
        yield _Fault(("owners", count), FieldError("metadata.ownerReferences", text))
        return
    for index, owner in enumerate(owners_of(message)):
        if owner.kind not in _NAMESPACED or owner not in world.owners:
            text = f"there is no {owner.kind or 'object'} {quoted(owner.name)} of that uid in the same namespace"
            yield _Fault(("owner", *owner), FieldError(f"metadata.ownerReferences[{index}]", text))


# --------------------------------------------------------------------------------------------------------------------- pods


def _pod_faults(path: str, spec: PodSpec, binding: RoleBinding, world: ObjectWorld) -> Iterator[_Fault]:
    if spec.node_name:
        text = f"found {quoted(spec.node_name)}; the scheduler chooses the node, and must find it empty"
        yield _Fault(("nodeName", spec.node_name), FieldError(f"{path}.nodeName", text))
    yield from _priority_faults(path, spec, binding, world.classes)
    if binding.scheduler_names and spec.scheduler_name not in ("", *binding.scheduler_names):
        text = f"{quoted(spec.scheduler_name)} is not among those of the role binding: {', '.join(binding.scheduler_names)}"
        yield _Fault(("schedulerName", spec.scheduler_name), FieldError(f"{path}.schedulerName", text))
    points, most = points_of(spec), binding.limits.pod_points or SUBMITTER_POINTS
    if points > most:
        text = f"to decide about it costs {points} points, of which the role binding allows {most}; ask for fewer terms"
        yield _Fault(("points", points), FieldError(path, text))
    if not binding.privileged:
        yield from _toleration_faults(path, spec.tolerations)
        yield from _port_faults(path, spec)


def _priority_faults(
    path: str, spec: PodSpec | PodGroupSpec, binding: RoleBinding, classes: Mapping[str, PriorityClass]
) -> Iterator[_Fault]:
    name = spec.priority_class_name
    default = next((one for one in classes.values() if one.global_default), None)
    named = classes.get(name) if name else default
    if name and not _is_allowed_class(name, named, default, binding):
        text = f"{quoted(name)} is not among the classes of the role binding: {_allowed_classes(binding)}"
        yield _Fault(("priorityClassName", name), FieldError(f"{path}.priorityClassName", text))
    value = named.value if named is not None else 0
    if spec.HasField("priority") and spec.priority != value:
        text = f"found {spec.priority}; the class gives {value}, and submitters say nothing else"
        yield _Fault(("priority", spec.priority), FieldError(f"{path}.priority", text))


def _is_allowed_class(name: str, named: PriorityClass | None, default: PriorityClass | None, binding: RoleBinding) -> bool:
    if name.startswith(SYSTEM_CLASSES):
        return False
    if default is not None and name == default.metadata.name:
        return True
    if binding.priority_classes:
        return name in binding.priority_classes
    return named is not None and named.value <= 0


def _allowed_classes(binding: RoleBinding) -> str:
    return ", ".join(binding.priority_classes) or "those of value 0 and below, and the default class"


def _toleration_faults(path: str, tolerations: Sequence[Toleration]) -> Iterator[_Fault]:
    for index, one in enumerate(tolerations):
        if _tolerates_guarded(one):
            text = f"{quoted(one.key)} keeps ordinary pods away" if one.key else "tolerates all taints"
            error = FieldError(f"{path}.tolerations[{index}]", f"{text}; that needs a privileged role binding")
            yield _Fault(("toleration", one.SerializeToString(deterministic=True)), error)


def _tolerates_guarded(one: Toleration) -> bool:
    return not one.key or one.key in _GUARDED_TAINTS or any(is_of(one.key, domain) for domain in RESTRICTED_DOMAINS)


def _port_faults(path: str, spec: PodSpec) -> Iterator[_Fault]:
    groups: tuple[tuple[str, Sequence[Container]], ...] = (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    )
    for field, containers in groups:
        for index, container in enumerate(containers):
            for number, port in enumerate(container.ports):
                taken = port.host_port or (port.container_port if spec.host_network else 0)
                if 0 < taken < HOST_PORT_MIN:
                    where = f"{path}.{field}[{index}].ports[{number}].hostPort"
                    text = f"found {taken}; below {HOST_PORT_MIN} that needs a privileged role binding"
                    yield _Fault(("hostPort", taken, port.protocol, port.host_ip), FieldError(where, text))


def is_reserved(key: str) -> bool:
    """Whether a label or annotation is of kubernetes.io or k8s.io, or of what is below these."""
    return any(is_of(key, domain) for domain in _RESERVED_DOMAINS)


def is_of(key: str, whole: str) -> bool:
    """Whether what stands before the slash of a key is this domain, or below it."""
    domain = key.partition("/")[0] if "/" in key else ""
    return domain == whole or domain.endswith(f".{whole}")
