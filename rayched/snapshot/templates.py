"""Pods interned by template: what scheduling reads of a pod, compiled once for all pods that are equal in it.

A template is the pod without its name, uid and status, and without the node it was bound to; so a pod has the same template
before and after its binding. Two templates with the same content may exist one after the other (the older one was evicted and is
still held by bound pods): numbers are never given twice, and whatever is keyed by content treats them as equal.

Cost: about 3 µs for a pod whose template is known (copy, serialise, look up); about 20 µs for a new one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rayched.api import resources
from rayched.v1.core_pb2 import ContainerStatus, Pod
from rayched.v1.meta_pb2 import Quantity

TEMPLATES_MAX: Final = 16_384
"""Templates kept by a table; the one that was not asked for longest goes first."""

ANY_ADDRESS: Final = "0.0.0.0"
DEFAULT_PROTOCOL: Final = "TCP"
RESIZE_PENDING: Final = "PodResizePending"

HostPort = tuple[str, int, str]
"""(protocol, port, ip); no address is written as 0.0.0.0."""


@dataclass(frozen=True, slots=True, eq=False)
class PodTemplate:
    """A compiled template; immutable, compared by identity."""

    id: int
    """Unique in its table, never given again."""
    content: bytes
    """Deterministic serialisation of `pod`: the template's identity across tables and processes."""
    pod: Pod
    """The pod without name, uid and status. Not to be changed."""
    namespace: str
    labels: Mapping[str, str]
    requests: Mapping[str, int]
    """What an incoming pod needs of a node: milli-CPU, bytes and counts."""
    accounted: Mapping[str, int]
    """What a bound pod takes up: as `requests`, but a resize in place counts as well."""
    non_zero: tuple[int, int]
    """(milli-CPU, bytes) that a bound pod counts for in scores."""
    host_ports: tuple[HostPort, ...]
    """Each host port once, sorted."""
    scheduler_name: str
    priority: int
    has_affinity: bool
    """Whether it says anything of affinity, to nodes or pods."""


class TemplateTable:
    """Gives each pod its template; keeps at most `limit` of them."""

    __slots__ = ("_by_content", "_limit", "_next_id")

    def __init__(self, limit: int = TEMPLATES_MAX) -> None:
        self._by_content: OrderedDict[bytes, PodTemplate] = OrderedDict()
        self._limit = limit
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._by_content)

    @property
    def n_seen(self) -> int:
        """How many templates there ever were."""
        return self._next_id

    def used(self, template: PodTemplate) -> None:
        """A pod came of which it is known that it has this template."""
        if template.content in self._by_content:
            self._by_content.move_to_end(template.content)

    def intern(self, pod: Pod, *, with_node_name: bool = False) -> PodTemplate:
        """The template of a pod.

        `with_node_name` keeps spec.nodeName as something the pod asks for; otherwise it is where the pod is, and left out.
        """
        key = _reduced(pod, with_node_name)
        content = key.SerializeToString(deterministic=True)
        template = self._by_content.get(content)
        if template is not None:
            self._by_content.move_to_end(content)
            return template
        template = self._by_content[content] = compile_template(self._next_id, content, key)
        self._next_id += 1
        if len(self._by_content) > self._limit:
            self._by_content.popitem(last=False)
        return template


def compile_template(number: int, content: bytes, pod: Pod) -> PodTemplate:
    """A template from a pod that is already reduced to what templates hold."""
    requests, accounted, non_zero = resources.room_taken(pod)
    return PodTemplate(
        id=number,
        content=content,
        pod=pod,
        namespace=pod.metadata.namespace,
        labels=dict(pod.metadata.labels),
        requests=requests,
        accounted=accounted,
        non_zero=non_zero,
        host_ports=host_ports_of(pod),
        scheduler_name=pod.spec.scheduler_name,
        priority=pod.spec.priority,
        has_affinity=pod.spec.HasField("affinity"),
    )


def host_ports_of(pod: Pod) -> tuple[HostPort, ...]:
    """Host ports of containers and of sidecars; those of init containers that end are free again before the pod runs."""
    containers = [*pod.spec.containers, *filter(resources.is_sidecar, pod.spec.init_containers)]
    found = {
        (port.protocol or DEFAULT_PROTOCOL, port.host_port, port.host_ip or ANY_ADDRESS)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(sorted(found))


def _reduced(pod: Pod, with_node_name: bool) -> Pod:
    reduced = Pod()
    metadata, found = reduced.metadata, pod.metadata
    metadata.namespace = found.namespace
    for key, value in found.labels.items():
        metadata.labels[key] = value
    for owner in found.owner_references:
        if owner.controller:
            metadata.owner_references.append(owner)
    reduced.spec.CopyFrom(pod.spec)
    if not with_node_name:
        reduced.spec.ClearField("node_name")
    if pod.status.container_statuses or pod.status.init_container_statuses:
        _keep_resize(reduced, pod)
    return reduced


def _keep_resize(reduced: Pod, pod: Pod) -> None:
    """Keep what statuses say of a resize in place: all that a status adds to the room a bound pod takes up.

    A status that only repeats what its container asks for adds nothing; without it a pod keeps its template when it starts.
    """
    for containers, statuses, kept in (
        (pod.spec.containers, pod.status.container_statuses, reduced.status.container_statuses),
        (pod.spec.init_containers, pod.status.init_container_statuses, reduced.status.init_container_statuses),
    ):
        asked = {container.name: _texts(container.resources.requests) for container in containers}
        for status in statuses:
            if not status.HasField("resources"):
                continue
            in_force, allocated = _texts(status.resources.requests), _texts(status.allocated_resources)
            if in_force != asked.get(status.name) or allocated not in ({}, in_force):
                kept.append(_resize_of(status))
    if reduced.status.container_statuses or reduced.status.init_container_statuses:
        for condition in pod.status.conditions:
            if condition.type == RESIZE_PENDING:
                reduced.status.conditions.add(type=condition.type, reason=condition.reason)
    else:
        reduced.ClearField("status")


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: amount.string for name, amount in amounts.items()}


def _resize_of(status: ContainerStatus) -> ContainerStatus:
    kept = ContainerStatus(name=status.name)
    kept.resources.SetInParent()
    for name, amount in status.resources.requests.items():
        kept.resources.requests[name].CopyFrom(amount)
    for name, amount in status.allocated_resources.items():
        kept.allocated_resources[name].CopyFrom(amount)
    return kept
