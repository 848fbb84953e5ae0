"""What a pod asks for: requests and limits of a whole pod, as kube-scheduler adds them up.

    containers           sum
    init containers      run one after the other: the largest counts, with the sidecars started before it
    sidecars             init containers with restartPolicy Always: as init containers, and for as long as the pod runs
    pod-level resources  replace the sum, for cpu, memory and huge pages
    overhead             comes on top

Two questions need two answers. What an incoming pod needs is read from its spec (`pod_requests`). What a bound pod takes up
(`accounted_requests`, `non_zero_requests`) also heeds a resize in place: the largest of what is asked for, allocated and in
force, or only the latter two when the resize is infeasible.

Amounts are added exactly and rounded up once, at the end. Integers are milli-CPU for cpu, else bytes or counts. Quantities
must have been validated; a text that is none raises QuantityError.

Source: component-helpers' resource.PodRequests and the scheduler's callers of it, 1.34. Cost: linear in the containers; 3 µs
where a pod has nothing but containers, and one with the same amounts was added up before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rayched.api import quantity
from rayched.api.quantity import Amount
from rayched.v1.core_pb2 import Container, ContainerStatus, Pod, ResourceRequirements
from rayched.v1.meta_pb2 import Quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGE_PAGES_PREFIX: Final = "hugepages-"
ATTACHABLE_VOLUMES_PREFIX: Final = "attachable-volumes-"
NATIVE_DOMAIN: Final = "kubernetes.io/"
QUOTA_PREFIX: Final = "requests."

DEFAULT_MILLI_CPU: Final = 100
"""Counted in scores for a container that names no cpu request at all; an explicit 0 stays 0."""
DEFAULT_MEMORY: Final = 200 * 1024 * 1024
"""The same for memory, in bytes."""

Amounts = dict[str, Amount]
"""Exact amounts by name of the resource."""

_NATIVE_RESOURCES: Final = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
_DEFAULTS: Final[Mapping[str, Amount]] = {
    CPU: quantity.parse(f"{DEFAULT_MILLI_CPU}m"),
    MEMORY: quantity.parse("200Mi"),
}
_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"
_PLAIN_CONTAINERS_MAX: Final = 16
"""Of pods with more containers sums are not kept."""
_PLAIN_MAX: Final = 4_096
"""Sums kept, of some 2 KB each."""


# ------------------------------------------------------------------------------------------------------------- integers


def pod_requests(pod: Pod) -> dict[str, int]:
    """What an incoming pod needs of a node: milli-CPU, bytes and counts. A resource that nothing names is absent."""
    plain = _plain_of(pod)
    return _integers(requested(pod)) if plain is None else dict(plain.counted)


def accounted_requests(pod: Pod) -> dict[str, int]:
    """What a bound pod takes up on its node: milli-CPU, bytes and counts."""
    plain = _plain_of(pod)
    return _integers(requested(pod, in_force=True)) if plain is None else dict(plain.counted)


def non_zero_requests(pod: Pod) -> tuple[int, int]:
    """(milli-CPU, bytes of memory) that a bound pod counts for in scores, with defaults where containers name none.

    Once the pod asks for anything as a whole, a default stands in only for what nothing in the pod names.
    """
    plain = _plain_of(pod)
    if plain is not None:
        return plain.with_defaults.get(CPU, 0), plain.with_defaults.get(MEMORY, 0)
    defaults = _DEFAULTS
    amounts = requested(pod, in_force=True)
    if any(is_pod_level(name) for name in pod.spec.resources.requests):
        defaults = {name: amount for name, amount in _DEFAULTS.items() if name not in amounts}
    amounts = requested(pod, in_force=True, defaults=defaults)
    return _milli(amounts, CPU), _units(amounts, MEMORY)


def room_taken(pod: Pod) -> tuple[Mapping[str, int], Mapping[str, int], tuple[int, int]]:
    """`pod_requests`, `accounted_requests` and `non_zero_requests` in one. Not to be changed."""
    plain = _plain_of(pod)
    if plain is None:
        return pod_requests(pod), accounted_requests(pod), non_zero_requests(pod)
    return plain.counted, plain.counted, (plain.with_defaults.get(CPU, 0), plain.with_defaults.get(MEMORY, 0))


def pod_limits(pod: Pod) -> dict[str, int]:
    """The limits of the whole pod: milli-CPU, bytes and counts."""
    return _integers(limited(pod), all_names=True)


def score_requests(pod: Pod, resources: Sequence[str], *, pod_level: bool = False) -> tuple[int, ...]:
    """What NodeResourcesFit scores an incoming pod by, in milli-CPU, bytes or counts; with defaults for cpu and memory.

    1.34 leaves out pod-level resources here (and only here), which looks like an oversight; `pod_level` counts them.
    """
    plain = _plain_of(pod)
    if plain is not None:
        return tuple([plain.with_defaults.get(name, 0) for name in resources])
    amounts = requested(pod, defaults=_DEFAULTS, pod_level=pod_level)
    return tuple(_integer(amounts, name) for name in resources)


def fit_requests(pod: Pod, resources: Sequence[str], *, pod_level: bool = False) -> tuple[Mapping[str, int], tuple[int, ...]]:
    """`pod_requests` and `score_requests` in one. Not to be changed."""
    plain = _plain_of(pod)
    if plain is None:
        return pod_requests(pod), score_requests(pod, resources, pod_level=pod_level)
    return plain.counted, tuple([plain.with_defaults.get(name, 0) for name in resources])


def balanced_requests(pod: Pod, resources: Sequence[str]) -> tuple[int, ...]:
    """What NodeResourcesBalancedAllocation scores an incoming pod by: true requests, in milli-CPU, bytes or counts."""
    plain = _plain_of(pod)
    if plain is not None:
        return tuple([plain.named.get(name, 0) for name in resources])
    amounts = requested(pod, in_force=True)
    return tuple(_integer(amounts, name) for name in resources)


def is_scalar(name: str) -> bool:
    """Whether a resource that is neither cpu, memory nor ephemeral-storage is counted on nodes."""
    return is_extended(name) or name.startswith((HUGE_PAGES_PREFIX, ATTACHABLE_VOLUMES_PREFIX)) or NATIVE_DOMAIN in name


def is_extended(name: str) -> bool:
    """Whether a resource is one that users invent: a domain of their own before the slash."""
    return "/" in name and NATIVE_DOMAIN not in name and not name.startswith(QUOTA_PREFIX)


# ----------------------------------------------------------------------------------------------------------- plain pods


@dataclass(frozen=True, slots=True)
class _Plain:
    """Sums of a pod whose containers are all that it asks for, whatever the question: milli-CPU, bytes and counts."""

    named: Mapping[str, int]
    """Of all resources that are named."""
    counted: Mapping[str, int]
    """Of those that are counted on nodes."""
    with_defaults: Mapping[str, int]
    """With what counts in scores for containers that name none."""


def _plain_of(pod: Pod) -> _Plain | None:
    """None: there are init containers, resources of the pod as a whole, overhead, or containers that have a status."""
    spec = pod.spec
    if spec.init_containers or spec.overhead or spec.HasField("resources"):
        return None
    if pod.HasField("status") and (pod.status.container_statuses or pod.status.init_container_statuses):
        return None
    containers = spec.containers
    if len(containers) > _PLAIN_CONTAINERS_MAX:
        return None
    return _plain(tuple([container.resources.SerializeToString(deterministic=True) for container in containers]))


@lru_cache(maxsize=_PLAIN_MAX)
def _plain(containers: tuple[bytes, ...]) -> _Plain:
    """From the serialised resources of each container."""
    found = [ResourceRequirements.FromString(serialised) for serialised in containers]
    return _plain_one(found[0].requests) if len(found) == 1 else _plain_several(found)


def _plain_one(requests: Mapping[str, Quantity]) -> _Plain:
    """Where there is nothing to add, nothing but the end result is worked out."""
    named = {
        name: quantity.milli_value(found.string) if name == CPU else quantity.value(found.string)
        for name, found in requests.items()
    }
    return _Plain(
        named=named,
        counted={name: amount for name, amount in named.items() if _is_counted(name)},
        with_defaults={CPU: DEFAULT_MILLI_CPU, MEMORY: DEFAULT_MEMORY} | named,
    )


def _plain_several(containers: Iterable[ResourceRequirements]) -> _Plain:
    pod = Pod()
    for found in containers:
        pod.spec.containers.add(resources=found)
    amounts = requested(pod)
    return _Plain(
        named=_integers(amounts, all_names=True),
        counted=_integers(amounts),
        with_defaults=_integers(requested(pod, defaults=_DEFAULTS), all_names=True),
    )


# -------------------------------------------------------------------------------------------------------------- amounts


def requested(
    pod: Pod, *, in_force: bool = False, defaults: Mapping[str, Amount] | None = None, pod_level: bool = True
) -> Amounts:
    """The pod's requests, exact.

    `in_force` also heeds what containers' statuses say of a resize; `defaults` stand in for requests that a container does
    not name; without `pod_level` the pod's own resources are left out.
    """
    total = _requested_by_containers(pod, in_force, defaults or {})
    spec = pod.spec
    if pod_level and spec.HasField("resources"):
        _replace_pod_level(total, spec.resources.requests)
    _add(total, _amounts(spec.overhead))
    return total


def limited(pod: Pod) -> Amounts:
    """The pod's limits, exact; overhead is added to limits that are there and not zero."""
    spec = pod.spec
    total: Amounts = {}
    for container in spec.containers:
        _add(total, _amounts(container.resources.limits))
    _add_init_containers(total, ((c, _amounts(c.resources.limits)) for c in spec.init_containers))
    if spec.HasField("resources"):
        _replace_pod_level(total, spec.resources.limits)
    for name, amount in _amounts(spec.overhead).items():
        if name in total and total[name].sign:
            total[name] = total[name].plus(amount)
    return total


