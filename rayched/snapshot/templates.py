"""Pods interned by template: what scheduling reads of a pod, compiled once for all pods that are equal in it.

A template is the pod without its name, uid and status, and without the node it was bound to; so a pod has the same template
before and after its binding. Two templates with the same content may exist one after the other (the older one was evicted and is
still held by bound pods): numbers are never given twice, and whatever is keyed by content treats them as equal.

Cost: about 4 µs for a pod whose template is known (reduce, serialise, look up), 4 more for a new one, 4 more where the pod has to
stay as it is; by its parts a pod takes 1 µs, a new template 2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from google.protobuf.unknown_fields import UnknownFieldSet

from rayched.api.wire import length_delimited, varint
from rayched.snapshot.spec_facts import SpecFacts, facts_of_bytes, facts_of_pod
from rayched.v1.core_pb2 import ContainerStatus, Pod
from rayched.v1.meta_pb2 import ObjectMeta, Quantity

"""Of a pod that was read from its parts: metadata, containers, the rest of the spec."""
TEMPLATES_MAX: Final = 16_384
"""Templates kept by a table; the one that was not asked for longest goes first."""
CONTENT_BYTES_MAX: Final = 128 << 20
"""Of their contents: so many templates of 8 KiB, or 500 of the largest pods."""

RESIZE_PENDING: Final = "PodResizePending"

_METADATA, _SPEC = (length_delimited(Pod.DESCRIPTOR.fields_by_name[field].number) for field in ("metadata", "spec"))
_KEPT: Final = frozenset(("metadata", "spec"))
_KEPT_METADATA: Final = frozenset(("namespace", "labels", "owner_references"))
_FORGOTTEN, _FORGOTTEN_METADATA = (
    tuple([field.name for field in message.DESCRIPTOR.fields if field.name not in kept])
    for message, kept in ((Pod, _KEPT), (ObjectMeta, _KEPT_METADATA))
)
"""Fields of a pod and of its metadata that no template has. Of a status it may have what a resize in place says."""


class PodTemplate:
    """A compiled template; immutable, compared by identity."""

    __slots__ = (
        "_bare",
        "_pod",
        "accounted",
        "content",
        "has_affinity",
        "host_ports",
        "id",
        "labels",
        "mentions_labels",
        "namespace",
        "non_zero",
        "pod_group",
        "preemption_policy",
        "priority",
        "requests",
        "scheduler_name",
        "tolerations",
    )

    def __init__(
        self,
        number: int,
        content: bytes,
        namespace: str,
        labels: Mapping[str, str],
        facts: SpecFacts,
        *,
        pod: Pod | None = None,
        bare: tuple[bytes, ...] | None = None,
    ) -> None:
        """`pod` is what `content` says; it or `bare` has been worked out already."""
        self.id: Final = number
        """Unique in its table, never given again."""
        self.content: Final = content
        """Deterministic serialisation of `pod`: the template's identity across tables and processes."""
        self.namespace: Final = namespace
        self.labels: Final = labels
        self._pod = pod
        self._bare = bare
        # As SpecFacts tells of them.
        requests, accounted, non_zero, host_ports, scheduler_name, priority, has_affinity, mentions_labels, _, _, _ = facts
        self.requests: Final = requests
        self.accounted: Final = accounted
        self.non_zero: Final = non_zero
        self.host_ports: Final = host_ports
        self.scheduler_name: Final = scheduler_name
        self.priority: Final = priority
        self.has_affinity: Final = has_affinity
        self.mentions_labels: Final = mentions_labels
        self.tolerations: Final = facts.tolerations
        self.pod_group: Final = facts.pod_group
        self.preemption_policy: Final = facts.preemption_policy

    @property
    def pod(self) -> Pod:
        """The pod without name, uid and status. Not to be changed."""
        if self._pod is None:
            self._pod = Pod.FromString(self.content)
        return self._pod

    @property
    def bare(self) -> tuple[bytes, ...]:
        """All that the pod says but its labels, tolerations and group: pods of which it is equal differ in these alone.

        One part, or three where these were told apart: metadata, containers, and all else.
        """
        if self._bare is None:
            bare = Pod()
            bare.CopyFrom(self.pod)
            bare.metadata.ClearField("labels")
            bare.spec.ClearField("tolerations")
            bare.spec.ClearField("scheduling_group")
            self._bare = (bare.SerializeToString(deterministic=True),)
        return self._bare


class TemplateTable:
    """Gives each pod its template; keeps at most `limit` of them, and `bytes_max` of what they consist of."""

    __slots__ = ("_by_content", "_bytes", "_bytes_max", "_limit", "_next_id")

    def __init__(self, limit: int = TEMPLATES_MAX, bytes_max: int = CONTENT_BYTES_MAX) -> None:
        self._by_content: OrderedDict[bytes, PodTemplate] = OrderedDict()
        self._bytes = 0
        self._bytes_max = bytes_max
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
        return self._of(_reduced(pod, with_node_name))

    def intern_given(self, pod: Pod) -> PodTemplate:
        """The template of a pod that nobody else has: it becomes the template's, and what templates do not hold goes from it."""
        if not _reduce(pod):
            pod = _reduced(pod, with_node_name=False)
        return self._of(pod)

    def intern_parts(
        self, namespace: bytes, labels: Mapping[str, str], metadata: bytes, unlabelled: bytes, spec: bytes
    ) -> PodTemplate:
        """The template of a pod without a node and without statuses of containers, by its serialised parts.

        `metadata` has namespace, labels and controller, and `unlabelled` all of it but labels. They and `spec` are what messages
        of them are serialised to; the spec is looked at for that. Raises ValueError, IndexError, DecodeError where it is not so,
        or has a node.
        """
        facts, bare_spec = facts_of_bytes(spec)
        content = b"".join((_METADATA, varint(len(metadata)), metadata, _SPEC, varint(len(spec)), spec))
        template = self._known(content)
        if template is None:
            bare = (unlabelled, *bare_spec)
            template = self._add(PodTemplate(self._next_id, content, namespace.decode(), labels, facts, bare=bare))
        return template

    def _of(self, reduced: Pod) -> PodTemplate:
        content = reduced.SerializeToString(deterministic=True)
        template = self._known(content)
        if template is None:
            metadata, facts = reduced.metadata, facts_of_pod(reduced)
            made = PodTemplate(self._next_id, content, metadata.namespace, dict(metadata.labels), facts, pod=reduced)
            template = self._add(made)
        return template

    def _known(self, content: bytes) -> PodTemplate | None:
        template = self._by_content.get(content)
        if template is not None:
            self._by_content.move_to_end(content)
        return template

    def _add(self, template: PodTemplate) -> PodTemplate:
        self._by_content[template.content] = template
        self._bytes += len(template.content)
        self._next_id += 1
        while len(self._by_content) > self._limit or self._bytes > self._bytes_max:
            self._bytes -= len(self._by_content.popitem(last=False)[0])
        return template


def _reduce(pod: Pod) -> bool:
    """Make the pod what `_reduced` gives. False: it takes more than to leave out fields, and nothing was done."""
    metadata, status = pod.metadata, pod.status
    if status.container_statuses or status.init_container_statuses:
        return False
    if len(UnknownFieldSet(metadata)) or len(UnknownFieldSet(pod)):
        return False
    for field in _FORGOTTEN_METADATA:
        metadata.ClearField(field)
    for field in _FORGOTTEN:
        pod.ClearField(field)
    pod.spec.ClearField("node_name")
    owners = metadata.owner_references
    for place in reversed(range(len(owners))):
        if not owners[place].controller:
            del owners[place]
    return True


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
