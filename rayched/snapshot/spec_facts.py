"""What is asked of a pod's spec before any plugin is: the room it takes, its host ports, its scheduler, its priority, its group.

Pods of very many templates are made of few parts: containers of some kinds, and what else their specs say. So of a spec that is
given as bytes the two are looked up, and read only where they are new. No I/O.

Memory: PARTS_MAX of either part, as long as whoever gives them allows. Cost: 1 µs where both parts are known, 10 where none is;
4 for a spec that is given as a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.unknown_fields import UnknownFieldSet

from rayched.api import resources
from rayched.api.wire import length_delimited, read_varint
from rayched.v1.core_pb2 import Pod, PodSpec, Toleration

PARTS_MAX: Final = 2_048

ANY_ADDRESS: Final = "0.0.0.0"
DEFAULT_PROTOCOL: Final = "TCP"

_INIT_CONTAINERS, _CONTAINERS = (
    length_delimited(PodSpec.DESCRIPTOR.fields_by_name[field].number)[0] for field in ("init_containers", "containers")
)

HostPort = tuple[str, int, str]
"""(protocol, port, ip); no address is written as 0.0.0.0."""


class SpecFacts(NamedTuple):
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
    mentions_labels: bool
    """Whether it may say anything of other pods' labels: there are affinity or spread constraints."""
    tolerations: tuple[Toleration, ...]
    """Not to be changed."""
    pod_group: str
    """The name of the group that it belongs to, "" for none."""
    preemption_policy: str
    """As it stands there; "" is the default."""


def facts_of_pod(pod: Pod) -> SpecFacts:
    """Of a resize in place the pod's status tells."""
    spec = pod.spec
    has_affinity = spec.HasField("affinity")
    return SpecFacts(
        *resources.room_taken(pod),
        host_ports_of(pod),
        spec.scheduler_name,
        spec.priority,
        has_affinity,
        has_affinity or bool(spec.topology_spread_constraints),
        tuple(spec.tolerations),
        spec.scheduling_group.pod_group_name,
        spec.preemption_policy,
    )


def facts_of_bytes(spec: bytes) -> tuple[SpecFacts, tuple[bytes, bytes]]:
    """Of the spec of a pod without a node and without statuses of containers; its containers; all else but tolerations and group.

    Raises ValueError, IndexError, DecodeError: it has a node, or is not what a message of it is serialised to.
    """
    end = _containers_end(spec)
    rest = _rest(spec[end:])
    containers = _containers(spec[:end])
    facts = facts_of_pod(_read(spec)) if rest.takes_room else SpecFacts._make(containers.facts + rest.facts)
    return facts, (containers.part, rest.bare)


def host_ports_of(pod: Pod) -> tuple[HostPort, ...]:
    """Host ports of containers and of sidecars; those of init containers that end are free again before the pod runs."""
    spec = pod.spec
    containers = [container for container in spec.containers if container.ports]
    if spec.init_containers:
        containers += filter(resources.is_sidecar, spec.init_containers)
    if not containers:
        return ()
    found = {
        (port.protocol or DEFAULT_PROTOCOL, port.host_port, port.host_ip or ANY_ADDRESS)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(sorted(found))


# ---------------------------------------------------------------------------------------------------------------- parts


class _Rest(NamedTuple):
    """Of all that stands behind the containers."""

    bare: bytes
    """Without tolerations and group."""
    takes_room: bool
    """Beside the containers: there are overhead or resources of the pod as a whole."""
    facts: tuple[str, int, bool, bool, tuple[Toleration, ...], str, str]
    """The last ones of SpecFacts."""


class _Containers(NamedTuple):
    part: bytes
    """The same bytes object for all that are equal."""
    facts: tuple[Mapping[str, int], Mapping[str, int], tuple[int, int], tuple[HostPort, ...]]
    """The first ones of SpecFacts."""


@lru_cache(maxsize=PARTS_MAX)
def _rest(part: bytes) -> _Rest:
    spec = _read(part).spec
    if spec.node_name:
        raise ValueError("the pod has a node")
    tolerations = tuple(Toleration.FromString(one.SerializeToString()) for one in spec.tolerations)
    spec.ClearField("tolerations")
    group, policy = spec.scheduling_group.pod_group_name, spec.preemption_policy
    spec.ClearField("scheduling_group")
    has_affinity = spec.HasField("affinity")
    mentions_labels = has_affinity or bool(spec.topology_spread_constraints)
    return _Rest(
        spec.SerializeToString(deterministic=True),
        bool(spec.overhead) or spec.HasField("resources"),
        (spec.scheduler_name, spec.priority, has_affinity, mentions_labels, tolerations, group, policy),
    )


@lru_cache(maxsize=PARTS_MAX)
def _containers(part: bytes) -> _Containers:
    pod = _read(part)
    return _Containers(part, (*resources.room_taken(pod), host_ports_of(pod)))


def _read(part: bytes) -> Pod:
    """A pod with this spec."""
    pod = Pod()
    spec = pod.spec
    spec.MergeFromString(part)
    if len(UnknownFieldSet(spec)) or spec.SerializeToString(deterministic=True) != part:
        raise ValueError("a spec is not written as it should be")
    return pod


def _containers_end(spec: bytes) -> int:
    """Where the containers end, which stand first."""
    at, end = 0, len(spec)
    while at < end and (spec[at] == _CONTAINERS or spec[at] == _INIT_CONTAINERS):
        size, at = read_varint(spec, at + 1)
        at += size
    return at
