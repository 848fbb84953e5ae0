"""Small rules of the naive scheduler: tolerations, terms of node affinity, host ports, quantities, what a pod asks for.

Worked out from the documented behaviour once more; nothing here comes from, or goes to, the code under test.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from rayched.v1.core_pb2 import Container, Node, NodeSelectorTerm, Pod


def covers(toleration: Any, key: str, value: str, effect: str) -> bool:
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == value)


def has_required(affinity: Any) -> bool:
    found: bool = affinity.HasField("required_during_scheduling_ignored_during_execution")
    return found


def required_terms(affinity: Any) -> list[NodeSelectorTerm]:
    return list(affinity.required_during_scheduling_ignored_during_execution.node_selector_terms)


def preferred_terms(affinity: Any) -> list[Any]:
    return list(affinity.preferred_during_scheduling_ignored_during_execution)


def preferred(pod: Pod) -> list[Any]:
    return preferred_terms(pod.spec.affinity.node_affinity)


def any_term(terms: list[NodeSelectorTerm], node: Node) -> bool:
    return any(term_matches(term, node) for term in terms)


_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INT = re.compile(r"[-+]?[0-9]+")


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    for e in term.match_expressions:
        if not all(_LABEL_VALUE.fullmatch(value) for value in e.values) or not _holds(e, node.metadata.labels):
            return False
        if e.operator in ("Exists", "DoesNotExist") and e.values:
            return False
        if e.operator in ("In", "NotIn") and not e.values:
            return False
    for e in term.match_fields:
        actual = node.metadata.name if e.key == "metadata.name" else ""
        if e.operator not in ("In", "NotIn") or len(e.values) != 1 or (actual == e.values[0]) != (e.operator == "In"):
            return False
    return True


def label_condition_holds(expression: Any, labels: Any) -> bool:
    """An expression of a label selector."""
    return expression.operator in ("In", "NotIn", "Exists", "DoesNotExist") and _holds(expression, labels)


def _holds(e: Any, labels: Any) -> bool:
    value = dict(labels).get(e.key)
    if e.operator in ("Gt", "Lt"):
        numbers = [int(text) for text in (*e.values, value) if text is not None and _INT.fullmatch(text)]
        if len(numbers) != 2 or not all(-(2**63) <= number < 2**63 for number in numbers):
            return False
        return numbers[1] > numbers[0] if e.operator == "Gt" else numbers[1] < numbers[0]
    return {
        "In": value is not None and value in e.values,
        "NotIn": value is None or value not in e.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(e.operator, False)


def host_ports(pod: Pod) -> list[tuple[str, int, str]]:
    containers = list(pod.spec.containers) + [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    return [(p.protocol or "TCP", p.host_port, p.host_ip or "0.0.0.0") for c in containers for p in c.ports if p.host_port > 0]


# ---------------------------------------------------------------------------------------------------------- resources

_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def amount(text: str) -> Fraction:
    """A quantity, exactly."""
    number, suffix = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text).groups()  # type: ignore[union-attr]
    return Fraction(number) / 1000 if suffix == "m" else Fraction(number) * _SUFFIXES[suffix]


def whole(amounts: dict[str, Fraction], name: str) -> int:
    """Milli-CPU, or whole units, rounded up."""
    return math.ceil(amounts.get(name, Fraction(0)) * (1000 if name == "cpu" else 1))


def allocatable(node: Node, name: str) -> int:
    return whole({key: amount(found.string) for key, found in node.status.allocatable.items()}, name)


def is_counted(name: str) -> bool:
    if name in ("cpu", "memory", "ephemeral-storage"):
        return True
    return name.startswith("hugepages-") or ("/" in name and not name.startswith("requests."))


def requests(pod: Pod, assume: bool = False, pod_level: bool = True) -> dict[str, Fraction]:
    """What a pod asks for; `assume` counts 100m and 200Mi for containers that name no request of cpu or memory."""
    total: dict[str, Fraction] = {}
    for container in pod.spec.containers:
        total = _sum(total, _of(container, assume))
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in pod.spec.init_containers:
        own = _of(container, assume)
        if container.restart_policy == "Always":
            total, sidecars = _sum(total, own), _sum(sidecars, own)
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _sum(own, sidecars))
    total = _most(total, peak)
    if pod_level:
        for name, quantity in pod.spec.resources.requests.items():
            if name in ("cpu", "memory") or name.startswith("hugepages-"):
                total[name] = amount(quantity.string)
    return _sum(total, {name: amount(quantity.string) for name, quantity in pod.spec.overhead.items()})


def accounted(pod: Pod) -> dict[str, Fraction]:
    """What a bound pod counts for in scores; one with requests of its own gets defaults only for what nobody names."""
    if not any(name in ("cpu", "memory") or name.startswith("hugepages-") for name in pod.spec.resources.requests):
        return requests(pod, assume=True)
    named = requests(pod)
    return {**requests(pod, assume=True), **named}


def _of(container: Container, assume: bool) -> dict[str, Fraction]:
    found = {name: amount(quantity.string) for name, quantity in container.resources.requests.items()}
    if assume:
        found.setdefault("cpu", Fraction(1, 10))
        found.setdefault("memory", Fraction(200 * 2**20))
    return found


def _sum(a: dict[str, Fraction], b: dict[str, Fraction]) -> dict[str, Fraction]:
    return {name: a.get(name, Fraction(0)) + b.get(name, Fraction(0)) for name in {*a, *b}}


def _most(a: dict[str, Fraction], b: dict[str, Fraction]) -> dict[str, Fraction]:
    return {name: max(a.get(name, Fraction(0)), b.get(name, Fraction(0))) for name in {*a, *b}}
