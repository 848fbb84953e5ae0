"""Recorded cases of kube-scheduler 1.34.1: files of one JSON object a line, a scenario and what the real scheduler made of it.

`read(path)` reads one file, `files(directory)` finds them, `load(topic)` reads one of the files kept here. `cluster_of(case)`
builds a scenario's cluster in a Snapshot, pods defaulted as an API server does on create. A case's `config` is the body of a
profile; it goes through the reader of configuration files like any user's.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from rayched.api import kinds
from rayched.api.admission import merge_label_keys
from rayched.api.defaulting import default
from rayched.api.kinds import AnyObject, Kind
from rayched.api.manifest import read_object
from rayched.configuration import configuration_file
from rayched.engine.nominations import Nomination
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

_SURROUNDINGS: Final = {
    "namespaces": kinds.NAMESPACE,
    "services": kinds.SERVICE,
    "replicaSets": kinds.REPLICA_SET,
    "statefulSets": kinds.STATEFUL_SET,
    "replicationControllers": kinds.REPLICATION_CONTROLLER,
    "pdbs": kinds.POD_DISRUPTION_BUDGET,
}
"""Fields of a scenario that hold objects other than nodes and pods."""
_KINDS_WITH_A_PROFILE: Final = ("schedule", "preempt", "sequence")
_PLUGINS_WITH_BUGS: Final = ("InterPodAffinity", "NodeResourcesFit")


class Unreadable(ValueError):
    """A file that does not hold recorded cases."""


@dataclass(frozen=True, slots=True)
class Case:
    id: str
    topic: str
    kind: str
    scenario: dict[str, Any]
    expected: dict[str, Any]
    expected_if_fixed: dict[str, Any] | None = None
    """What a scheduler without the bugs of 1.34.1 answers, where that differs."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A scenario's objects, ready to be scheduled upon."""

    nodes: tuple[Node, ...]
    bound_pods: tuple[Pod, ...]
    pod: Pod
    snapshot: Snapshot
    template: PodTemplate
    """Of the pod to be scheduled, with its spec.nodeName if it has one."""
    nominated: tuple[Nomination, ...]
    """Other pods of equal or higher priority that wait for a node."""


def files(directory: Path) -> list[Path]:
    return sorted((*directory.glob("*.jsonl"), *directory.glob("*.jsonl.gz")))


def read(path: Path) -> Iterator[Case]:
    """Raises Unreadable."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _case(_record(line, path, number), path, number)
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise Unreadable(f"{path}: {problem}") from problem


@lru_cache(maxsize=1)
def load(topic: str) -> tuple[Case, ...]:
    return tuple(read(DIRECTORY / f"{topic}.jsonl.gz"))


def schedule_cases(*topics: str) -> Iterator[Case]:
    """Cases that record one scheduling attempt."""
    for topic in topics:
        yield from (case for case in load(topic) if case.kind == "schedule")


def cluster_of(case: Case) -> Cluster:
    scenario = case.scenario
    admission = scenario.get("admission", True)
    nodes = tuple(node_of(body) for body in scenario.get("nodes") or ())
    bound_pods = tuple(pod_of(body, admission) for body in scenario.get("boundPods") or ())
    pod = pod_of(scenario["pod"], admission)
    snapshot, templates = Snapshot(), TemplateTable()
    set_surroundings(snapshot, scenario)
    for node in nodes:
        snapshot.add_node(node)
    for number, bound in enumerate(bound_pods):
        terminating = bound.metadata.HasField("deletion_timestamp")
        snapshot.bind(f"bound-{number}", templates.intern(bound), bound.spec.node_name, terminating=terminating)
    nominated = tuple(
        (templates.intern(other), row)
        for other in (pod_of(body, admission) for body in scenario.get("nominatedPods") or ())
        if other.spec.priority >= pod.spec.priority and other.metadata.uid != pod.metadata.uid
        if (row := snapshot.row_of(other.status.nominated_node_name)) is not None
    )
    return Cluster(nodes, bound_pods, pod, snapshot, templates.intern(pod, with_node_name=True), nominated)


def set_surroundings(snapshot: Snapshot, scenario: dict[str, Any]) -> None:
    """Put a scenario's namespaces, services and controllers into the snapshot."""
    for field, kind in _SURROUNDINGS.items():
        for body in scenario.get(field) or ():
            message = _object_of(kind, body)
            snapshot.set_object(kind.name, message.metadata.namespace, message.metadata.name, message)


def profile_of(case: Case) -> Profile:
    """The case's profile, read from a configuration file that says what the case's config says."""
    return read_profile(profile_body(case))


def profile_body(case: Case) -> dict[str, Any]:
    return case.scenario.get("config") or {}


def read_profile(body: dict[str, Any]) -> Profile:
    """A profile from its part of a configuration file."""
    return _profile(json.dumps(body, sort_keys=True))


def with_fixes(case: Case) -> Case:
    """The case for a scheduler with fixUpstreamBugs wherever there is such an argument; one without a profile stays as it is."""
    if case.kind not in _KINDS_WITH_A_PROFILE:
        return case
    config: dict[str, Any] = case.scenario.get("config") or {}
    entries = [dict(entry) for entry in config.get("pluginConfig") or ()]
    for name in _PLUGINS_WITH_BUGS:
        entry = next((entry for entry in entries if entry["name"] == name), None)
        if entry is None:
            entry = {"name": name}
            entries.append(entry)
        entry["args"] = {**(entry.get("args") or {}), "fixUpstreamBugs": True}
    scenario = {**case.scenario, "config": {**config, "pluginConfig": entries}}
    return replace(case, scenario=scenario, expected=case.expected_if_fixed or case.expected, expected_if_fixed=None)


def node_of(body: dict[str, Any]) -> Node:
    node = _object_of(kinds.NODE, body)
    assert isinstance(node, Node)
    return node


def pod_of(body: dict[str, Any], admission: bool = True) -> Pod:
    """`admission`: the pod went through an API server's defaulting. A pod without uid is known by namespace/name."""
    pod = kinds.unwrap(read_object({"apiVersion": "v1", "kind": "Pod", **body}).object)
    assert isinstance(pod, Pod)
    metadata = pod.metadata
    metadata.namespace = metadata.namespace or "default"
    metadata.uid = metadata.uid or f"{metadata.namespace}/{metadata.name}"
    if admission:
        default(pod)
        merge_label_keys(pod)
    return pod


def _object_of(kind: Kind, body: dict[str, Any]) -> AnyObject:
    """Any object but a pod, defaulted."""
    message = kinds.unwrap(read_object({"apiVersion": kind.api_version, "kind": kind.name, **body}).object)
    if kind.namespaced:
        message.metadata.namespace = message.metadata.namespace or "default"
    default(message)
    return message


@lru_cache(maxsize=256)
def _profile(body: str) -> Profile:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [json.loads(body)],
    }
    (profile,) = configuration_file.load(json.dumps(document), "case.json", IN_TREE).profiles.values()
    return profile


def _record(line: str, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as problem:
        raise Unreadable(f"{path}:{number}: {problem}") from problem


def _case(record: dict[str, Any], path: Path, number: int) -> Case:
    try:
        scenario, expected = record["scenario"], record["expected"]
        fixed = record.get("expectedIfFixed")
        return Case(scenario["id"], scenario["topic"], scenario.get("kind", ""), scenario, expected, fixed)
    except (KeyError, TypeError, AttributeError) as problem:
        raise Unreadable(f"{path}:{number}: not a recorded case: {problem!r}") from problem
