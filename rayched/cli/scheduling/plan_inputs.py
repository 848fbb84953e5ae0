"""What a plan starts from: a living cluster, or what kubectl printed of one; and what the command line adds to it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from rayched.actors.entry_points import load_entry_points
from rayched.api import kinds
from rayched.api.admission import admit_pod, resolve_priority
from rayched.api.defaulting import default
from rayched.api.kinds import AnyObject
from rayched.api.manifest import ReadResult
from rayched.api.stages import Stage, stage_of
from rayched.api.validation.objects import validate
from rayched.cli.manifests.named_manifests import read_manifests
from rayched.cli.printing import fail, fail_all
from rayched.cli.references import label_of
from rayched.client.client import Client
from rayched.client.plan_handover import PLAN_KINDS, PlanIncomplete, taken_over
from rayched.configuration.configuration_file import ConfigurationErrors, load
from rayched.controllers.workloads.foreseen_pods import WorkloadForesight
from rayched.controllers.workloads.pod_making import TemplateRefused
from rayched.controllers.workloads.workload_view import AdmissionClasses
from rayched.framework.profile import Profile
from rayched.framework.registry import RegistryError, merge
from rayched.plugins.in_tree import IN_TREE
from rayched.replica.scheduler_settings import SchedulerSettingsError, read_scheduler_settings
from rayched.scheduler.scheduler import Draws
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import GetPlanBasisResponse
from rayched.v1.workloads_pb2 import Job, PodGroup, PriorityClass, ReplicaSet, RuntimeClass
from rayched.whatif.cluster import Basis


@dataclass(frozen=True, slots=True)
class Start:
    """A cluster as of one moment, and by what its scheduler decides."""

    objects: list[AnyObject]
    basis: Basis
    revision: int
    """0: of no store."""
    configuration: str
    """A KubeSchedulerConfiguration; "" is the default one."""


def from_cluster(client: Client) -> Start:
    """Everything at the revision up to which the leader's scheduler has seen it."""
    found = client.plan_basis()
    objects = [item for kind in PLAN_KINDS for item in client.list_all(kind, revision=found.revision).objects]
    return _begun(found, objects)


def from_descriptor(descriptor: int) -> Start:
    """The same, as whoever started this process hands it over through an open file."""
    try:
        with open(descriptor, "rb") as file:
            return _begun(*taken_over(file))
    except (OSError, PlanIncomplete, DecodeError) as error:
        fail(f"--handed-over {descriptor}: {error}")


def _begun(found: GetPlanBasisResponse, objects: list[AnyObject]) -> Start:
    draws = Draws(found.seed, found.decisions, found.search_start)
    return Start(objects, Basis(draws, tuple(found.rows)), found.revision, found.configuration)


def from_kubectl(names: Sequence[str]) -> Start:
    """Files with nodes and pods, as `kubectl get nodes,pods -A -o yaml` prints them."""
    results = read_manifests([part for name in names for part in name.split(",") if part], warnings=False)
    objects = [_defaulted(kinds.unwrap(result.object)) for result in results]
    if not any(isinstance(item, Node) for item in objects):
        fail(f"{', '.join(names)}: no node in there; see kubectl get nodes,pods --all-namespaces -o yaml")
    return Start(objects, Basis(), 0, "")


def profiles_of(start: Start, config: Path | None) -> dict[str, Profile]:
    """Those of the file, else those in force."""
    try:
        if config is not None or not start.configuration:
            settings = read_scheduler_settings(config)
            text, source = settings.text, settings.source
        else:
            text, source = start.configuration, "the cluster's configuration"
        return dict(load(text, source, merge(IN_TREE, load_entry_points())).profiles)
    except SchedulerSettingsError as error:
        fail_all(error.lines, raised=error.raised)
    except ConfigurationErrors as error:
        fail_all(map(str, error.errors))
    except RegistryError as error:
        fail(f"{error}; install here the plugins that the cluster has, or name another configuration with --config")


class Wanted(NamedTuple):
    """What manifests want, as the API would store it."""

    others: list[AnyObject]
    """All but pods."""
    new: list[Pod]
    """To be placed. A pod that is there already is not among them, as `apply` would not place it again."""
    deleted: list[Pod]
    """By the controllers of ReplicaSets and jobs that want fewer."""


def wanted(results: Iterable[ReadResult], start: Start) -> Wanted:
    """Also the pods that controllers would make. Ends the command where the API would refuse an object."""
    items = [kinds.unwrap(result.object) for result in results]
    for item in items:
        # Of a ReplicaSet or a job it matters what the manifest does not say.
        if not isinstance(item, ReplicaSet | Job):
            default(item)
    others: list[AnyObject] = [item for item in items if not isinstance(item, Pod)]
    there = [*start.objects, *others]
    priorities = {item.metadata.name: item for item in there if isinstance(item, PriorityClass)}
    runtimes = {item.metadata.name: item for item in there if isinstance(item, RuntimeClass)}
    groups = [item for item in others if isinstance(item, PodGroup)]
    # Nobody sorts the pods of a cluster by controller for manifests that have none.
    known_to_controllers = [*start.objects, *groups] if any(isinstance(item, ReplicaSet | Job) for item in others) else []
    foresight = WorkloadForesight(known_to_controllers, AdmissionClasses(priorities, runtimes), time.time())
    known = {(item.metadata.namespace, item.metadata.name) for item in start.objects if isinstance(item, Pod)}
    errors: list[str] = []
    new: list[Pod] = []
    deleted: list[Pod] = []
    for number, item in enumerate(items, 1):
        label = label_of(kinds.of_message(item), item.metadata.name)
        match item:
            case Pod():
                item.metadata.name = item.metadata.name or f"{item.metadata.generate_name}{number}"
                errors += [f"{label}: {error}" for error in admit_pod(item, priorities, runtimes)]
                if (item.metadata.namespace, item.metadata.name) not in known:
                    known.add((item.metadata.namespace, item.metadata.name))
                    new.append(item)
            case PodGroup():
                errors += [f"{label}: {error}" for error in (*validate(item), *resolve_priority(item, priorities))]
            case ReplicaSet() | Job():
                try:
                    found = foresight.pods_of(item)
                except TemplateRefused as error:
                    errors += [f"{label}: {one}" for one in error.errors]
                    continue
                default(item)
                new += found.made
                deleted += found.deleted
                others += [found.group] if found.group is not None else []
    if errors:
        fail_all(errors)
    return Wanted(others, [pod for pod in new if stage_of(pod) is not Stage.OVER], deleted)


def _defaulted(item: AnyObject) -> AnyObject:
    """The object as the API would store it: a node that tells its capacity alone offers all of it."""
    default(item)
    return item


def more_nodes(count: int, like: Node) -> list[Node]:
    """Nodes of the same shape and with the same labels, empty and not cordoned."""
    return [_copy_of(like, f"{like.metadata.name}-added-{number}") for number in range(1, count + 1)]


def _copy_of(node: Node, name: str) -> Node:
    copy = Node()
    copy.CopyFrom(node)
    copy.metadata.name = name
    copy.metadata.uid = ""
    if "kubernetes.io/hostname" in copy.metadata.labels:
        copy.metadata.labels["kubernetes.io/hostname"] = name
    copy.spec.unschedulable = False
    kept = [taint for taint in copy.spec.taints if not taint.key.startswith("node.kubernetes.io/")]
    del copy.spec.taints[:]
    copy.spec.taints.extend(kept)
    return copy
