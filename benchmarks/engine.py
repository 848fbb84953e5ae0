"""Decisions per second of the engine alone: N nodes, M pods of a few templates, in one process, nothing written anywhere.

A decision is: evaluate the pod's template over all nodes, pick one of the best, bind it in the snapshot. Queue, events and stores
are left out. Prints one JSON object.

Nodes are equal, as in a node pool, or with --distinct all of different size, so that no two are ever in the same state.
`--topology` gives each template's pods a rule about its own: `spread` over zones (hard), `soft` spread over zones and hosts,
`apart` on different hosts (which leaves room for as many pods of a template as there are nodes), `together` in one zone if
possible.

    python -m benchmarks.engine --nodes 5000 --pods 10000 --templates 1 --topology spread
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rayched.framework.engine import Engine
from rayched.framework.profile import Profile
from rayched.framework.profile_building import default_profile
from rayched.plugins import in_tree
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Node, Pod

ZONES = 3
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
MULTIPLIER, MODULUS = 6_364_136_223_846_793_005, 1 << 64
"""A linear congruential generator: the benchmark draws the same ties each time, at no cost."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--templates", type=int, default=1)
    parser.add_argument("--distinct", action="store_true", help="no two nodes are of the same size")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the median counts")
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), default="none", help="what pods ask of each other")
    options = parser.parse_args(arguments)
    profile = default_profile(in_tree.IN_TREE)
    pods = [a_pod(number, options.topology) for number in range(options.templates)]
    runs = [measure(profile, options.nodes, options.pods, pods, distinct=options.distinct) for _ in range(options.repeat)]
    runs.sort(key=lambda run: run["microseconds_per_pod"])
    print(json.dumps(runs[len(runs) // 2]))


def measure(profile: Profile, n_nodes: int, n_pods: int, pods: Sequence[Pod], *, distinct: bool = False) -> dict[str, float]:
    """One run over these kinds of pods. Times are microseconds for a decision, the first one of each template aside."""
    snapshot = Snapshot()
    for number in range(n_nodes):
        snapshot.add_node(a_node(number, 128 << 30 if not distinct else (128 << 30) + (number << 20)))
    table = TemplateTable()
    templates = [table.intern(pod) for pod in pods]
    engine = Engine(snapshot, profile)
    random, cold, unplaced = 1, [], 0
    for number, template in enumerate(templates):
        began = time.perf_counter()
        engine.evaluate(template)
        cold.append(time.perf_counter() - began)
        snapshot.bind(f"first-{number}", template, "node-0")
    # The engine makes no cycles; a collection would be charged to whichever pod it falls on.
    gc.collect()
    gc.disable()
    taken: list[float] = []
    began, cpu_began = time.perf_counter(), time.process_time()
    for number in range(n_pods):
        one = time.perf_counter()
        template = templates[random % len(templates)]
        random, placed = decide(engine, snapshot, template, f"pod-{number}", random)
        unplaced += not placed
        taken.append(time.perf_counter() - one)
    elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    gc.enable()
    return {
        "nodes": n_nodes,
        "pods": n_pods,
        "templates": len(templates),
        "distinct": distinct,
        "decisions_per_second": round(n_pods / elapsed),
        "microseconds_per_pod": round(elapsed / n_pods * 1e6, 1),
        "cpu_microseconds_per_pod": round(cpu / n_pods * 1e6, 1),
        "p50_microseconds": round(statistics.median(taken) * 1e6, 1),
        "p99_microseconds": round(sorted(taken)[len(taken) * 99 // 100] * 1e6, 1),
        "cold_microseconds_per_template": round(statistics.fmean(cold) * 1e6, 1),
        "unplaced": unplaced,
    }


def decide(engine: Engine, snapshot: Snapshot, template: PodTemplate, uid: str, random: int) -> tuple[int, bool]:
    """Place one pod. Gives the next random number, and whether a node was found."""
    best = engine.evaluate(template).best_rows
    random = (random * MULTIPLIER + 1) % MODULUS
    if not len(best):
        return random, False
    snapshot.bind(uid, template, snapshot.name_of(best[(random >> 33) % len(best)]))
    return random, True


def a_node(number: int, memory_bytes: int) -> Node:
    node = Node()
    node.metadata.name = f"node-{number}"
    node.metadata.labels.update({HOSTNAME: f"node-{number}", ZONE: f"z{number % ZONES}"})
    for name, amount in {"cpu": "32", "memory": str(memory_bytes), "pods": "110", "ephemeral-storage": "100Gi"}.items():
        node.status.allocatable[name].string = amount
    return node


def a_pod(number: int, topology: str = "none") -> Pod:
    """Pod `number`; each has another label, some share requests; what it asks of others, it asks of those with its label."""
    pod = Pod()
    pod.metadata.namespace = "default"
    pod.metadata.labels["app"] = f"app-{number}"
    container = pod.spec.containers.add(name="main", image="registry.example/app:1")
    container.resources.requests["cpu"].string = f"{100 + 50 * (number % 12)}m"
    container.resources.requests["memory"].string = f"{128 * (1 + number % 7)}Mi"
    TOPOLOGIES[topology](pod)
    return pod


def _spread(pod: Pod, key: str, action: str) -> None:
    constraint = pod.spec.topology_spread_constraints.add(max_skew=5, topology_key=key, when_unsatisfiable=action)
    constraint.label_selector.match_labels.update(pod.metadata.labels)


def _spread_softly(pod: Pod) -> None:
    _spread(pod, ZONE, "ScheduleAnyway")
    _spread(pod, HOSTNAME, "ScheduleAnyway")


def _apart(pod: Pod) -> None:
    terms = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    terms.add(topology_key=HOSTNAME).label_selector.match_labels.update(pod.metadata.labels)


def _together(pod: Pod) -> None:
    preferred = pod.spec.affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution.add(weight=10)
    preferred.pod_affinity_term.topology_key = ZONE
    preferred.pod_affinity_term.label_selector.match_labels.update(pod.metadata.labels)


TOPOLOGIES: Final[Mapping[str, Callable[[Pod], None]]] = {
    "none": lambda pod: None,  # noqa: ARG005
    "spread": lambda pod: _spread(pod, ZONE, "DoNotSchedule"),
    "soft": _spread_softly,
    "apart": _apart,
    "together": _together,
}


if __name__ == "__main__":
    main()
