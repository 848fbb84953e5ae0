"""NodeResourcesFit: keep pods off nodes without enough room, and prefer emptier or fuller ones as its strategy says.

Filter: compares requests with what is free of allocatable, and counts pods. All resources that are short are named. The code is
UNSCHEDULABLE, as removing pods can help; where a request exceeds the node's allocatable it is UNSCHEDULABLE_AND_UNRESOLVABLE.
`ignoredResources` and `ignoredResourceGroups` leave extended resources out of Filter, not out of Score.
Score: one of the strategies in `scoring`, over the resources that the arguments list.

For cpu and memory, Score counts a default for containers that name no request, of bound pods and of this one.
Source: requests of pods, node.status.allocatable (core/v1), NodeResourcesFitArgs, kube-scheduler 1.34. As there, Score leaves out
the pod-level resources of the pod that is being scheduled; `fixUpstreamBugs` ends that.
Cost: that of `resource_needs` for Filter, about ten numpy calls for Score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.api.resources import fit_requests, is_extended, is_scalar, pod_requests
from rayched.framework import names
from rayched.framework.accelerated import ResourcePlugin, StackingPlugin
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.plugin import PodPart, PodReadingPlugin, RegisteringPlugin, ScorePlugin
from rayched.framework.plugin_args import NodeResourcesFitArgs, ScoringStrategyType
from rayched.framework.queueing_hints import PreparedHint, Registration
from rayched.framework.resource_needs import ResourceNeed, ResourceNeeds
from rayched.plugins.node_resources import fit_hints as hints
from rayched.plugins.node_resources.scoring import (
    CPU_AND_MEMORY,
    ResourceScorer,
    least_allocated,
    most_allocated,
    place_to_score,
    requested_to_capacity_ratio,
)
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import BASIC_RESOURCES, CPU, MEMORY, PODS
from rayched.v1.core_pb2 import Pod

REASON_PODS: Final = "Too many pods"
_PODS: Final = BASIC_RESOURCES[PODS]
_NON_ZERO_PLACES: Final[Mapping[str, int]] = {"cpu": CPU, "memory": MEMORY}
"""Places in `Rows.non_zero_requested`."""


@dataclass(frozen=True, slots=True)
class Requests:
    """What of a pod decides."""

    filtered: tuple[tuple[str, int], ...]
    """Resources that must be free, with amounts above zero: milli-CPU, bytes or counts."""
    scored: tuple[int, ...]
    """Amounts for the strategy's resources, in its order."""


@dataclass(frozen=True, slots=True)
class FitState:
    """The same, ready for columns."""

    filtered: ResourceNeeds
    scored: tuple[int, ...]
    amounts: NDArray[np.int64]
    """Of the scored resources. Shape (scored resources, 1); of many (.., keys)."""


