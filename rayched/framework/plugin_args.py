"""Arguments of the in-tree plugins as frozen values with their defaults, and Kubernetes' rules for them.

`configuration.plugin_args_file` reads them out of a configuration file. All violations come at once, as FieldErrors whose paths
start at `path`, the place of the arguments.

Source: the *Args types of kubescheduler.config.k8s.io/v1, their defaults and validation, kube-scheduler 1.34.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from rayched.api.errors import FieldError, one_of, quoted
from rayched.api.names import qualified_fault
from rayched.api.selectors import NodeTermMatcher
from rayched.v1.core_pb2 import NodeAffinity, TopologySpreadConstraint

SYSTEM_DEFAULTING: Final = "System"
LIST_DEFAULTING: Final = "List"
DEFAULTING_TYPES: Final = (SYSTEM_DEFAULTING, LIST_DEFAULTING)
ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
RESOURCE_WEIGHT_MAX: Final = 100
SHAPE_SCORE_MAX: Final = 10


class ScoringStrategyType(enum.Enum):
    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    name: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class ShapePoint:
    """Utilization in percent, score 0 to 10."""

    utilization: int
    score: int


CPU_AND_MEMORY: Final = (ResourceSpec("cpu"), ResourceSpec("memory"))


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    type: ScoringStrategyType = ScoringStrategyType.LEAST_ALLOCATED
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    shape: tuple[ShapePoint, ...] = ()
    """Only of RequestedToCapacityRatio: points in the order of their utilization."""


@dataclass(frozen=True, slots=True)
class NodeResourcesFitArgs:
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()
    fix_upstream_bugs: bool = False
    """Scores count the pod-level resources of the incoming pod, as Filter does."""


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocationArgs:
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


@dataclass(frozen=True, slots=True)
class NodeAffinityArgs:
    added_affinity: NodeAffinity | None = None
    """Holds for every pod of the profile, besides its own affinity."""


@dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    hard_pod_affinity_weight: int = 1
    """The weight in scores of required affinity of pods that are bound already."""
    ignore_preferred_terms_of_existing_pods: bool = False
    fix_upstream_bugs: bool = False
    """A namespaceSelector of the incoming pod means the namespaces it selects, also where it selects what has no labels."""


@dataclass(frozen=True, slots=True)
class PodTopologySpreadArgs:
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = SYSTEM_DEFAULTING


@dataclass(frozen=True, slots=True)
class DefaultPreemptionArgs:
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100
    min_runtime_seconds: int = 0
    """A pod that has not run for so long is not preempted. Not in kube-scheduler."""


PluginArgs: TypeAlias = (
    NodeResourcesFitArgs
    | NodeResourcesBalancedAllocationArgs
    | NodeAffinityArgs
    | InterPodAffinityArgs
    | PodTopologySpreadArgs
    | DefaultPreemptionArgs
)


def validate_args(args: PluginArgs, path: str) -> list[FieldError]:
    """All that is wrong with a plugin's arguments; empty where nothing is."""
    match args:
        case NodeResourcesFitArgs():
            return list(_validate_fit(args, path))
        case NodeResourcesBalancedAllocationArgs():
            return list(_validate_balanced_allocation(args, path))
        case NodeAffinityArgs():
            return list(_validate_node_affinity(args, path))
        case InterPodAffinityArgs():
            return list(_validate_range(f"{path}.hardPodAffinityWeight", args.hard_pod_affinity_weight, 100))
        case PodTopologySpreadArgs():
            return list(_validate_topology_spread(args, path))
        case DefaultPreemptionArgs():
            return list(_validate_preemption(args, path))


def _validate_fit(args: NodeResourcesFitArgs, path: str) -> Iterator[FieldError]:
    for i, name in enumerate(args.ignored_resources):
        yield from _validate_qualified(f"{path}.ignoredResources[{i}]", name)
    for i, group in enumerate(args.ignored_resource_groups):
        at = f"{path}.ignoredResourceGroups[{i}]"
        if "/" in group:
            yield FieldError(at, f"{quoted(group)} must not contain '/'")
        else:
            yield from _validate_qualified(at, group)
    strategy, at = args.scoring_strategy, f"{path}.scoringStrategy"
    for i, resource in enumerate(strategy.resources):
        yield from _validate_name(f"{at}.resources[{i}].name", resource.name)
        if not 0 < resource.weight <= RESOURCE_WEIGHT_MAX:
            text = f"the weight of {quoted(resource.name)} must be in 1 to {RESOURCE_WEIGHT_MAX}, found {resource.weight}"
            yield FieldError(f"{at}.resources[{i}].weight", text)
    if strategy.shape or strategy.type is ScoringStrategyType.REQUESTED_TO_CAPACITY_RATIO:
        yield from _validate_shape(strategy.shape, f"{at}.requestedToCapacityRatio.shape")


