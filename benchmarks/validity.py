"""Whether every placement is one that Kubernetes allows: bindings are replayed in their order, one by one, on plain dictionaries.

It shares no code with the scheduler. It knows the fields that the workloads use: requests, host ports and pod slots; taints;
nodeSelector and required node affinity with In; required pod affinity and anti-affinity, also those of pods that are there
already; hard topology spread. What it does not know it does not judge.

Cost: some 50 µs a pod, more with many templates that have terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rayched.audit.requests import Amounts, amounts, taken_by
from rayched.v1.core_pb2 import Node, Pod, PodAffinityTerm, Toleration
from rayched.v1.meta_pb2 import LabelSelector

_SHOWN_MAX: Final = 3
_KEEPING_OFF: Final = ("NoSchedule", "NoExecute")


class Judge:
    """Owns its picture of the cluster. `namespaces` has the labels of each."""

    def __init__(self, nodes: Iterable[Node], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._nodes = {node.metadata.name: node for node in nodes}
        self._namespaces = namespaces
        self._free = {name: amounts(node.status.allocatable) for name, node in self._nodes.items()}
        self._kinds: dict[bytes, Pod] = {}
        """One pod of each template that is bound somewhere."""
        self._with_terms: dict[bytes, Pod] = {}
        self._bound: Counter[tuple[bytes, str, str]] = Counter()
        """Pods by template, topology key and domain."""
        self._anywhere: Counter[bytes] = Counter()
        self._matching: dict[tuple[bytes, bytes, int], bool] = {}
        self._domains: dict[tuple[bytes, int], set[str]] = {}
        self.placed = 0
        self.wrong: list[str] = []
        """The first placements that are not allowed, in words."""
        self.n_wrong = 0

    def place(self, pod: Pod, node_name: str) -> None:
        """The next binding."""
        self.placed += 1
        kind = _kind(pod)
        problem = next(self._problems(pod, kind, node_name), None)
        if problem is not None:
            self.n_wrong += 1
            if len(self.wrong) < _SHOWN_MAX:
                self.wrong.append(f"{pod.metadata.namespace}/{pod.metadata.name} on {node_name}: {problem}")
        node = self._nodes.get(node_name)
        if node is None:
            return
        free = self._free[node_name]
        for resource, amount in taken_by(pod).items():
            free[resource] = free.get(resource, 0) - amount
        self._kinds.setdefault(kind, pod)
        if pod.spec.affinity.HasField("pod_anti_affinity"):
            self._with_terms.setdefault(kind, pod)
        self._anywhere[kind] += 1
        for key, domain in node.metadata.labels.items():
            self._bound[kind, key, domain] += 1

    # ---------------------------------------------------------------------------------------------------------- private

    def _problems(self, pod: Pod, kind: bytes, node_name: str) -> Iterator[str]:
        node = self._nodes.get(node_name)
        if node is None:
            yield "there is no such node"
            return
        yield from _short(self._free[node_name], taken_by(pod))
        if not _is_selected(pod, node):
            yield "the node is not selected"
        if not _is_tolerated(pod, node):
            yield "a taint is not tolerated"
        yield from self._pod_affinity(pod, kind, node)
        yield from self._spread(pod, kind, node)

    def _pod_affinity(self, pod: Pod, kind: bytes, node: Node) -> Iterator[str]:
        labels = node.metadata.labels
        for place, term in enumerate(_apart(pod)):
            domain = labels.get(term.topology_key)
            if domain is not None and self._count(kind, pod, term, place, domain):
                yield f"its anti-affinity by {term.topology_key}"
        for other, carrier in self._with_terms.items():
            for place, term in enumerate(_apart(carrier)):
                domain = labels.get(term.topology_key)
                if domain is not None and self._bound[other, term.topology_key, domain] and self._is_about(carrier, term, pod):
                    yield f"the anti-affinity of {carrier.metadata.name} by {term.topology_key} (template {place})"
        terms = list(pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution)
        for place, term in enumerate(terms):
            domain = labels.get(term.topology_key)
            if domain is None:
                yield f"the node has no label {term.topology_key}"
            elif not self._count(kind, pod, term, -1 - place, domain):
                nobody = not any(
                    self._anywhere[other] for other, one in self._kinds.items() if all(self._is_about(pod, t, one) for t in terms)
                )
                if not (nobody and all(self._is_about(pod, one, pod) for one in terms)):
                    yield f"its affinity by {term.topology_key}"

    def _spread(self, pod: Pod, kind: bytes, node: Node) -> Iterator[str]:
        for place, constraint in enumerate(pod.spec.topology_spread_constraints):
            if constraint.when_unsatisfiable != "DoNotSchedule":
                continue
            key = constraint.topology_key
            domain = node.metadata.labels.get(key)
            if domain is None:
                yield f"the node has no label {key}"
                continue
            domains = self._domains.get((kind, place))
            if domains is None:
                domains = self._domains[kind, place] = {
                    other.metadata.labels[key]
                    for other in self._nodes.values()
                    if key in other.metadata.labels
                    and _is_selected(pod, other)
                    and (constraint.node_taints_policy != "Honor" or _is_tolerated(pod, other))
                }
            counting = [
                other
                for other, one in self._kinds.items()
                if one.metadata.namespace == pod.metadata.namespace and _selects(constraint.label_selector, one.metadata.labels)
            ]

            def pods(of: str, counting: list[bytes] = counting, key: str = key) -> int:
                return sum(self._bound[other, key, of] for other in counting)

            own = _selects(constraint.label_selector, pod.metadata.labels)
            # The emptiest domain cannot have fewer than none: with none there nothing else has to be looked at.
            lowest = 0 if pods(domain) + own <= constraint.max_skew else min(pods(one) for one in domains)
            if pods(domain) + own - lowest > constraint.max_skew:
                yield f"its spread over {key}"

    def _count(self, kind: bytes, pod: Pod, term: PodAffinityTerm, place: int, domain: str) -> int:
        """Bound pods of the domain that a term of the pod is about."""
        found = 0
        for other, one in self._kinds.items():
            known = self._matching.get((kind, other, place))
            if known is None:
                known = self._matching[kind, other, place] = self._is_about(pod, term, one)
            if known:
                found += self._bound[other, term.topology_key, domain]
        return found

    def _is_about(self, carrier: Pod, term: PodAffinityTerm, pod: Pod) -> bool:
        namespace = pod.metadata.namespace
        if term.HasField("namespace_selector") and _selects(term.namespace_selector, self._namespaces.get(namespace, {})):
            found = True
        elif term.namespaces:
            found = namespace in term.namespaces
        else:
            found = not term.HasField("namespace_selector") and namespace == carrier.metadata.namespace
        return found and _selects(term.label_selector, pod.metadata.labels)


def _kind(pod: Pod) -> bytes:
    key = Pod(spec=pod.spec)
    key.spec.node_name = ""
    key.metadata.namespace = pod.metadata.namespace
    key.metadata.labels.update(pod.metadata.labels)
    return key.SerializeToString(deterministic=True)


def _short(free: Amounts, wanted: Amounts) -> Iterator[str]:
    for resource, amount in wanted.items():
        if amount > free.get(resource, 0):
            yield f"{amount} of {resource} wanted, {free.get(resource, 0)} free"


def _apart(pod: Pod) -> Iterable[PodAffinityTerm]:
    return pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.match_labels.items())


def _is_selected(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity
    if not affinity.HasField("required_during_scheduling_ignored_during_execution"):
        return True
    return any(
        all(labels.get(one.key) in one.values for one in term.match_expressions)
        and all(node.metadata.name in one.values for one in term.match_fields)
        for term in affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    )


def _is_tolerated(pod: Pod, node: Node) -> bool:
    return all(
        any(_tolerates(one, taint.key, taint.value, taint.effect) for one in pod.spec.tolerations)
        for taint in node.spec.taints
        if taint.effect in _KEEPING_OFF
    )


def _tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or toleration.value == value
