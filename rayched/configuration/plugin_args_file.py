"""The `args` of a configuration file's pluginConfig, read into values of `framework.plugin_args`.

A weight of a resource that is absent or 0 is 1, a list of resources that is absent or empty is cpu and memory. `apiVersion` and
`kind` may be given and must fit then. Arguments of plugins that are not in the table are kept as plain YAML data: the plugin that
they belong to is a user's, and reads them itself.

Source: decoding of nested objects and defaults of kubescheduler.config.k8s.io/v1, kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rayched.api.errors import quoted
from rayched.configuration.yaml_fields import Section
from rayched.framework import names
from rayched.framework.plugin_args import (
    CPU_AND_MEMORY,
    DEFAULTING_TYPES,
    SYSTEM_DEFAULTING,
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    ScoringStrategy,
    ScoringStrategyType,
    ShapePoint,
)
from rayched.v1.core_pb2 import (
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
)
from rayched.v1.meta_pb2 import LabelSelector

INT64_MAX: Final = 2**63 - 1
FIX_UPSTREAM_BUGS: Final = "fixUpstreamBugs"
"""The one argument that kube-scheduler does not know: do what it means where 1.34 has a bug."""


def read_args(plugin: str, entry: Section, api_version: str) -> Any:
    """What stands under `args` of one entry of pluginConfig."""
    reader = _READERS.get(plugin)
    if reader is None:
        return entry.plain("args")
    args = entry.section("args")
    if args is None:
        return _DEFAULTS[plugin]
    given_version = args.text("apiVersion")
    if given_version not in ("", api_version):
        args.error("apiVersion", f"must be {quoted(api_version)} as that of the configuration, found {quoted(given_version)}")
    args.text("kind", allowed=(f"{plugin}Args",))
    value = reader(args)
    args.close()
    return value


def _read_fit(args: Section) -> NodeResourcesFitArgs:
    strategy = args.section("scoringStrategy")
    return NodeResourcesFitArgs(
        ignored_resources=args.texts("ignoredResources"),
        ignored_resource_groups=args.texts("ignoredResourceGroups"),
        scoring_strategy=ScoringStrategy() if strategy is None else _read_strategy(strategy),
        fix_upstream_bugs=args.boolean(FIX_UPSTREAM_BUGS, False),
    )


def _read_strategy(strategy: Section) -> ScoringStrategy:
    types = [one.value for one in ScoringStrategyType]
    chosen = ScoringStrategyType(strategy.text("type", ScoringStrategyType.LEAST_ALLOCATED.value, allowed=types))
    ratio = strategy.section("requestedToCapacityRatio")
    shape: tuple[ShapePoint, ...] = ()
    if ratio is not None:
        shape = tuple(_read_point(point) for point in ratio.sections("shape"))
        ratio.close()
        if chosen is not ScoringStrategyType.REQUESTED_TO_CAPACITY_RATIO:
            strategy.warn("requestedToCapacityRatio", f"has no effect with the type {chosen.value}")
    resources = _read_resources(strategy)
    strategy.close()
    return ScoringStrategy(chosen, resources, shape)


def _read_point(point: Section) -> ShapePoint:
    value = ShapePoint(point.integer("utilization", 0), point.integer("score", 0))
    point.close()
    return value


def _read_resources(parent: Section) -> tuple[ResourceSpec, ...]:
    found: list[ResourceSpec] = []
    for resource in parent.sections("resources"):
        weight = resource.integer("weight", 0, low=-INT64_MAX, high=INT64_MAX)
        found.append(ResourceSpec(resource.text("name"), weight or 1))
        resource.close()
    return tuple(found) or CPU_AND_MEMORY


def _read_balanced_allocation(args: Section) -> NodeResourcesBalancedAllocationArgs:
    return NodeResourcesBalancedAllocationArgs(_read_resources(args))


def _read_inter_pod_affinity(args: Section) -> InterPodAffinityArgs:
    return InterPodAffinityArgs(
        hard_pod_affinity_weight=args.integer("hardPodAffinityWeight", 1),
        ignore_preferred_terms_of_existing_pods=args.boolean("ignorePreferredTermsOfExistingPods", False),
        fix_upstream_bugs=args.boolean(FIX_UPSTREAM_BUGS, False),
    )


def _read_preemption(args: Section) -> DefaultPreemptionArgs:
    return DefaultPreemptionArgs(
        min_candidate_nodes_percentage=args.integer("minCandidateNodesPercentage", 10),
        min_candidate_nodes_absolute=args.integer("minCandidateNodesAbsolute", 100),
        min_runtime_seconds=args.integer("minRuntimeSeconds", 0),
    )


def _read_topology_spread(args: Section) -> PodTopologySpreadArgs:
    return PodTopologySpreadArgs(
        default_constraints=tuple(_read_constraint(constraint) for constraint in args.sections("defaultConstraints")),
        defaulting_type=args.text("defaultingType", SYSTEM_DEFAULTING, allowed=DEFAULTING_TYPES),
    )


def _read_constraint(section: Section) -> TopologySpreadConstraint:
    constraint = TopologySpreadConstraint(
        max_skew=section.integer("maxSkew", 0),
        topology_key=section.text("topologyKey"),
        when_unsatisfiable=section.text("whenUnsatisfiable"),
        match_label_keys=section.texts("matchLabelKeys"),
    )
    min_domains = section.optional_integer("minDomains", low=1)
    if min_domains is not None:
        constraint.min_domains = min_domains
    if section.has("nodeAffinityPolicy"):
        constraint.node_affinity_policy = section.text("nodeAffinityPolicy", "Honor", allowed=("Honor", "Ignore"))
    if section.has("nodeTaintsPolicy"):
        constraint.node_taints_policy = section.text("nodeTaintsPolicy", "Ignore", allowed=("Honor", "Ignore"))
    if section.plain("labelSelector") is not None:
        # Whatever it says is refused; that it was given is all that counts.
        constraint.label_selector.CopyFrom(LabelSelector())
    section.close()
    return constraint


def _read_node_affinity(args: Section) -> NodeAffinityArgs:
    added = args.section("addedAffinity")
    if added is None:
        return NodeAffinityArgs()
    affinity = NodeAffinity()
    required = added.section("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        terms = [_read_term(term) for term in required.sections("nodeSelectorTerms")]
        required.close()
        affinity.required_during_scheduling_ignored_during_execution.CopyFrom(NodeSelector(node_selector_terms=terms))
    for preferred in added.sections("preferredDuringSchedulingIgnoredDuringExecution"):
        weight = preferred.integer("weight", 0)
        preference = preferred.section("preference")
        term = NodeSelectorTerm() if preference is None else _read_term(preference)
        affinity.preferred_during_scheduling_ignored_during_execution.append(
            PreferredSchedulingTerm(weight=weight, preference=term)
        )
        preferred.close()
    added.close()
    return NodeAffinityArgs(affinity)


def _read_term(section: Section) -> NodeSelectorTerm:
    term = NodeSelectorTerm(
        match_expressions=_read_requirements(section.sections("matchExpressions")),
        match_fields=_read_requirements(section.sections("matchFields")),
    )
    section.close()
    return term


def _read_requirements(sections: Iterable[Section]) -> list[NodeSelectorRequirement]:
    found: list[NodeSelectorRequirement] = []
    for section in sections:
        found.append(
            NodeSelectorRequirement(key=section.text("key"), operator=section.text("operator"), values=section.texts("values"))
        )
        section.close()
    return found


_READERS: Final[Mapping[str, Callable[[Section], PluginArgs]]] = {
    names.NODE_RESOURCES_FIT: _read_fit,
    names.NODE_RESOURCES_BALANCED_ALLOCATION: _read_balanced_allocation,
    names.NODE_AFFINITY: _read_node_affinity,
    names.INTER_POD_AFFINITY: _read_inter_pod_affinity,
    names.POD_TOPOLOGY_SPREAD: _read_topology_spread,
    names.DEFAULT_PREEMPTION: _read_preemption,
}
_DEFAULTS: Final[Mapping[str, PluginArgs]] = {
    names.NODE_RESOURCES_FIT: NodeResourcesFitArgs(),
    names.NODE_RESOURCES_BALANCED_ALLOCATION: NodeResourcesBalancedAllocationArgs(),
    names.NODE_AFFINITY: NodeAffinityArgs(),
    names.INTER_POD_AFFINITY: InterPodAffinityArgs(),
    names.POD_TOPOLOGY_SPREAD: PodTopologySpreadArgs(),
    names.DEFAULT_PREEMPTION: DefaultPreemptionArgs(),
}
