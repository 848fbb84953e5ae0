"""The two plugins of the naive scheduler that look beyond one node: PodTopologySpread and InterPodAffinity.

Every pod of the cluster is looked at anew for every question. `Pods` are triples of a pod, its node and whether it is being
deleted. Nothing here comes from the code under test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rayched.v1.core_pb2 import Node, Pod, PodAffinityTerm, TopologySpreadConstraint
from tests.oracle.naive_rules import any_term, covers, has_required, label_condition_holds, required_terms

HOST = "kubernetes.io/hostname"


@dataclass
class Surroundings:
    """What pods refer to besides nodes."""

    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    services: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """(namespace, name) to selector."""
    controllers: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    """(kind, namespace, name) to label selector."""


def selects(selector: Any, labels: Any) -> bool:
    """A LabelSelector message on labels."""
    there = dict(labels)
    return all(there.get(key) == value for key, value in selector.match_labels.items()) and all(
        label_condition_holds(expression, there) for expression in selector.match_expressions
    )


def is_empty(selector: Any) -> bool:
    return not selector.match_labels and not selector.match_expressions


# ------------------------------------------------------------------------------------------------------------- spreading


@dataclass
class SpreadSettings:
    system: bool = True
    defaults: tuple[TopologySpreadConstraint, ...] = ()


class NaiveSpread:
    """PodTopologySpread for one pod on one cluster."""

    def __init__(
        self, pod: Pod, nodes: list[Node], pods: list[tuple[Pod, str, bool]], around: Surroundings, settings: SpreadSettings
    ) -> None:
        self.pod, self.nodes, self.pods, self.around = pod, nodes, pods, around
        own = list(pod.spec.topology_spread_constraints)
        self.is_default = not own
        if own:
            constraints = own
        elif settings.system:
            constraints = [
                TopologySpreadConstraint(max_skew=3, topology_key=HOST, when_unsatisfiable="ScheduleAnyway"),
                TopologySpreadConstraint(
                    max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="ScheduleAnyway"
                ),
            ]
        else:
            constraints = list(settings.defaults)
        self.all_keys_needed = bool(own) or not settings.system
        if self.is_default and not self._siblings():
            constraints = []
        self.hard = [one for one in constraints if one.when_unsatisfiable == "DoNotSchedule"]
        self.soft = [one for one in constraints if one.when_unsatisfiable == "ScheduleAnyway"]

    def _siblings(self) -> list[Any]:
        """Selectors (mappings or messages) that say which pods belong together."""
        namespace = self.pod.metadata.namespace
        labels = dict(self.pod.metadata.labels)
        found: list[Any] = []
        for (where, _), wanted in self.around.services.items():
            if where == namespace and wanted and all(labels.get(key) == value for key, value in wanted.items()):
                found.append(wanted)
        for owner in self.pod.metadata.owner_references:
            if owner.controller and (owner.api_version, owner.kind) in (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")):
                selector = self.around.controllers.get((owner.kind, namespace, owner.name))
                if selector is not None and not is_empty(selector):
                    found.append(selector)
        return found

    def _counts(self, constraint: TopologySpreadConstraint, other: Pod) -> bool:
        """Whether the selector selects the pod, wherever it is."""
        if other.metadata.namespace != self.pod.metadata.namespace:
            return False
        labels = dict(other.metadata.labels)
        if self.is_default:
            for selector in self._siblings():
                if isinstance(selector, dict):
                    if any(labels.get(key) != value for key, value in selector.items()):
                        return False
                elif not selects(selector, labels):
                    return False
            return True
        own = dict(self.pod.metadata.labels)
        wanted = {key: own[key] for key in constraint.match_label_keys if key in own}
        if any(labels.get(key) != value for key, value in wanted.items()):
            return False
        if not constraint.HasField("label_selector"):
            return bool(wanted)
        return selects(constraint.label_selector, labels)

    def _selects_all(self, constraint: TopologySpreadConstraint) -> bool:
        own = dict(self.pod.metadata.labels)
        if self.is_default or any(key in own for key in constraint.match_label_keys):
            return False
        return constraint.HasField("label_selector") and is_empty(constraint.label_selector)

    def _on(self, constraint: TopologySpreadConstraint, node: Node) -> int:
        if self._selects_all(constraint):
            return 0
        return sum(
            self._counts(constraint, other)
            for other, where, terminating in self.pods
            if where == node.metadata.name and not terminating
        )

    def _includes(self, constraint: TopologySpreadConstraint, node: Node) -> bool:
        labels = node.metadata.labels
        if constraint.node_affinity_policy in ("", "Honor"):
            if any(labels.get(key) != value for key, value in self.pod.spec.node_selector.items()):
                return False
            affinity = self.pod.spec.affinity.node_affinity
            if has_required(affinity) and not any_term(required_terms(affinity), node):
                return False
        if constraint.node_taints_policy == "Honor":
            for taint in node.spec.taints:
                if taint.effect != "PreferNoSchedule" and not any(
                    covers(t, taint.key, taint.value, taint.effect) for t in self.pod.spec.tolerations
                ):
                    return False
        return True

    def verdict(self, node: Node) -> tuple[str, list[str]]:
        reason = "node(s) didn't match pod topology spread constraints"
        for constraint in self.hard:
            if constraint.topology_key not in node.metadata.labels:
                return "UnschedulableAndUnresolvable", [f"{reason} (missing required label)"]
            domains: dict[str, int] = {}
            for other in self.nodes:
                if all(one.topology_key in other.metadata.labels for one in self.hard) and self._includes(constraint, other):
                    value = other.metadata.labels[constraint.topology_key]
                    domains[value] = domains.get(value, 0) + self._on(constraint, other)
            needed = constraint.min_domains if constraint.HasField("min_domains") else 1
            lowest = min(domains.values()) if domains else 10**9
            if len(domains) < needed:
                lowest = 0
            here = domains.get(node.metadata.labels[constraint.topology_key], 0)
            if here + self._counts(constraint, self.pod) - lowest > constraint.max_skew:
                return "Unschedulable", [reason]
        return "Success", []

    def scores(self, feasible: list[Node]) -> tuple[list[int], list[int]] | None:
        """Raw and normalised."""
        if not self.soft:
            return None
        complete = [all(one.topology_key in node.metadata.labels for one in self.soft) for node in feasible]
        scored = [ok or not self.all_keys_needed for ok in complete]
        raw: list[int] = []
        for node, is_scored in zip(feasible, scored, strict=True):
            total = 0.0
            for constraint in self.soft if is_scored else ():
                key = constraint.topology_key
                if key not in node.metadata.labels:
                    continue
                if key == HOST:
                    pods, domains = self._on(constraint, node), sum(scored)
                else:
                    # A node without the label is in one domain with those whose label is empty.
                    there = {other.metadata.labels.get(key, "") for other, ok in zip(feasible, scored, strict=True) if ok}
                    domains = len(there)
                    pods = sum(
                        self._on(constraint, other)
                        for other in self.nodes
                        if other.metadata.labels.get(key, "") == node.metadata.labels[key]
                        and (not self.all_keys_needed or all(one.topology_key in other.metadata.labels for one in self.soft))
                        and self._includes(constraint, other)
                    )
                total += pods * math.log(domains + 2) + (constraint.max_skew - 1)
            raw.append(math.floor(total + 0.5))
        counted = [score for score, is_scored in zip(raw, scored, strict=True) if is_scored]
        if not counted:
            return raw, [0] * len(raw)
        low, high = min(counted), max(counted)
        normal = [100 if not high else 100 * (high + low - score) // high for score in raw]
        return raw, [score if is_scored else 0 for score, is_scored in zip(normal, scored, strict=True)]


# -------------------------------------------------------------------------------------------------------------- affinity


@dataclass
class AffinitySettings:
    hard_weight: int = 1
    ignore: bool = False
    fixed: bool = False


class NaiveAffinity:
    """InterPodAffinity for one pod on one cluster."""

    def __init__(
        self, pod: Pod, nodes: list[Node], pods: list[tuple[Pod, str, bool]], around: Surroundings, settings: AffinitySettings
    ) -> None:
        self.pod, self.around, self.settings = pod, around, settings
        by_name = {node.metadata.name: node for node in nodes}
        self.pods = [(other, by_name[where]) for other, where, _ in pods if where in by_name]

    def _own_term_matches(self, term: PodAffinityTerm, other: Pod) -> bool:
        namespaces = set(term.namespaces)
        everywhere = False
        if term.HasField("namespace_selector"):
            selector = term.namespace_selector
            if is_empty(selector):
                everywhere = True
            else:
                namespaces |= {name for name, labels in self.around.namespaces.items() if selects(selector, labels)}
                # The bug of 1.34.1: the selector is asked once more, about no labels at all.
                everywhere = not self.settings.fixed and selects(selector, {})
        elif not namespaces:
            namespaces = {self.pod.metadata.namespace}
        if not everywhere and other.metadata.namespace not in namespaces:
            return False
        return term.HasField("label_selector") and selects(term.label_selector, other.metadata.labels)

    def _their_term_matches(self, term: PodAffinityTerm, owner: Pod) -> bool:
        namespace = self.pod.metadata.namespace
        namespaces = set(term.namespaces)
        if not namespaces and not term.HasField("namespace_selector"):
            namespaces = {owner.metadata.namespace}
        in_reach = namespace in namespaces or (
            term.HasField("namespace_selector") and selects(term.namespace_selector, self.around.namespaces.get(namespace, {}))
        )
        return in_reach and term.HasField("label_selector") and selects(term.label_selector, self.pod.metadata.labels)

    def verdict(self, node: Node) -> tuple[str, list[str]]:
        labels = node.metadata.labels
        terms = _required(self.pod.spec.affinity.pod_affinity)
        matching = [where for other, where in self.pods if terms and all(self._own_term_matches(t, other) for t in terms)]
        lonely = [t for t in terms if not _together(t, node, matching)]
        nobody = not any(t.topology_key in where.metadata.labels for t in terms for where in matching)
        is_first = nobody and all(self._own_term_matches(t, self.pod) for t in terms)
        if any(t.topology_key not in labels for t in terms) or (lonely and not is_first):
            return "UnschedulableAndUnresolvable", ["node(s) didn't match pod affinity rules"]
        for term in _required(self.pod.spec.affinity.pod_anti_affinity):
            if _together(term, node, [where for other, where in self.pods if self._own_term_matches(term, other)]):
                return "Unschedulable", ["node(s) didn't match pod anti-affinity rules"]
        for other, where in self.pods:
            for term in _required(other.spec.affinity.pod_anti_affinity):
                if self._their_term_matches(term, other) and _together(term, node, [where]):
                    return "Unschedulable", ["node(s) didn't satisfy existing pods anti-affinity rules"]
        return "Success", []

    def scores(self, feasible: list[Node]) -> tuple[list[int], list[int]] | None:
        """Raw and normalised."""
        affinity = self.pod.spec.affinity
        own = [(one.weight, one.pod_affinity_term) for one in _preferred(affinity.pod_affinity)]
        own += [(-one.weight, one.pod_affinity_term) for one in _preferred(affinity.pod_anti_affinity)]
        if self.settings.ignore and not own:
            return None
        points: list[tuple[int, str, str]] = []
        for other, where in self.pods:
            met = [(weight, term) for weight, term in own if self._own_term_matches(term, other)]
            theirs = other.spec.affinity
            carried = [(self.settings.hard_weight, term) for term in _required(theirs.pod_affinity) if self.settings.hard_weight]
            carried += [(one.weight, one.pod_affinity_term) for one in _preferred(theirs.pod_affinity)]
            carried += [(-one.weight, one.pod_affinity_term) for one in _preferred(theirs.pod_anti_affinity)]
            met += [(weight, term) for weight, term in carried if self._their_term_matches(term, other)]
            for weight, term in met:
                if term.topology_key in where.metadata.labels:
                    points.append((weight, term.topology_key, where.metadata.labels[term.topology_key]))
        if not points:
            return None
        raw = [sum(w for w, key, value in points if node.metadata.labels.get(key) == value) for node in feasible]
        low, high = min(raw), max(raw)
        return raw, [int(100.0 * (float(score - low) / float(high - low))) if high > low else 0 for score in raw]


def _required(affinity: Any) -> list[PodAffinityTerm]:
    return list(affinity.required_during_scheduling_ignored_during_execution)


def _preferred(affinity: Any) -> list[Any]:
    return list(affinity.preferred_during_scheduling_ignored_during_execution)


def _together(term: PodAffinityTerm, node: Node, others: Iterable[Node]) -> bool:
    """Whether one of the others is in the node's domain."""
    key = term.topology_key
    if key not in node.metadata.labels:
        return False
    return any(key in other.metadata.labels and other.metadata.labels[key] == node.metadata.labels[key] for other in others)
