"""Recorded cases of kube-scheduler 1.34.1: files of one JSON object a line, a scenario and what the real scheduler made of it.

`load(topic)` reads one file; `cluster_of(case)` builds the scenario's cluster in a Snapshot, pods defaulted as an API server does
on create. A case's `config` is the body of a profile; it goes through the reader of configuration files like any user's.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rayched.api.defaulting import default
from rayched.api.kinds import unwrap
from rayched.api.manifest import read_object
from rayched.framework import configuration_file
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Node, Pod

DIRECTORY = Path(__file__).parent

SCHEDULE_TOPICS = (
    "resources",
    "fitscore",
    "balanced",
    "nodename",
    "nodeaffinity",
    "taints",
    "ports",
    "images",
    "gates",
    "mixed",
    "docs",
    "nominated",
    "spread",
    "spreaddefault",
    "interpod",
)


@dataclass(frozen=True, slots=True)
class Case:
    id: str
    topic: str
    kind: str
    scenario: dict[str, Any]
    expected: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A scenario's objects, ready to be scheduled upon."""

    nodes: tuple[Node, ...]
    bound_pods: tuple[Pod, ...]
    pod: Pod
    snapshot: Snapshot
    template: PodTemplate
    """Of the pod to be scheduled, with its spec.nodeName if it has one."""


@lru_cache(maxsize=1)
def load(topic: str) -> tuple[Case, ...]:
    return tuple(_read(DIRECTORY / f"{topic}.jsonl.gz"))


def schedule_cases(*topics: str) -> Iterator[Case]:
    """Cases that record one scheduling attempt."""
    for topic in topics:
        yield from (case for case in load(topic) if case.kind == "schedule")


def cluster_of(case: Case) -> Cluster:
    scenario = case.scenario
    admission = scenario.get("admission", True)
    nodes = tuple(_node(body) for body in scenario.get("nodes", ()))
    bound_pods = tuple(_pod(body, admission) for body in scenario.get("boundPods", ()))
    pod = _pod(scenario["pod"], admission)
    snapshot, templates = Snapshot(), TemplateTable()
    for node in nodes:
        snapshot.add_node(node)
    for number, bound in enumerate(bound_pods):
        snapshot.bind(f"bound-{number}", templates.intern(bound), bound.spec.node_name)
    return Cluster(nodes, bound_pods, pod, snapshot, templates.intern(pod, with_node_name=True))


def profile_of(case: Case) -> Profile:
    """The case's profile, read from a configuration file that says what the case's config says."""
    return _profile(json.dumps(case.scenario.get("config", {}), sort_keys=True))


@lru_cache(maxsize=256)
def _profile(body: str) -> Profile:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [json.loads(body)],
    }
    (profile,) = configuration_file.load(json.dumps(document), "case.json", IN_TREE).profiles.values()
    return profile


def _read(path: Path) -> Iterator[Case]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            scenario, expected = record["scenario"], record["expected"]
            yield Case(scenario["id"], scenario["topic"], scenario.get("kind", ""), scenario, expected)


def _node(body: dict[str, Any]) -> Node:
    node = unwrap(read_object({"apiVersion": "v1", "kind": "Node", **body}).object)
    assert isinstance(node, Node)
    default(node)
    return node


def _pod(body: dict[str, Any], admission: bool) -> Pod:
    pod = unwrap(read_object({"apiVersion": "v1", "kind": "Pod", **body}).object)
    assert isinstance(pod, Pod)
    pod.metadata.namespace = pod.metadata.namespace or "default"
    if admission:
        default(pod)
    return pod
