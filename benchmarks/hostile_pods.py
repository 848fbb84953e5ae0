"""Pods that admission lets in and that cost as much as one of their kind can, from a seed: `make hostile`.

Each takes one limit, or several, to its end: terms of affinity with conditions on labels that pods have of their own,
constraints, node selectors, tolerations, host ports, containers, room that no node has. None of them keeps an ordinary pod off
any node: what they require is about each other, what they prefer may be about everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from rayched.api.validation import limits
from rayched.v1.core_pb2 import Pod
from rayched.v1.meta_pb2 import LabelSelector

OWN: Final = "statefulset.kubernetes.io/pod-name"
"""The label of its own that each bound pod has."""
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
KEYS: Final = (HOSTNAME, ZONE)
BYTES_MAX: Final = limits.POD_BYTES - 8_192
"""Room for what admission and the scheduler add."""


def hostile_pods(seed: int, count: int, bound: int) -> Iterator[Pod]:
    """`bound` pods have labels of their own: OWN is "app-0", "app-1", ..."""
    random = Random(seed)
    for number in range(count):
        pod = Pod(api_version="v1", kind="Pod")
        pod.metadata.name, pod.metadata.namespace = f"hostile-{number}", "default"
        pod.metadata.labels.update({"role": "hostile", OWN: f"hostile-{number}"})
        pod.spec.containers.add(name="main", image="registry.example/load:1").resources.requests["cpu"].string = "1m"
        for kind in random.sample(KINDS, random.choice((1, 1, 1, 2, 3))):
            before = Pod()
            before.CopyFrom(pod)
            # Most are as large as their neighbours are; one in ten as large as may be.
            kind(random, pod, 1.0 if random.random() < 0.1 else random.uniform(0.05, 0.4), bound)
            if pod.ByteSize() > BYTES_MAX:
                pod = before
        yield pod


def _part(share: float, limit: int) -> int:
    return max(1, int(share * limit))


def _select(random: Random, selector: LabelSelector, share: float, bound: int, *, hostile_only: bool = False) -> None:
    """Conditions that the selector can have, on labels that pods have of their own."""
    if hostile_only:
        selector.match_labels["role"] = "hostile"
    for place in range(_part(share, limits.EXPRESSIONS - 1)):
        key = OWN if place % 3 == 0 else random.choice(("app", "role", f"key-{place}"))
        expression = selector.match_expressions.add(key=key, operator="NotIn")
        expression.values.extend(f"app-{random.randrange(bound)}" for _ in range(_part(share, 8)))


def _preferences(random: Random, pod: Pod, share: float, bound: int) -> None:
    affinity = pod.spec.affinity
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        for _ in range(_part(share, limits.POD_AFFINITY_TERMS)):
            one = side.preferred_during_scheduling_ignored_during_execution.add(weight=random.randint(1, 100))
            one.pod_affinity_term.topology_key = random.choice(KEYS)
            one.pod_affinity_term.namespace_selector.SetInParent()
            _select(random, one.pod_affinity_term.label_selector, share, bound)


def _apart(random: Random, pod: Pod, share: float, bound: int) -> None:
    for _ in range(_part(share, limits.POD_AFFINITY_TERMS)):
        term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add()
        term.topology_key = HOSTNAME
        _select(random, term.label_selector, share, bound, hostile_only=True)


def _together(random: Random, pod: Pod, share: float, bound: int) -> None:
    """With bound pods that are everywhere."""
    for _ in range(_part(share, limits.POD_AFFINITY_TERMS)):
        term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add()
        term.topology_key = random.choice(KEYS)
        _select(random, term.label_selector, share, bound)


def _constraints(random: Random, pod: Pod, share: float, bound: int) -> None:
    for place in range(_part(share, limits.SPREAD_CONSTRAINTS)):
        one = pod.spec.topology_spread_constraints.add(max_skew=1 + place, topology_key=f"rack-{place}")
        one.when_unsatisfiable = "ScheduleAnyway"
        one.node_affinity_policy = one.node_taints_policy = "Honor"
        _select(random, one.label_selector, share, bound)


def _nodes(random: Random, pod: Pod, share: float, bound: int) -> None:  # noqa: ARG001
    affinity = pod.spec.affinity.node_affinity
    for number in range(_part(share, limits.NODE_SELECTOR_TERMS)):
        required = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms.add()
        preferred = affinity.preferred_during_scheduling_ignored_during_execution.add(weight=random.randint(1, 100))
        for term in (required, preferred.preference):
            for place in range(_part(share, limits.EXPRESSIONS)):
                term.match_expressions.add(key=f"label-{place}", operator="NotIn", values=[f"value-{number}"])


def _tolerations(random: Random, pod: Pod, share: float, bound: int) -> None:  # noqa: ARG001
    for number in range(_part(share, limits.TOLERATIONS - 4)):
        pod.spec.tolerations.add(key=f"taint-{number}", operator="Exists", effect=random.choice(("NoSchedule", "NoExecute")))


def _containers(random: Random, pod: Pod, share: float, bound: int) -> None:  # noqa: ARG001
    for number in range(_part(share, limits.CONTAINERS - 2)):
        container = pod.spec.containers.add(name=f"c-{number}", image=f"registry.example/image-{random.randrange(1000)}:1")
        for place in range(_part(share, 16)):
            port = 20_000 + 100 * number + place
            container.ports.add(container_port=port, host_port=port, protocol="TCP")


def _too_large(random: Random, pod: Pod, share: float, bound: int) -> None:  # noqa: ARG001
    """Waits for ever: each change of a node or a pod is looked at for it."""
    pod.spec.containers[0].resources.requests["cpu"].string = str(random.randint(1_000, 100_000))


KINDS: Final[tuple[Callable[[Random, Pod, float, int], None], ...]] = (
    _preferences,
    _apart,
    _together,
    _constraints,
    _nodes,
    _tolerations,
    _containers,
    _too_large,
)
