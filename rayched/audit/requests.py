"""What a pod takes of a node, worked out again from the manifest's rules, for the auditor alone.

Exact fractions in whole units (CPUs, bytes, counts); nothing is rounded, so a sum that fits here fits for a scheduler that
rounds each request up, and one that does not fit is over capacity by however little.

A pod takes, for each resource, the larger of: all containers and sidecars together; each init container on top of the sidecars
that started before it. Requests of the whole pod take their place where they are given. Overhead comes on top, and one of
"pods". Source: Kubernetes' documentation on resources, init containers, sidecars and pod overhead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from rayched.v1.core_pb2 import Container, Pod
from rayched.v1.meta_pb2 import Quantity

Amounts = dict[str, Fraction]

_NONE, _ONE = Fraction(0), Fraction(1)
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")
_SCALES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(10) ** (3 * power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=4096)
def amount(text: str) -> Fraction:
    """The value of a quantity. Raises ValueError where it is none."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, exponent, suffix = found.groups()
    value = Fraction(number)
    if exponent:
        return value * Fraction(10) ** int(exponent[1:])
    return value * _SCALES[suffix] if suffix else value


def amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    return {name: amount(quantity.string) for name, quantity in quantities.items()}


def taken_by(pod: Pod) -> Amounts:
    """What the pod takes of its node, for each resource."""
    spec = pod.spec
    running: Amounts = {}
    highest_start: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.init_containers:
        needs = amounts(container.resources.requests)
        if _is_sidecar(container):
            _add(sidecars, needs)
            _raise(highest_start, sidecars)
        else:
            _raise(highest_start, _sum(sidecars, needs))
    _add(running, sidecars)
    for container in spec.containers:
        _add(running, amounts(container.resources.requests))
    _raise(running, highest_start)
    running.update(amounts(spec.resources.requests))
    _add(running, amounts(spec.overhead))
    running["pods"] = _ONE
    return running


def host_ports(pod: Pod) -> set[tuple[str, int, str]]:
    """(protocol, port, address) of each host port; the address of all interfaces is ""."""
    holders = [*pod.spec.containers, *(c for c in pod.spec.init_containers if _is_sidecar(c))]
    return {
        (port.protocol or "TCP", port.host_port, "" if port.host_ip in ("", "0.0.0.0", "::") else port.host_ip)
        for container in holders
        for port in container.ports
        if port.host_port
    }


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _add(total: Amounts, more: Mapping[str, Fraction]) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _sum(left: Mapping[str, Fraction], right: Mapping[str, Fraction]) -> Amounts:
    return {name: left.get(name, _NONE) + right.get(name, _NONE) for name in {*left, *right}}


def _raise(total: Amounts, least: Mapping[str, Fraction]) -> None:
    for name, value in least.items():
        total[name] = max(total.get(name, _NONE), value)
