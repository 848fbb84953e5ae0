"""What is decided about each pod of a production trace, one after the other, ties to the smallest name.

`python -m benchmarks.trace_decisions TRACE [--profile default|most-allocated|priorities]` prints a line for each pod: its name
and its node, or why it has none. Two versions of rayched that decide alike print the same bytes. With `priorities` pods have
those of the trace, and make room for themselves: victims end at once, and the pod is tried again. TRACE is as for `make trace`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.trace_objects import PRIORITIES, TraceError, read_nodes, read_pods
from rayched.configuration.configuration_file import load
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.scheduler.selection import SmallestName
from rayched.snapshot.pod_facts import PodFacts
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Pod

PROFILES: Final = ("default", "most-allocated", "priorities")
_HEAD: Final = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
_MOST_ALLOCATED: Final = """profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: nvidia.com/gpu, weight: 3}]}}
"""
TRIES_MAX: Final = 3
"""Of one pod: it may be told twice that room was made."""


def decisions(trace: Path, profile: str) -> Iterator[str]:
    text = _HEAD + (_MOST_ALLOCATED if profile == "most-allocated" else "")
    snapshot, templates = Snapshot(), TemplateTable()
    loaded = load(text, f"the profile {profile}", IN_TREE)
    scheduler = Scheduler(snapshot, loaded.profiles, 0, chance=SmallestName(snapshot))
    for node in read_nodes(trace):
        snapshot.add_node(node)
    names: dict[str, str] = {}
    for number, pod in enumerate(read_pods(trace)):
        pod.metadata.uid = f"uid-{number}"
        pod.spec.scheduler_name = "default-scheduler"
        pod.spec.priority = PRIORITIES[pod.spec.priority_class_name] if profile == "priorities" else 0
        names[pod.metadata.uid] = pod.metadata.name
        template = templates.intern(pod)
        yield from _tried(
            scheduler, PodToSchedule(pod.metadata.uid, _name(pod), template, pod), PodFacts(_name(pod), float(number)), names
        )


def _tried(scheduler: Scheduler, pod: PodToSchedule, facts: PodFacts, names: dict[str, str]) -> Iterator[str]:
    for tries in range(TRIES_MAX):
        found = scheduler.schedule(pod, 0, 0.0)
        if isinstance(found, Attempt):
            scheduler.bound(found)
            scheduler.occupancy.observe(pod.uid, pod.template, found.node_name, facts=facts)
            yield f"{pod.name} {found.node_name}"
            break
        made = found.preemption
        if made is None or tries == TRIES_MAX - 1:
            yield f"{pod.name} - {found.message}"
            break
        yield f"{pod.name} makes room on {made.node_name}: {' '.join(names[victim] for victim in made.victims)}"
        for victim in made.victims:
            scheduler.occupancy.remove(victim)
    scheduler.nominations.forget(pod.uid)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trace_decisions", description=__doc__)
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("--profile", choices=PROFILES, default="default")
    options = parser.parse_args(arguments)
    try:
        for line in decisions(options.trace, options.profile):
            print(line)
    except TraceError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