def is_pod_level(name: str) -> bool:
    """Whether a pod may ask for this resource as a whole."""
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES_PREFIX)


def is_sidecar(container: Container) -> bool:
    """Whether an init container stays for the life of the pod."""
    return container.restart_policy == "Always"


def _requested_by_containers(pod: Pod, in_force: bool, defaults: Mapping[str, Amount]) -> Amounts:
    spec, status = pod.spec, pod.status
    statuses: dict[str, ContainerStatus] = {}
    infeasible = False
    if in_force and (status.container_statuses or status.init_container_statuses):
        for found in (*status.container_statuses, *status.init_container_statuses):
            statuses[found.name] = found
        infeasible = _resize_is_infeasible(pod)
    total: Amounts = {}
    for container in spec.containers:
        _add(total, _requested_by(container, statuses.get(container.name), infeasible, defaults))
    if spec.init_containers:
        # What ran and ended cannot be resized: only a sidecar's status counts.
        _add_init_containers(
            total,
            (
                (c, _requested_by(c, statuses.get(c.name) if is_sidecar(c) else None, infeasible, defaults))
                for c in spec.init_containers
            ),
        )
    return total


def _requested_by(
    container: Container, status: ContainerStatus | None, infeasible: bool, defaults: Mapping[str, Amount]
) -> Amounts:
    amounts = _amounts(container.resources.requests)
    if status is not None and status.HasField("resources"):
        if infeasible:
            amounts = {}
        _raise(amounts, _amounts(status.resources.requests))
        _raise(amounts, _amounts(status.allocated_resources))
    for name, amount in defaults.items():
        amounts.setdefault(name, amount)
    return amounts


