"""Queueing hints of NodeResourcesFit: which pods and nodes give room to a pod that found too little.

* Pod: any that goes helps, as it counts as one; a smaller one where it takes less of what the pod asks for.
* Node: helps when the pod would fit it empty, and it is new or offers more of what the pod asks for, or of pods.

Source: isSchedulableAfterPodEvent, isSchedulableAfterNodeChange of kube-scheduler 1.34.
Cost: a comparison of numbers; amounts are read once a change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rayched.api import quantity
from rayched.api.resources import accounted_requests
from rayched.framework.queueing_hints import Hint, Look, ReadsNoLabels, queue_if
from rayched.v1.core_pb2 import Node, Pod

Amounts: TypeAlias = frozenset[tuple[str, int]]
"""By name of the resource."""


@dataclass(frozen=True, slots=True)
class _PodChange:
    is_gone: bool
    is_placed: bool
    """As it is now; one that is gone: it had a node, or was nominated to one."""
    uid: str
    """Of a pod without a node."""
    less: frozenset[str]
    """What it takes less of than before."""


@dataclass(frozen=True, slots=True)
class FitPodHint(ReadsNoLabels):
    wanted: frozenset[str]
    """The resources that the pod asks for."""
    uid: str

    def __call__(self, look: Look) -> Hint:
        change = look.rest
        assert isinstance(change, _PodChange)
        if change.is_gone:
            return queue_if(change.is_placed)
        if not change.is_placed:
            return queue_if(change.uid == self.uid)
        return queue_if(not self.wanted.isdisjoint(change.less))


def pods(old: Pod, new: Pod | None) -> Look:
    if new is None:
        return Look(_PodChange(True, bool(old.spec.node_name or old.status.nominated_node_name), "", frozenset()))
    if not new.spec.node_name:
        return Look(_PodChange(False, False, new.metadata.uid, frozenset()))
    before, after = accounted_requests(old), accounted_requests(new)
    less = frozenset(name for name, amount in before.items() if amount > after.get(name, 0))
    return Look(_PodChange(False, True, "", less))


@dataclass(frozen=True, slots=True)
class _NodeChange:
    before: Amounts | None
    after: Amounts


@dataclass(frozen=True, slots=True)
class FitNodeHint(ReadsNoLabels):
    wanted: tuple[tuple[str, int], ...]
    """What must be there, of pods too: milli-CPU, bytes or counts."""

    def __call__(self, look: Look) -> Hint:
        change = look.rest
        assert isinstance(change, _NodeChange)
        after = dict(change.after)
        if any(amount > after.get(name, 0) for name, amount in self.wanted):
            return Hint.SKIP
        if change.before is None:
            return Hint.QUEUE
        before = dict(change.before)
        return queue_if(any(after[name] > before.get(name, 0) for name, _ in self.wanted))


def nodes(old: Node | None, new: Node) -> Look:
    return Look(_NodeChange(None if old is None else _allocatable(old), _allocatable(new)))


def _allocatable(node: Node) -> Amounts:
    """Milli-CPU, bytes or counts."""
    return frozenset(
        (name, quantity.milli_value(amount.string) if name == "cpu" else quantity.value(amount.string))
        for name, amount in node.status.allocatable.items()
    )
