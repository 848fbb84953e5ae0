"""TaintToleration: keep pods off nodes whose taints they do not tolerate, and prefer nodes without such taints.

Filter: a NoSchedule or NoExecute taint that no toleration covers rejects the node; the reason names the first such taint. No
preemption can help, so the code is UNSCHEDULABLE_AND_UNRESOLVABLE.
Score: the number of PreferNoSchedule taints that no toleration covers; normalised so that the fewest win. Never skipped: where
nobody has such taints, all nodes get 100.

Source: node.spec.taints, pod.spec.tolerations (core/v1), kube-scheduler 1.34.
Cost: one look at each set of taints that occurs among the rows, then one gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rayched.api.tolerations import EQUAL, PREFER_NO_SCHEDULE, first_untolerated, tolerated
from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.plugin import FilterPlugin, NormalizingPlugin, PodPart, PodReadingPlugin, RegisteringPlugin
from rayched.framework.queueing_hints import Hint, Look, PreparedHint, ReadsNoLabels, Registration, queue_if
from rayched.framework.status import Code
from rayched.plugins.normalizing import fewest_first
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Node, Pod, Taint, Toleration

TolerationKey = tuple[tuple[str, str, str, str], ...]
Tolerations = tuple[Toleration, ...]


class TaintToleration(FilterPlugin, NormalizingPlugin, PodReadingPlugin, RegisteringPlugin):
    name: Final = names.TAINT_TOLERATION
    reads: Final = Log.TAINTS
    reads_pod: Final = PodPart.LEAST

    def key(self, pod: Pod) -> TolerationKey:
        """The tolerations, each once, in any order."""
        return tuple(sorted({(t.key, t.operator or EQUAL, t.value, t.effect) for t in pod.spec.tolerations}))

    def prepare(self, pod: Pod) -> Tolerations:
        return tuple(pod.spec.tolerations)

    def filter(self, state: Tolerations, rows: Rows) -> CodeColumn:
        """Shape (rows,), uint8."""
        codes = np.zeros(len(rows.snapshot.taint_sets) + 1, np.uint8)
        for number, taints in _present(rows):
            if first_untolerated(state, taints) is not None:
                codes[number] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return codes[rows.taint_set]

    def reasons(self, state: Tolerations, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:  # noqa: ARG002
        sets_of: dict[str, list[int]] = {}
        for number, taints in _present(rows):
            taint = first_untolerated(state, taints)
            if taint is not None:
                sets_of.setdefault(f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}", []).append(number)
        return [(reason, np.isin(rows.taint_set, numbers)) for reason, numbers in sets_of.items()]

    def score(self, state: Tolerations, rows: Rows) -> ScoreColumn:
        """Taints that the pod would rather avoid. Shape (rows,), int64."""
        counts = np.zeros(len(rows.snapshot.taint_sets) + 1, np.int64)
        for number, taints in _present(rows):
            counts[number] = sum(t.effect == PREFER_NO_SCHEDULE and not tolerated(state, t) for t in taints)
        return counts[rows.taint_set]

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:  # noqa: ARG002
        return fewest_first(raw, high)

    def registrations(self) -> Sequence[Registration]:
        return (
            Registration(
                ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), PreparedHint(_TaintNodeHint.of, _nodes)
            ),
            Registration(
                ClusterEvent(Resource.POD, Action.UPDATE_POD_TOLERATION), PreparedHint(_TaintTolerationsHint.of, _tolerations)
            ),
        )


def _present(rows: Rows) -> list[tuple[int, tuple[Taint, ...]]]:
    """The sets of taints among the rows, with their numbers. Rows that are no nodes have number -1, the last slot of a table."""
    sets, column = rows.snapshot.taint_sets, rows.taint_set
    numbers = np.unique(column).tolist() if len(column) > 1 else column.tolist()
    return [(number, sets[number]) for number in numbers if number >= 0]


@dataclass(frozen=True, slots=True)
class _TaintNodeHint(ReadsNoLabels):
    """A node helps when the pod tolerates all its taints and did not before."""

    tolerations: tuple[bytes, ...]
    """Those of `own`, as messages are no keys."""
    own: tuple[Toleration, ...] = field(compare=False)

    @classmethod
    def of(cls, pod: Pod) -> _TaintNodeHint:
        own = tuple(pod.spec.tolerations)
        return cls(tuple(one.SerializeToString() for one in own), own)

    def __call__(self, look: Look) -> Hint:
        change = look.rest
        assert isinstance(change, _Taints)
        return queue_if(self._tolerates(change.after) and (change.before is None or not self._tolerates(change.before)))

    def _tolerates(self, taints: tuple[Taint, ...]) -> bool:
        return first_untolerated(self.own, taints) is None


@dataclass(frozen=True, slots=True)
class _Taints:
    """Of a node, before and after."""

    key: tuple[tuple[bytes, ...] | None, tuple[bytes, ...]]
    before: tuple[Taint, ...] | None = field(compare=False)
    after: tuple[Taint, ...] = field(compare=False)


def _nodes(old: Node | None, new: Node) -> Look:
    before, after = None if old is None else tuple(old.spec.taints), tuple(new.spec.taints)
    return Look(_Taints((None if before is None else _serialised(before), _serialised(after)), before, after))


def _serialised(taints: tuple[Taint, ...]) -> tuple[bytes, ...]:
    return tuple(taint.SerializeToString() for taint in taints)


@dataclass(frozen=True, slots=True)
class _TaintTolerationsHint(ReadsNoLabels):
    """The pod's own tolerations help; they can only be added."""

    uid: str

    @classmethod
    def of(cls, pod: Pod) -> _TaintTolerationsHint:
        return cls(pod.metadata.uid)

    def __call__(self, look: Look) -> Hint:
        return queue_if(look.rest == (False, self.uid))


def _tolerations(old: Pod, new: Pod) -> Look:  # noqa: ARG001 - tolerations can only be added
    """Whether the pod has a node, and the uid of one that has none."""
    is_placed = bool(new.spec.node_name)
    return Look((is_placed, "" if is_placed else new.metadata.uid))
