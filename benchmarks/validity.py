"""Whether every placement is one that Kubernetes allows: bindings are replayed in their order, one by one, on plain dictionaries.

The rules are the auditor's, which share no code with the scheduler; that they are asked about 10,000 pods of 1,000 templates on
5,000 nodes is what this module is for: it asks once for each template, and keeps counts. It knows requests and pod slots; taints;
nodeSelector and required node affinity; required pod affinity and anti-affinity, also those of pods that are there already; hard
topology spread. What it does not know it does not judge: host ports, volumes, minDomains.

Cost: some 20 µs a pod, and 1 µs for each distinct term.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Final

from rayched.audit.matching import node_is_selected, own_term_means, selector_matches, their_term_means, untolerated
from rayched.audit.requests import Amounts, amounts, taken_by
from rayched.v1.core_pb2 import Node, Pod, PodAffinityTerm, TopologySpreadConstraint

_SHOWN_MAX: Final = 3
_NOTHING: Final = Fraction(0)


class _Kind:
    """A template: what all pods of it have in common."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.takes: Amounts = taken_by(pod)
        affinity = pod.spec.affinity
        self.apart = list(affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution)
        self.together = list(affinity.pod_affinity.required_during_scheduling_ignored_during_execution)
        self.spread = [one for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"]
        self.on_nodes = 0


class _Question:
    """Pods on the nodes by domain, of those that one term or constraint is about."""

    def __init__(self, topology_key: str, is_about: Callable[[_Kind], bool]) -> None:
        self.topology_key = topology_key
        self._is_about = is_about
        self._known: dict[int, bool] = {}
        self.by_domain: Counter[str] = Counter()

    def is_about(self, kind: _Kind) -> bool:
        known = self._known.get(id(kind))
        if known is None:
            known = self._known[id(kind)] = self._is_about(kind)
        return known

    def count(self, kind: _Kind, node: Node, step: int) -> None:
        """A pod came or went; where the question is about it."""
        if self.is_about(kind):
            self.add(node, step)

    def add(self, node: Node, step: int) -> None:
        domain = node.metadata.labels.get(self.topology_key)
        if domain is not None:
            self.by_domain[domain] += step


class Judge:
    """Owns its picture of the cluster. `namespaces` has the labels of each."""

    def __init__(self, nodes: Iterable[Node], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._nodes = {node.metadata.name: node for node in nodes}
        self._namespaces = namespaces
        self._free = {name: amounts(node.status.allocatable) for name, node in self._nodes.items()}
        self._kinds: dict[bytes, _Kind] = {}
        self._there: dict[str, tuple[_Kind, str]] = {}
        """Pods on nodes, by uid."""
        self._questions: dict[tuple[str, bytes, str], _Question] = {}
        """Asked by terms and constraints about the pods that are there."""
        self._carried: dict[tuple[str, bytes, str], _Question] = {}
        """Anti-affinity terms: about whom they are, and the pods that have them."""
        self._domains: dict[tuple[bytes, bytes], set[str]] = {}
        self.placed = 0
        self.wrong: list[str] = []
        """The first placements that are not allowed, in words."""
        self.n_wrong = 0

    def place(self, pod: Pod, node_name: str) -> None:
        """The next binding."""
        self.placed += 1
        kind = self._kind(pod)
        self._say(pod, node_name, next(self._problems(kind, node_name), None))
        if node_name in self._nodes:
            self._there[pod.metadata.uid] = kind, node_name
            self._count(kind, node_name, 1)

    def end(self, uid: str) -> None:
        """The pod has left its node; does nothing where it was on none."""
        found = self._there.pop(uid, None)
        if found is not None:
            self._count(*found, -1)

    def preempted(self, pod: Pod, highest: int) -> None:
        """The pod was told to end for others, the most important of which has this priority."""
        if pod.spec.priority >= highest:
            self._say(pod, pod.spec.node_name, f"ended for a pod of priority {highest}, its own is {pod.spec.priority}")

    # ---------------------------------------------------------------------------------------------------------- private

    def _say(self, pod: Pod, node_name: str, problem: str | None) -> None:
        if problem is not None:
            self.n_wrong += 1
            if len(self.wrong) < _SHOWN_MAX:
                self.wrong.append(f"{pod.metadata.namespace}/{pod.metadata.name} on {node_name}: {problem}")

    def _kind(self, pod: Pod) -> _Kind:
        reduced = Pod(spec=pod.spec)
        reduced.spec.node_name = ""
        reduced.metadata.namespace = pod.metadata.namespace
        reduced.metadata.labels.update(pod.metadata.labels)
        key = reduced.SerializeToString(deterministic=True)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(reduced)
        return kind

    def _count(self, kind: _Kind, node_name: str, step: int) -> None:
        node, free = self._nodes[node_name], self._free[node_name]
        kind.on_nodes += step
        for resource, amount in kind.takes.items():
            free[resource] = free.get(resource, _NOTHING) - step * amount
        for question in self._questions.values():
            question.count(kind, node, step)
        for term in kind.apart:
            self._carriers(term, kind).add(node, step)

    def _problems(self, kind: _Kind, node_name: str) -> Iterator[str]:
        node = self._nodes.get(node_name)
        if node is None:
            yield "there is no such node"
            return
        free = self._free[node_name]
        for resource, amount in kind.takes.items():
            if amount > free.get(resource, _NOTHING):
                yield f"{float(amount):g} of {resource} wanted, {float(free.get(resource, _NOTHING)):g} free"
        if not node_is_selected(kind.pod, node):
            yield "the node is not selected"
        if untolerated(kind.pod, node) is not None:
            yield "a taint is not tolerated"
        yield from self._pod_affinity(kind, node)
        yield from self._spread(kind, node)

    def _pod_affinity(self, kind: _Kind, node: Node) -> Iterator[str]:
        labels = node.metadata.labels
        for term in kind.apart:
            domain = labels.get(term.topology_key)
            if domain is not None and self._own(term, kind).by_domain[domain]:
                yield f"its anti-affinity by {term.topology_key}"
        for carriers in self._carried.values():
            domain = labels.get(carriers.topology_key)
            if domain is not None and carriers.by_domain[domain] and carriers.is_about(kind):
                yield f"the anti-affinity of a pod there by {carriers.topology_key}"
        for term in kind.together:
            domain = labels.get(term.topology_key)
            if domain is None:
                yield f"the node has no label {term.topology_key}"
            elif not self._own(term, kind).by_domain[domain] and not self._is_first(kind):
                yield f"its affinity by {term.topology_key}"

    def _is_first(self, kind: _Kind) -> bool:
        """No pod is there that all affinity terms are about, and the pod would satisfy them itself."""
        questions = [self._own(term, kind) for term in kind.together]
        if any(other.on_nodes and all(one.is_about(other) for one in questions) for other in self._kinds.values()):
            return False
        return all(one.is_about(kind) for one in questions)

    def _spread(self, kind: _Kind, node: Node) -> Iterator[str]:
        for constraint in kind.spread:
            domain = node.metadata.labels.get(constraint.topology_key)
            if domain is None:
                yield f"the node has no label {constraint.topology_key}"
                continue
            question = self._spread_question(constraint, kind)
            pods = question.by_domain
            there = pods[domain] + question.is_about(kind)
            # The emptiest domain cannot have fewer than none: with none there nothing else has to be looked at.
            if there > constraint.max_skew and there - min(pods[one] for one in self._domains_of(constraint, kind)) > (
                constraint.max_skew
            ):
                yield f"its spread over {constraint.topology_key}"

    def _domains_of(self, constraint: TopologySpreadConstraint, kind: _Kind) -> set[str]:
        """Those that count for the pod."""
        asks = Pod()
        asks.spec.node_selector.update(kind.pod.spec.node_selector)
        asks.spec.affinity.node_affinity.CopyFrom(kind.pod.spec.affinity.node_affinity)
        if constraint.node_taints_policy == "Honor":
            asks.spec.tolerations.extend(kind.pod.spec.tolerations)
        name = constraint.topology_key.encode() + constraint.node_taints_policy.encode()
        known = name, asks.SerializeToString(deterministic=True)
        if known not in self._domains:
            self._domains[known] = {
                node.metadata.labels[constraint.topology_key]
                for node in self._nodes.values()
                if constraint.topology_key in node.metadata.labels
                and node_is_selected(kind.pod, node)
                and (constraint.node_taints_policy != "Honor" or untolerated(kind.pod, node) is None)
            }
        return self._domains[known]

    def _own(self, term: PodAffinityTerm, owner: _Kind) -> _Question:
        def is_about(kind: _Kind) -> bool:
            pod = kind.pod
            return own_term_means(term, owner.pod, pod.metadata.namespace, pod.metadata.labels, self._namespaces)

        return self._about_pods_there(term, owner, is_about)

    def _spread_question(self, constraint: TopologySpreadConstraint, owner: _Kind) -> _Question:
        def is_about(kind: _Kind) -> bool:
            there, own = kind.pod.metadata, owner.pod.metadata
            return there.namespace == own.namespace and selector_matches(constraint.label_selector, there.labels)

        return self._about_pods_there(constraint, owner, is_about)

    def _about_pods_there(
        self, of: PodAffinityTerm | TopologySpreadConstraint, owner: _Kind, is_about: Callable[[_Kind], bool]
    ) -> _Question:
        name = _name_of(of, owner.pod)
        question = self._questions.get(name)
        if question is None:
            question = self._questions[name] = _Question(of.topology_key, is_about)
            for kind, node_name in self._there.values():
                question.count(kind, self._nodes[node_name], 1)
        return question

    def _carriers(self, term: PodAffinityTerm, owner: _Kind) -> _Question:
        name = _name_of(term, owner.pod)
        question = self._carried.get(name)
        if question is None:
            question = self._carried[name] = _Question(
                term.topology_key, lambda kind: their_term_means(term, owner.pod, kind.pod, self._namespaces)
            )
        return question


def _name_of(of: PodAffinityTerm | TopologySpreadConstraint, owner: Pod) -> tuple[str, bytes, str]:
    """Equal ones of pods of one namespace ask the same, whatever else their templates have, unless they go by labels of these."""
    metadata = owner.metadata
    labels = str(sorted(metadata.labels.items())) if of.match_label_keys else ""
    if isinstance(of, PodAffinityTerm) and of.mismatch_label_keys:
        labels = str(sorted(metadata.labels.items()))
    return metadata.namespace, of.SerializeToString(deterministic=True), labels
