"""Random parts of pods and clusters that reach beyond one node: labels, namespaces, terms of affinity, constraints, services."""

from __future__ import annotations

from random import Random
from typing import Any

from rayched.v1.core_pb2 import Namespace, Pod, PodAffinityTerm, Service, TopologySpreadConstraint
from rayched.v1.meta_pb2 import LabelSelector
from rayched.v1.workloads_pb2 import ReplicaSet

APPS = ("web", "db", "cache")
TIERS = ("front", "back")
NAMESPACES = ("default", "team-a", "team-b")
KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "zone", "rack")
ZONES = ("east", "west", "north", "")


def add_domains(random: Random, labels: Any, name: str) -> None:
    if random.random() < 0.9:
        labels["kubernetes.io/hostname"] = name if random.random() < 0.9 else "shared"
    if random.random() < 0.8:
        labels["topology.kubernetes.io/zone"] = random.choice(ZONES)


def add_topology(random: Random, pod: Pod) -> None:
    """Labels and a namespace always, terms and constraints now and then."""
    pod.metadata.namespace = random.choice(("default", "default", *NAMESPACES))
    if random.random() < 0.9:
        pod.metadata.labels["app"] = random.choice(APPS)
    if random.random() < 0.5:
        pod.metadata.labels["tier"] = random.choice(TIERS)
    if random.random() < 0.2:
        pod.metadata.owner_references.add(
            api_version="apps/v1", kind="ReplicaSet", name=random.choice(("rs-1", "rs-2")), controller=True
        )
    together, apart = pod.spec.affinity.pod_affinity, pod.spec.affinity.pod_anti_affinity
    if random.random() < 0.25:
        together.required_during_scheduling_ignored_during_execution.extend(_terms(random, (1, 1, 2)))
    if random.random() < 0.25:
        apart.required_during_scheduling_ignored_during_execution.extend(_terms(random, (1, 1, 2)))
    for terms in (together, apart):
        if random.random() < 0.25:
            for term in _terms(random, (1, 2)):
                terms.preferred_during_scheduling_ignored_during_execution.add(
                    weight=random.choice((1, 7, 100)), pod_affinity_term=term
                )
    if random.random() < 0.4:
        used: set[tuple[str, str]] = set()
        for _ in range(random.choice((1, 1, 2, 3))):
            constraint = random_constraint(random)
            if (constraint.topology_key, constraint.when_unsatisfiable) not in used:
                used.add((constraint.topology_key, constraint.when_unsatisfiable))
                pod.spec.topology_spread_constraints.append(constraint)


def random_constraint(random: Random, with_selector: bool = True) -> TopologySpreadConstraint:
    constraint = TopologySpreadConstraint(
        max_skew=random.choice((1, 1, 2, 5)),
        topology_key=random.choice(KEYS),
        when_unsatisfiable=random.choice(("DoNotSchedule", "ScheduleAnyway")),
    )
    if with_selector and random.random() < 0.9:
        constraint.label_selector.CopyFrom(random_selector(random))
        if random.random() < 0.3:
            constraint.match_label_keys.append(random.choice(("app", "tier")))
    if constraint.when_unsatisfiable == "DoNotSchedule" and random.random() < 0.3:
        constraint.min_domains = random.choice((1, 2, 4))
    if random.random() < 0.3:
        constraint.node_affinity_policy = random.choice(("Honor", "Ignore"))
    if random.random() < 0.3:
        constraint.node_taints_policy = random.choice(("Honor", "Ignore"))
    return constraint


def random_selector(random: Random) -> LabelSelector:
    selector = LabelSelector()
    if random.random() < 0.6:
        selector.match_labels["app"] = random.choice(APPS)
    match random.randrange(5):
        case 0:
            selector.match_expressions.add(key="tier", operator="In", values=random.sample(TIERS, random.choice((1, 2))))
        case 1:
            selector.match_expressions.add(key="tier", operator="NotIn", values=[random.choice(TIERS)])
        case 2:
            selector.match_expressions.add(key="tier", operator=random.choice(("Exists", "DoesNotExist")))
    return selector


def random_namespace(random: Random) -> Namespace:
    namespace = Namespace()
    namespace.metadata.name = random.choice(NAMESPACES)
    if random.random() < 0.7:
        namespace.metadata.labels["team"] = random.choice(("a", "b"))
    return namespace


def random_service(random: Random) -> Service:
    service = Service()
    service.metadata.namespace, service.metadata.name = random.choice(NAMESPACES), random.choice(("s1", "s2"))
    if random.random() < 0.9:
        service.spec.selector["app"] = random.choice(APPS)
    if random.random() < 0.3:
        service.spec.selector["tier"] = random.choice(TIERS)
    return service


def random_replica_set(random: Random) -> ReplicaSet:
    replica_set = ReplicaSet()
    replica_set.metadata.namespace, replica_set.metadata.name = random.choice(NAMESPACES), random.choice(("rs-1", "rs-2"))
    replica_set.spec.selector.CopyFrom(random_selector(random))
    return replica_set


def _terms(random: Random, numbers: tuple[int, ...]) -> list[PodAffinityTerm]:
    return [_term(random) for _ in range(random.choice(numbers))]


def _term(random: Random) -> PodAffinityTerm:
    term = PodAffinityTerm(topology_key=random.choice(KEYS))
    if random.random() < 0.9:
        term.label_selector.CopyFrom(random_selector(random))
    if random.random() < 0.25:
        term.namespaces.extend(random.sample(NAMESPACES, random.choice((1, 2))))
    match random.randrange(8):
        case 0:
            term.namespace_selector.SetInParent()
        case 1:
            term.namespace_selector.match_labels["team"] = random.choice(("a", "b"))
        case 2:
            term.namespace_selector.match_expressions.add(key="team", operator="NotIn", values=["a"])
    return term