def _validate_shape(shape: tuple[ShapePoint, ...], path: str) -> Iterator[FieldError]:
    if not shape:
        yield FieldError(path, "needs at least one point with utilization and score")
    for i in range(1, len(shape)):
        if shape[i - 1].utilization >= shape[i].utilization:
            text = f"must be greater than that of the point before ({shape[i - 1].utilization}), found {shape[i].utilization}"
            yield FieldError(f"{path}[{i}].utilization", text)
            break
    for i, point in enumerate(shape):
        yield from _validate_range(f"{path}[{i}].utilization", point.utilization, 100)
        yield from _validate_range(f"{path}[{i}].score", point.score, SHAPE_SCORE_MAX)


def _validate_balanced_allocation(args: NodeResourcesBalancedAllocationArgs, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, resource in enumerate(args.resources):
        at = f"{path}.resources[{i}]"
        yield from _validate_name(f"{at}.name", resource.name)
        if resource.name in seen:
            yield FieldError(f"{at}.name", f"{quoted(resource.name)} occurs twice")
        seen.add(resource.name)
        if resource.weight != 1:
            yield FieldError(f"{at}.weight", f"must be 1, found {resource.weight}")


def _validate_node_affinity(args: NodeAffinityArgs, path: str) -> Iterator[FieldError]:
    if args.added_affinity is None:
        return
    added, at = args.added_affinity, f"{path}.addedAffinity"
    for i, term in enumerate(added.required_during_scheduling_ignored_during_execution.node_selector_terms):
        fault = NodeTermMatcher(term).fault
        if fault is not None:
            terms = f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]"
            yield FieldError(terms, fault)
    for i, preferred in enumerate(added.preferred_during_scheduling_ignored_during_execution):
        here = f"{at}.preferredDuringSchedulingIgnoredDuringExecution[{i}]"
        fault = NodeTermMatcher(preferred.preference).fault
        if fault is not None:
            yield FieldError(f"{here}.preference", fault)
        if preferred.weight < 0:
            yield FieldError(f"{here}.weight", f"must not be negative, found {preferred.weight}")


def _validate_topology_spread(args: PodTopologySpreadArgs, path: str) -> Iterator[FieldError]:
    if args.defaulting_type == SYSTEM_DEFAULTING and args.default_constraints:
        yield FieldError(f"{path}.defaultingType", f'must be "{LIST_DEFAULTING}" where defaultConstraints are given')
    seen: set[tuple[str, str]] = set()
    for i, constraint in enumerate(args.default_constraints):
        at = f"{path}.defaultConstraints[{i}]"
        if constraint.max_skew <= 0:
            yield FieldError(f"{at}.maxSkew", f"must be greater than 0, found {constraint.max_skew}")
        yield from _validate_qualified(f"{at}.topologyKey", constraint.topology_key)
        if constraint.when_unsatisfiable not in ACTIONS:
            found = f", found {quoted(constraint.when_unsatisfiable)}" if constraint.when_unsatisfiable else ""
            yield FieldError(f"{at}.whenUnsatisfiable", f"must be {one_of(ACTIONS)}{found}")
        if constraint.HasField("label_selector"):
            text = "must not be given: each pod's Service, ReplicaSet, StatefulSet or ReplicationController says what to select"
            yield FieldError(f"{at}.labelSelector", text)
        identity = constraint.topology_key, constraint.when_unsatisfiable
        if identity in seen:
            yield FieldError(at, f"a second constraint for {quoted(identity[0])} and {identity[1]}")
        seen.add(identity)


def _validate_preemption(args: DefaultPreemptionArgs, path: str) -> Iterator[FieldError]:
    percentage, absolute = f"{path}.minCandidateNodesPercentage", f"{path}.minCandidateNodesAbsolute"
    yield from _validate_range(percentage, args.min_candidate_nodes_percentage, 100)
    if args.min_candidate_nodes_absolute < 0:
        yield FieldError(absolute, f"must not be negative, found {args.min_candidate_nodes_absolute}")
    if args.min_runtime_seconds < 0:
        yield FieldError(f"{path}.minRuntimeSeconds", f"must not be negative, found {args.min_runtime_seconds}")
    if args.min_candidate_nodes_percentage == 0 and args.min_candidate_nodes_absolute == 0:
        yield FieldError(percentage, "must not be 0 where minCandidateNodesAbsolute is 0")
        yield FieldError(absolute, "must not be 0 where minCandidateNodesPercentage is 0")


def _validate_range(path: str, number: int, high: int) -> Iterator[FieldError]:
    if not 0 <= number <= high:
        yield FieldError(path, f"must be in 0 to {high}, found {number}")


def _validate_name(path: str, name: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError(path, "is required")


def _validate_qualified(path: str, name: str) -> Iterator[FieldError]:
    fault = qualified_fault(name)
    if fault is not None:
        yield FieldError(path, fault)