class NodeResourcesFit(ResourcePlugin, StackingPlugin, ScorePlugin, PodReadingPlugin, RegisteringPlugin):
    name: Final = names.NODE_RESOURCES_FIT
    reads: Final = Log.USAGE
    reads_pod: Final = PodPart.LEAST

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        strategy = args.scoring_strategy
        self._resources = tuple(resource.name for resource in strategy.resources)
        self._weights = np.array([resource.weight for resource in strategy.resources], np.int64)
        self._scorer = _SCORERS[strategy.type](args)
        self._scores_pod_level = args.fix_upstream_bugs

    def key(self, pod: Pod) -> Requests:
        requests, scored = fit_requests(pod, self._resources, pod_level=self._scores_pod_level)
        return Requests(self._filtered(requests), scored)

    def prepare(self, pod: Pod) -> FitState:
        requests = self.key(pod)
        # A node without any room for pods may get some; what it lacks of a request it lacks for good.
        needs = [ResourceNeed(name, amount, f"Insufficient {name}", True) for name, amount in requests.filtered]
        return FitState(
            filtered=ResourceNeeds([ResourceNeed(_PODS, 1, REASON_PODS, False), *needs]),
            scored=requests.scored,
            amounts=np.array(requests.scored, np.int64)[:, None],
        )

    def filter(self, state: FitState, rows: Rows) -> CodeColumn:
        """Shape (rows,), uint8."""
        return state.filtered.codes(rows)

    def stack(self, states: Sequence[FitState]) -> FitState | None:
        """Requests side by side in place of rows."""
        if self._resources != CPU_AND_MEMORY:
            return None
        if len(states) == 1:
            return states[0]
        return FitState(
            filtered=ResourceNeeds.side_by_side([state.filtered for state in states]),
            scored=(),
            amounts=np.concatenate([state.amounts for state in states], axis=1),
        )

    def reasons(self, state: FitState, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:  # noqa: ARG002
        needs = state.filtered
        return [(need.reason, short) for need, short in zip(needs.needs, needs.short(rows), strict=True)]

    def needs(self, state: FitState) -> ResourceNeeds:
        return state.filtered

    def score(self, state: FitState, rows: Rows) -> ScoreColumn:
        """Shape (rows,), int64, 0..100."""
        if self._resources == CPU_AND_MEMORY:
            return self._scorer(rows.non_zero_requested + state.amounts, rows.allocatable[: MEMORY + 1], self._weights)
        counted = [
            (i, place)
            for i, (name, amount) in enumerate(zip(self._resources, state.scored, strict=True))
            if (place := place_to_score(name, amount, rows)) is not None
        ]
        if not counted:
            return np.zeros(rows.n, np.int64)
        taken = [self._taken(self._resources[i], place, rows) for i, place in counted]
        chosen = [i for i, _ in counted]
        used = np.array(taken, np.int64) + state.amounts[chosen]
        return self._scorer(used, rows.allocatable[[place for _, place in counted]], self._weights[chosen])

    def _taken(self, name: str, place: int, rows: Rows) -> ScoreColumn:
        """What bound pods count for. Shape (rows,)."""
        non_zero = _NON_ZERO_PLACES.get(name)
        taken: ScoreColumn = rows.requested[place] if non_zero is None else rows.non_zero_requested[non_zero]
        return taken

    def _filtered(self, requests: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """What must be free for a pod with these requests, by name; amounts are above zero."""
        return tuple(sorted([(name, amount) for name, amount in requests.items() if amount and self._is_filtered(name)]))

    def _is_filtered(self, name: str) -> bool:
        if name in BASIC_RESOURCES:
            # A pod is one pod, whatever it requests.
            return name != _PODS
        if not is_scalar(name):
            return False
        ignored = name in self._ignored or name.partition("/")[0] in self._ignored_groups
        return not (ignored and is_extended(name))

    def registrations(self) -> Sequence[Registration]:
        pods, nodes = Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE
        return (
            Registration(ClusterEvent(Resource.POD, pods), PreparedHint(self._after_pod, hints.pods)),
            Registration(ClusterEvent(Resource.NODE, nodes), PreparedHint(self._after_node, hints.nodes)),
        )

    def _after_pod(self, pod: Pod) -> hints.FitPodHint:
        return hints.FitPodHint(frozenset(name for name, _ in self._filtered(pod_requests(pod))), pod.metadata.uid)

    def _after_node(self, pod: Pod) -> hints.FitNodeHint:
        return hints.FitNodeHint(((_PODS, 1), *self._filtered(pod_requests(pod))))


def _ratio_of(args: NodeResourcesFitArgs) -> ResourceScorer:
    return requested_to_capacity_ratio(args.scoring_strategy.shape)


_SCORERS: Final[Mapping[ScoringStrategyType, Callable[[NodeResourcesFitArgs], ResourceScorer]]] = {
    ScoringStrategyType.LEAST_ALLOCATED: lambda args: least_allocated,  # noqa: ARG005
    ScoringStrategyType.MOST_ALLOCATED: lambda args: most_allocated,  # noqa: ARG005
    ScoringStrategyType.REQUESTED_TO_CAPACITY_RATIO: _ratio_of,
}
