"""Random small clusters: the victims are those that a search through all sets of pods finds best.

The search knows nothing of taking pods off and putting them back. On each node it looks at every set of lower pods that could
stay, takes those beside which the incoming pod fits, and of these the one that keeps most in the order of whom to spare: first
those whose end violates a budget, then the higher priority, then the earlier start. Among nodes it compares by the six criteria.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from random import Random

import pytest

from rayched.api import kinds
from rayched.configuration.profile_building import default_profile
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import AttemptFailure
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.pod_facts import PodFacts
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget

CLUSTERS = 240
CLUSTERS_A_TEST = 60
PODS_MAX = 12


@dataclass(frozen=True)
class Small:
    """A pod as the search knows it."""

    name: str
    node: int
    cpu: int
    gpu: int
    port: int
    priority: int
    started: int
    app: str


@dataclass(frozen=True)
class World:
    nodes: tuple[tuple[int, int, int, bool], ...]
    """CPUs, GPUs, pods, cordoned."""
    pods: tuple[Small, ...]
    nominated: tuple[Small, ...]
    allowed: dict[str, int]
    """Disruptions that the budget of an app allows; an app without one has no budget."""
    incoming: Small


def random_world(random: Random) -> World:
    n_nodes = random.randint(1, 4)
    starts = random.sample(range(1000), PODS_MAX)

    def small(name: str, started: int) -> Small:
        return Small(
            name,
            random.randrange(n_nodes),
            random.randint(0, 4),
            random.choice((0, 0, 0, 1, 2)),
            random.choice((0, 0, 0, 80, 81)),
            random.randint(-1, 3),
            started,
            random.choice(("a", "b", "")),
        )

    pods: list[Small] = []
    for number in range(random.randint(1, PODS_MAX)):
        pod = small(f"p{number}", starts[number])
        if not pod.port or all((other.node, other.port) != (pod.node, pod.port) for other in pods):
            pods.append(pod)
    nodes = []
    for node in range(n_nodes):
        there = [pod for pod in pods if pod.node == node]
        cpu, gpu = sum(pod.cpu for pod in there), sum(pod.gpu for pod in there)
        slack = random.choice((0, 0, 0, 1))
        nodes.append((cpu + slack, gpu + random.choice((0, 1)), len(there) + random.choice((0, 0, 1)), random.random() < 0.1))
    nominated = [small(f"n{number}", 0) for number in range(random.choice((0, 0, 1, 2)))]
    allowed = {app: random.randint(0, 2) for app in ("a", "b") if random.random() < 0.5}
    incoming = replace(small("incoming", 0), cpu=random.randint(1, 8), priority=random.randint(1, 4))
    return World(tuple(nodes), tuple(pods), tuple(nominated), allowed, incoming)


# ----------------------------------------------------------------------------------------------------------- the search


def fits(world: World, node: int, there: list[Small]) -> bool:
    """Beside these pods, and beside these and the nominated ones that count."""
    cpus, gpus, pods_max, cordoned = world.nodes[node]
    pod = world.incoming
    hoping = [other for other in world.nominated if other.node == node and other.priority >= pod.priority]
    for beside in (there + hoping, there):
        if len(beside) + 1 > pods_max or (pod.port and any(other.port == pod.port for other in beside)):
            return False
        if pod.cpu and sum(other.cpu for other in beside) + pod.cpu > cpus:
            return False
        if pod.gpu and sum(other.gpu for other in beside) + pod.gpu > gpus:
            return False
    return not cordoned


def violating(world: World, lower: list[Small]) -> set[str]:
    """Names of those that come too late for what their budget allows, in the order of importance."""
    found: set[str] = set()
    for app, allowed in world.allowed.items():
        found.update(pod.name for pod in [pod for pod in lower if pod.app == app][allowed:])
    return found


def best_set(world: World, node: int) -> tuple[list[Small], int] | None:
    """Victims on one node, the most important first, and how many of them violate a budget."""
    there = [pod for pod in world.pods if pod.node == node]
    lower = sorted((pod for pod in there if pod.priority < world.incoming.priority), key=lambda p: (-p.priority, p.started))
    firm = [pod for pod in there if pod not in lower]
    bad = violating(world, lower)
    order = [pod for pod in lower if pod.name in bad] + [pod for pod in lower if pod.name not in bad]
    kept_best: tuple[bool, ...] | None = None
    for kept in product((False, True), repeat=len(order)):
        if fits(world, node, firm + [pod for pod, stays in zip(order, kept, strict=True) if stays]):
            kept_best = kept if kept_best is None else max(kept_best, kept)
    if not order or kept_best is None:
        return None
    names = {pod.name for pod, stays in zip(order, kept_best, strict=True) if not stays}
    return [pod for pod in lower if pod.name in names], len(names & bad)


def search(world: World) -> dict[str, list[str]]:
    """The nodes that no criterion tells apart, with the victims there."""
    found: dict[int, tuple[list[Small], int]] = {}
    for node, (cpus, gpus, _, cordoned) in enumerate(world.nodes):
        # Where more is asked for than there is at all, no end of pods helps.
        if world.incoming.cpu <= cpus and world.incoming.gpu <= gpus and not cordoned:
            candidate = best_set(world, node)
            if candidate is not None:
                found[node] = candidate
    for criterion in (
        lambda victims, bad: bad,
        lambda victims, bad: max(victim.priority for victim in victims),
        lambda victims, bad: sum(victim.priority + 2**31 for victim in victims),
        lambda victims, bad: len(victims),
        lambda victims, bad: -min(v.started for v in victims if v.priority == max(w.priority for w in victims)),
    ):
        values = {node: criterion(*candidate) for node, candidate in found.items()}
        found = {node: found[node] for node, value in values.items() if value == min(values.values())}
    return {f"node-{node}": [victim.name for victim in victims] for node, (victims, _) in found.items()}


# -------------------------------------------------------------------------------------------------------- the real thing


def a_real_pod(small: Small) -> Pod:
    pod = Pod()
    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = "default", small.name, small.name
    if small.app:
        pod.metadata.labels["app"] = small.app
    pod.spec.scheduler_name, pod.spec.priority = "default-scheduler", small.priority
    container = pod.spec.containers.add(name="c", image="app:1")
    container.resources.requests["cpu"].string = str(small.cpu)
    if small.gpu:
        container.resources.requests["example.com/gpu"].string = str(small.gpu)
    if small.port:
        container.ports.add(container_port=small.port, host_port=small.port, protocol="TCP")
    return pod


def decided(world: World, seed: int) -> tuple[str, list[str]] | None:
    """Node and victims; None where the pod fits somewhere."""
    snapshot, templates = Snapshot(), TemplateTable()
    for number, (cpus, gpus, pods_max, cordoned) in enumerate(world.nodes):
        node = Node()
        node.metadata.name = f"node-{number}"
        node.spec.unschedulable = cordoned
        for resource, amount in (("cpu", cpus), ("example.com/gpu", gpus), ("pods", pods_max)):
            node.status.allocatable[resource].string = str(amount)
        snapshot.add_node(node)
    profile = default_profile(IN_TREE)
    scheduler = Scheduler(snapshot, {profile.scheduler_name: profile}, seed)
    for pod in world.pods:
        facts = PodFacts(f"default/{pod.name}", float(pod.started))
        scheduler.occupancy.observe(pod.name, templates.intern(a_real_pod(pod)), f"node-{pod.node}", facts=facts)
    for pod in world.nominated:
        scheduler.nominations.nominate(pod.name, templates.intern(a_real_pod(pod)), f"node-{pod.node}")
    for app, allowed in world.allowed.items():
        budget = PodDisruptionBudget()
        budget.spec.selector.match_labels["app"] = app
        budget.status.disruptions_allowed = allowed
        snapshot.set_object(kinds.POD_DISRUPTION_BUDGET.name, "default", app, budget)
    pod = a_real_pod(world.incoming)
    result = scheduler.schedule(PodToSchedule("incoming", "default/incoming", templates.intern(pod), pod), 0, 0.0)
    if not isinstance(result, AttemptFailure):
        return None
    return result.nominated_node_name or "", list(result.preemption.victims) if result.preemption is not None else []


@pytest.mark.row("F13", "F25", "K9.7")
@pytest.mark.parametrize("piece", range(CLUSTERS // CLUSTERS_A_TEST))
def test_victims_are_those_that_a_search_through_all_sets_finds_best(piece: int) -> None:
    made_room = several = 0
    for seed in range(piece * CLUSTERS_A_TEST, (piece + 1) * CLUSTERS_A_TEST):
        world = random_world(Random(seed))
        found = decided(world, seed)
        if found is None:
            continue
        node, victims = found
        expected = search(world)
        assert (node in expected) if expected else not node, f"seed {seed}: chose {node!r} of {expected}"
        assert victims == expected.get(node, []), f"seed {seed}: found {victims}, the search {expected[node]}"
        made_room += bool(victims)
        several += len(victims) > 1
    assert made_room > CLUSTERS_A_TEST // 5 and several > CLUSTERS_A_TEST // 20, (made_room, several)
