"""NodeResourcesFit: keep pods off nodes without enough room, and prefer emptier or fuller ones as its strategy says.

Filter: compares requests with what is free of allocatable, and counts pods. All resources that are short are named. The code is
UNSCHEDULABLE, as removing pods can help; where a request exceeds the node's allocatable it is UNSCHEDULABLE_AND_UNRESOLVABLE.
`ignoredResources` and `ignoredResourceGroups` leave extended resources out of Filter, not out of Score.
Score: one of the strategies in `resource_scoring`, over the resources that the arguments list.

For cpu and memory, Score counts a default for containers that name no request, of bound pods and of this one.
Source: requests of pods, node.status.allocatable (core/v1), NodeResourcesFitArgs, kube-scheduler 1.34. As there, Score leaves out
the pod-level resources of the pod that is being scheduled; `fixUpstreamBugs` ends that.
Cost: about ten numpy calls for Filter and ten for Score; a few more for each extended resource that is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.api.resources import is_extended, is_scalar, pod_requests, score_requests
from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.plugin import RoomNeed
from rayched.framework.plugin_args import NodeResourcesFitArgs, ScoringStrategyType
from rayched.framework.queueing_hints import PreparedHint, Registration
from rayched.framework.status import Code
from rayched.plugins import node_resources_fit_hints as hints
from rayched.plugins.coding import coded
from rayched.plugins.resource_scoring import (
    PlainScorer,
    ResourceScorer,
    least_allocated,
    least_allocated_plain,
    most_allocated,
    most_allocated_plain,
    place_to_score,
    requested_to_capacity_ratio,
)
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.row_states import PlainRow
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import BASIC_RESOURCES, CPU, MEMORY, PODS
from rayched.v1.core_pb2 import Pod

REASON_PODS: Final = "Too many pods"
NEEDS_MAX: Final = 32
"""With more resources than this rows are compared in columns only."""
_BASIC: Final = len(BASIC_RESOURCES)
_PODS: Final = BASIC_RESOURCES[PODS]
_SHORT: Final = int(Code.UNSCHEDULABLE)
_UNRESOLVABLE: Final = int(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
_NOT_ASKED: Final = np.iinfo(np.int64).min
"""In a vector of amounts: less than anything that is free."""
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
class Prepared:
    """The same, ready for columns."""

    filtered: tuple[tuple[str, int], ...]
    scored: tuple[int, ...]
    free: NDArray[np.int64]
    """What must be free of the basic resources, the pod itself included. Shape (basic resources, 1); of many (.., keys)."""
    most: tuple[int, ...]
    """The most that any of the keys asks for of each to be free."""
    there: NDArray[np.int64]
    """What must be there at all; a full node may lose pods. Shape as `free`."""
    others: tuple[tuple[str, int | NDArray[np.int64]], ...]
    """What must be free of other resources; of many keys an amount for each. Shape (keys,)."""
    amounts: NDArray[np.int64]
    """Of the scored resources. Shape (scored resources, 1); of many (.., keys)."""


class NodeResourcesFit:
    name: Final = names.NODE_RESOURCES_FIT
    reads: Final = Log.USAGE
    reads_mentioned_labels_alone: Final = True
    reads_tolerations_of_known_taints_alone: Final = True

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        strategy = args.scoring_strategy
        self._resources = tuple(resource.name for resource in strategy.resources)
        self._weights = np.array([resource.weight for resource in strategy.resources], np.int64)
        self._scorer, self._plain_scorer = _SCORERS[strategy.type](args)
        self._plain_weights: Sequence[int] = self._weights.tolist()
        self._scores_pod_level = args.fix_upstream_bugs

    def key(self, pod: Pod) -> Requests:
        return Requests(
            filtered=self._filtered(pod),
            scored=score_requests(pod, self._resources, pod_level=self._scores_pod_level),
        )

    def prepare(self, pod: Pod) -> Prepared:
        requests = self.key(pod)
        there = np.full((_BASIC, 1), _NOT_ASKED, np.int64)
        for name, amount in requests.filtered:
            if name in BASIC_RESOURCES:
                there[BASIC_RESOURCES.index(name)] = amount
        free = there.copy()
        free[PODS] = 1
        others = tuple(request for request in requests.filtered if request[0] not in BASIC_RESOURCES)
        amounts = np.array(requests.scored, np.int64)[:, None]
        return Prepared(requests.filtered, requests.scored, free, tuple(free[:, 0].tolist()), there, others, amounts)

    def filter(self, state: Prepared, rows: Rows) -> CodeColumn:
        """Shape (rows,), uint8."""
        allocatable, requested = rows.allocatable, rows.requested
        basic = allocatable[:_BASIC]
        if rows.n == 1 and not state.others:
            # One row in plain integers takes a quarter of the time, and mostly there is enough for all keys.
            for offered, taken, most in zip(basic[:, 0].tolist(), requested[:_BASIC, 0].tolist(), state.most, strict=True):
                if most > offered - taken:
                    break
            else:
                return np.zeros(state.free.shape[1], np.uint8)
        codes = coded(np.logical_or.reduce(state.free > basic - requested[:_BASIC]), Code.UNSCHEDULABLE)
        if np.count_nonzero(codes):
            # What is not there at all is not free either: where nothing is short that need not be asked.
            codes |= coded(np.logical_or.reduce(state.there > basic), Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
        for name, amount in state.others:
            place = rows.resource(name)
            if place is None:
                # A resource that no node offers exceeds every node's allocatable.
                codes[np.greater(amount, 0)] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            else:
                codes |= coded(amount > allocatable[place] - requested[place], Code.UNSCHEDULABLE)
                codes |= coded(amount > allocatable[place], Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
        return codes

    def filter_plain(self, state: Prepared, row: PlainRow) -> int:
        allocatable, requested = row.allocatable, row.requested
        code = 0
        for offered, taken, amount in zip(allocatable, requested, state.most, strict=False):
            if amount > offered - taken:
                missing = [one > there for one, there in zip(state.there[:, 0].tolist(), allocatable, strict=False)]
                code = _UNRESOLVABLE if any(missing) else _SHORT
                break
        for name, asked in state.others:
            # What stands for many keys is never asked about so.
            amount = int(asked)
            place = row.resources.get(name)
            if place is None or amount > allocatable[place]:
                return _UNRESOLVABLE
            if amount > allocatable[place] - requested[place]:
                code = code or _SHORT
        return code

    def stack(self, states: Sequence[Prepared]) -> Prepared | None:
        """Requests side by side in place of rows."""
        if self._resources != _CPU_AND_MEMORY:
            return None
        if len(states) == 1:
            return states[0]
        names = dict.fromkeys([name for state in states if state.others for name, _ in state.others])
        amounts = [dict(state.others) for state in states] if names else []
        free = np.concatenate([state.free for state in states], axis=1)
        return Prepared(
            filtered=(),
            scored=(),
            free=free,
            most=tuple(free.max(axis=1).tolist()),
            there=np.concatenate([state.there for state in states], axis=1),
            others=tuple((name, np.hstack([each.get(name, _NOT_ASKED) for each in amounts])) for name in names),
            amounts=np.concatenate([state.amounts for state in states], axis=1),
        )

    def reasons(self, state: Prepared, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:  # noqa: ARG002
        found: list[tuple[str, BoolColumn]] = [(REASON_PODS, rows.requested[PODS] + 1 > rows.allocatable[PODS])]
        for name, amount in state.filtered:
            place = rows.resource(name)
            short = np.ones(rows.n, np.bool_) if place is None else amount > rows.allocatable[place] - rows.requested[place]
            found.append((f"Insufficient {name}", short))
        return found

    def needs(self, state: Prepared) -> Sequence[RoomNeed] | None:
        """The same in numbers. A node without any room for pods may get some; what it lacks of a request it lacks for good."""
        asked = [RoomNeed(name, amount, f"Insufficient {name}", True) for name, amount in state.filtered]
        if len(asked) > NEEDS_MAX or any(need.resource == _PODS for need in asked):
            return None
        return RoomNeed(_PODS, 1, REASON_PODS, False), *asked

    def score(self, state: Prepared, rows: Rows) -> ScoreColumn:
        """Shape (rows,), int64, 0..100."""
        if self._resources == _CPU_AND_MEMORY:
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

    def score_plain(self, state: Prepared, row: PlainRow) -> int | None:
        """0..100. None: only columns can say it."""
        if self._resources != _CPU_AND_MEMORY:
            return None
        (cpu, memory), (cpu_taken, memory_taken) = state.scored, row.non_zero_requested
        used = cpu + cpu_taken, memory + memory_taken
        return self._plain_scorer(used, row.allocatable[: MEMORY + 1], self._plain_weights)

    def _taken(self, name: str, place: int, rows: Rows) -> ScoreColumn:
        """What bound pods count for. Shape (rows,)."""
        non_zero = _NON_ZERO_PLACES.get(name)
        taken: ScoreColumn = rows.requested[place] if non_zero is None else rows.non_zero_requested[non_zero]
        return taken

    def _filtered(self, pod: Pod) -> tuple[tuple[str, int], ...]:
        """What must be free for the pod, by name; amounts are above zero."""
        return tuple(sorted((name, amount) for name, amount in pod_requests(pod).items() if amount and self._is_filtered(name)))

    def _is_filtered(self, name: str) -> bool:
        if name in BASIC_RESOURCES:
            return True
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

    def _after_pod(self, pod: Pod) -> hints.AfterPod:
        return hints.AfterPod(frozenset(name for name, _ in self._filtered(pod)), pod.metadata.uid)

    def _after_node(self, pod: Pod) -> hints.AfterNode:
        return hints.AfterNode(((_PODS, 1), *self._filtered(pod)))


_CPU_AND_MEMORY: Final = ("cpu", "memory")
"""The default, whose places in all tables are the first two."""


def _ratio_of(args: NodeResourcesFitArgs) -> tuple[ResourceScorer, PlainScorer]:
    return requested_to_capacity_ratio(args.scoring_strategy.shape)


_SCORERS: Final[Mapping[ScoringStrategyType, Callable[[NodeResourcesFitArgs], tuple[ResourceScorer, PlainScorer]]]] = {
    ScoringStrategyType.LEAST_ALLOCATED: lambda args: (least_allocated, least_allocated_plain),  # noqa: ARG005
    ScoringStrategyType.MOST_ALLOCATED: lambda args: (most_allocated, most_allocated_plain),  # noqa: ARG005
    ScoringStrategyType.REQUESTED_TO_CAPACITY_RATIO: _ratio_of,
}