def _add_init_containers(total: Amounts, containers: Iterable[tuple[Container, Amounts]]) -> None:
    """Let the init phase set the least that the pod asks for; sidecars add to the total as well."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container, amounts in containers:
        if is_sidecar(container):
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise(peak, sidecars)
        else:
            _add(amounts, sidecars)
            _raise(peak, amounts)
    _raise(total, peak)


def _replace_pod_level(total: Amounts, resources: Mapping[str, Quantity]) -> None:
    for name, amount in _amounts(resources).items():
        if is_pod_level(name):
            total[name] = amount


def _resize_is_infeasible(pod: Pod) -> bool:
    """Whether the first condition about a pending resize says that this node can never grant it."""
    for condition in pod.status.conditions:
        if condition.type == _RESIZE_PENDING:
            return condition.reason == _INFEASIBLE
    return False


def _amounts(resources: Mapping[str, Quantity]) -> Amounts:
    return {name: quantity.parse(found.string) for name, found in resources.items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        known = total.get(name)
        total[name] = amount if known is None else known.plus(amount)


def _raise(total: Amounts, least: Amounts) -> None:
    """Lift each amount to at least the other one."""
    for name, amount in least.items():
        known = total.get(name)
        if known is None or amount.compare(known) > 0:
            total[name] = amount


# ------------------------------------------------------------------------------------------------------------- rounding


def _integers(amounts: Amounts, *, all_names: bool = False) -> dict[str, int]:
    return {name: _integer(amounts, name) for name in amounts if all_names or _is_counted(name)}


def _is_counted(name: str) -> bool:
    """Whether nodes are asked for it."""
    return name in _NATIVE_RESOURCES or is_scalar(name)


def _integer(amounts: Amounts, name: str) -> int:
    return _milli(amounts, name) if name == CPU else _units(amounts, name)


def _milli(amounts: Amounts, name: str) -> int:
    amount = amounts.get(name)
    return 0 if amount is None else amount.milli_value()


def _units(amounts: Amounts, name: str) -> int:
    amount = amounts.get(name)
    return 0 if amount is None else amount.value()
