"""Rules for amounts of resources: of containers, of pods, of nodes.

Differs from Kubernetes: an extended resource may be requested without a limit (where both are given they must be equal, as
there): nothing here enforces limits, and the request is what scheduling reads.

Source: ValidateContainerResourceRequirements and ValidatePodResourceRequirements, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from rayched.api import quantity, resources
from rayched.api.errors import key_of, quoted
from rayched.api.names import qualified_fault
from rayched.api.quantity import QuantityError
from rayched.api.short_texts import TEXT_MAX
from rayched.api.validation import limits
from rayched.api.validation.faults import Faults
from rayched.v1.core_pb2 import Pod, ResourceRequirements
from rayched.v1.meta_pb2 import Quantity

Amounts = Mapping[str, Quantity]

_CONTAINER_RESOURCES: Final = frozenset((resources.CPU, resources.MEMORY, resources.EPHEMERAL_STORAGE))
_MILLI_LIMIT: Final = quantity.parse(str(quantity.MAX_MAGNITUDE // 1_000))


def check_container_resources(needs: ResourceRequirements, path: str, faults: Faults) -> None:
    """Requests and limits of a container."""
    limits_path, requests_path = f"{path}.limits", f"{path}.requests"
    sound = check_amounts(needs.limits, limits_path, container_resource_fault, faults)
    sound = check_amounts(needs.requests, requests_path, container_resource_fault, faults) and sound
    if sound:
        _check_requests_within_limits(needs, requests_path, faults)


def check_pod_resources(pod: Pod, faults: Faults) -> None:
    """Requests and limits of a pod as a whole, and how its containers fit into them."""
    needs = pod.spec.resources
    sound = check_amounts(needs.limits, "spec.resources.limits", _pod_resource_fault, faults)
    sound = check_amounts(needs.requests, "spec.resources.requests", _pod_resource_fault, faults) and sound
    if not sound:
        return
    _check_requests_within_limits(needs, "spec.resources.requests", faults)
    try:
        containers = resources.requested(_containers_of(pod))
    except QuantityError:
        # The container's own rule names the quantity.
        return
    for name, found in needs.requests.items():
        amount = containers.get(name)
        if amount is not None and amount.compare(quantity.parse(found.string)) > 0:
            faults.add(
                key_of("spec.resources.requests", name),
                f"{quoted(found.string)} must be at least what the containers request together, {amount.canonical()}",
            )
    for name, found in needs.limits.items():
        for position, container in enumerate(pod.spec.containers):
            own = container.resources.limits[name].string if name in container.resources.limits else ""
            if own and quantity.parse(own).compare(quantity.parse(found.string)) > 0:
                faults.add(
                    key_of(f"spec.containers[{position}].resources.limits", name),
                    f"{quoted(own)} must not exceed the pod's limit, {found.string}",
                )


def check_amounts(
    amounts: Amounts,
    path: str,
    rule: Callable[[str], str | None],
    faults: Faults,
    most: int = limits.RESOURCES,
) -> bool:
    """Names and amounts of resources; whether all can be calculated with."""
    if not amounts:
        return True
    if not faults.at_most(path, amounts, most):
        return False
    sound = True
    for name, found in amounts.items():
        fault = rule(name)
        if fault is not None:
            faults.add(key_of(path, name), fault)
        fault = amount_fault(name, found.string)
        if fault is not None:
            faults.add(key_of(path, name), fault)
            sound = False
    return sound


def container_resource_fault(name: str) -> str | None:
    """A resource that a container may ask for: cpu, memory, ephemeral-storage, huge pages or one with a domain."""
    if name in _CONTAINER_RESOURCES:
        return None
    fault = qualified_fault(name)
    if fault is not None:
        return fault
    if "/" not in name:
        if name.startswith(resources.HUGE_PAGES_PREFIX):
            return None
        return (
            f"{quoted(name)} is not a resource of containers; allowed are cpu, memory, ephemeral-storage, hugepages-<size> "
            "and extended resources such as example.com/gpu"
        )
    if resources.NATIVE_DOMAIN not in name and not resources.is_extended(name):
        return f"{quoted(name)} is not the name of an extended resource: it must not begin with {resources.QUOTA_PREFIX}"
    return None


def node_resource_fault(name: str) -> str | None:
    """A resource that a node may have."""
    return None if name == resources.PODS or name in _CONTAINER_RESOURCES else qualified_fault(name)


def _pod_resource_fault(name: str) -> str | None:
    if resources.is_pod_level(name):
        return None
    return f"{quoted(name)} is not a resource of pods as a whole; allowed are cpu, memory and hugepages-<size>"


def amount_fault(name: str, text: str) -> str | None:
    """Why this amount of a resource is not allowed, or None."""
    judge = _amount_fault if len(name) + len(text) <= TEXT_MAX else _amount_fault.__wrapped__
    return judge(name, text)


@lru_cache(maxsize=8_192)
def _amount_fault(name: str, text: str) -> str | None:
    fault = quantity.fault(text)
    if fault is not None:
        return fault
    amount = quantity.parse(text)
    if amount.sign < 0:
        return f"{quoted(text)} must not be negative"
    if name == resources.CPU and amount.compare(_MILLI_LIMIT) > 0:
        return f"{quoted(text)} is beyond the largest amount of cpu, {_MILLI_LIMIT.canonical()}"
    if (name == resources.PODS or resources.is_extended(name)) and not amount.whole:
        return f"{quoted(text)} must be an integer: this resource cannot be divided"
    return None


def _check_requests_within_limits(needs: ResourceRequirements, path: str, faults: Faults) -> None:
    if not needs.limits:
        return
    for name, found in needs.requests.items():
        if name not in needs.limits:
            continue
        limit = needs.limits[name].string
        if found.string == limit:
            continue
        order = quantity.parse(found.string).compare(quantity.parse(limit))
        if order > 0:
            faults.add(key_of(path, name), f"{quoted(found.string)} must not exceed the limit, {limit}")
        elif order < 0 and (resources.is_extended(name) or name.startswith(resources.HUGE_PAGES_PREFIX)):
            faults.add(
                key_of(path, name), f"{quoted(found.string)} must equal the limit, {limit}: this resource is not overcommitted"
            )


def _containers_of(pod: Pod) -> Pod:
    bare = Pod()
    bare.spec.containers.extend(pod.spec.containers)
    bare.spec.init_containers.extend(pod.spec.init_containers)
    return bare
