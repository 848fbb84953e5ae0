"""Queueing hints of InterPodAffinity: which pods and nodes can help a pod whose required terms no node met.

* Assigned pod: its coming, or its new labels, help when it matches all terms of affinity at once, as one pod must match them
  all; its going, or its new labels, when it matched all terms of anti-affinity.
* Node: helps when it has, or got another value of, the topology key of an affinity term, or lost or changed that of a term of
  anti-affinity. Every new node helps a pod with anti-affinity.
* Namespace: its labels help a pod with a term that selects namespaces.

Known from 1.34 and kept: a selector of namespaces is matched against no labels, and of several terms of anti-affinity all have
to be matched; pods that wait for more than that are tried again when their time in the unschedulable pool is over.
Source: isSchedulableAfterPodChange, isSchedulableAfterNodeChange of kube-scheduler 1.34. Namespaces are not registered for there.
Cost: compiling the pod's terms once; then a comparison of labels for each term that may match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rayched.api.selectors import LabelSelectorMatcher
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import (
    ANYTHING,
    Handle,
    Hint,
    Labels,
    Look,
    PreparedHint,
    Registration,
    Way,
    handles_of,
    queue_if,
)
from rayched.snapshot.pod_selection import PodSelector, conditions_of
from rayched.v1.core_pb2 import Namespace, Node, Pod, PodAffinityTerm


def registrations() -> Sequence[Registration]:
    """The events of the plugin, whatever its arguments."""
    return (
        Registration(
            ClusterEvent(Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE),
            PreparedHint(_AffinityPodHint.of, _pods),
        ),
        Registration(
            ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), PreparedHint(_AffinityNodeHint.of, _nodes)
        ),
        Registration(ClusterEvent(Resource.NAMESPACE, Action.ADD | Action.UPDATE), PreparedHint(_AfterNamespace.of, _namespaces)),
    )


# ---------------------------------------------------------------------------------------------------------------- pods


@dataclass(frozen=True, slots=True)
class _AffinityPodHint:
    """Which pods the required terms speak of, as far as it can be told without the namespaces' labels."""

    wanted: tuple[PodSelector, ...]
    unwanted: tuple[PodSelector, ...]

    @classmethod
    def of(cls, pod: Pod) -> _AffinityPodHint:
        wanted, unwanted = (
            tuple(_selector(term, pod.metadata.namespace) for term in terms) for terms in (_affinity(pod), _anti_affinity(pod))
        )
        return cls(wanted, unwanted)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(one.key for term in (*self.wanted, *self.unwanted) for one in term.conditions or ())

    @property
    def ways(self) -> tuple[Way, ...]:
        possible = [
            terms for terms in (self.wanted, self.unwanted) if terms and all(term.conditions is not None for term in terms)
        ]
        return tuple(
            tuple(handles for term in terms for handles in handles_of(term.conditions or (), term.namespaces))
            for terms in possible
        )

    def __call__(self, look: Look) -> Hint:
        if not look.rest:
            return Hint.SKIP
        namespace, before, after = look.namespace, look.before, look.after
        if _all_match(self.wanted, namespace, after) and not _all_match(self.wanted, namespace, before):
            return Hint.QUEUE
        return queue_if(_all_match(self.unwanted, namespace, before) and not _all_match(self.unwanted, namespace, after))


def _pods(old: Pod | None, new: Pod | None) -> Look:
    """Nobody's affinity looks at pods without a node; the pending pod's own labels are no term of its own."""
    pods = [pod for pod in (old, new) if pod is not None]
    return Look(
        rest=all(bool(pod.spec.node_name) for pod in pods),
        before=None if old is None else dict(old.metadata.labels),
        after=None if new is None else dict(new.metadata.labels),
        namespace=pods[0].metadata.namespace if pods else "",
    )


def _all_match(terms: Iterable[PodSelector], namespace: str, labels: Labels | None) -> bool:
    """Whether there are terms, and a pod that has the labels and matches each."""
    if labels is None:
        return False
    found = False
    for term in terms:
        found = True
        if not term.matches(namespace, labels):
            return False
    return found


def _selector(term: PodAffinityTerm, own_namespace: str) -> PodSelector:
    selects = term.HasField("namespace_selector")
    own = (own_namespace,) if not selects and not term.namespaces else ()
    any_namespace = selects and LabelSelectorMatcher(term.namespace_selector).matches({})
    conditions = conditions_of(term.label_selector if term.HasField("label_selector") else None)
    return PodSelector(None if any_namespace else frozenset((*term.namespaces, *own)), conditions)


# --------------------------------------------------------------------------------------------------------------- nodes


@dataclass(frozen=True, slots=True)
class _AffinityNodeHint:
    """The topology keys of the required terms."""

    wanted: frozenset[str]
    unwanted: frozenset[str]

    @classmethod
    def of(cls, pod: Pod) -> _AffinityNodeHint:
        wanted, unwanted = (frozenset(term.topology_key for term in terms) for terms in (_affinity(pod), _anti_affinity(pod)))
        return cls(wanted, unwanted)

    @property
    def keys(self) -> frozenset[str]:
        return self.wanted | self.unwanted

    @property
    def ways(self) -> tuple[Way, ...]:
        if self.unwanted:
            return ((ANYTHING,),)
        return tuple((frozenset[Handle]({(None, key)}),) for key in self.wanted)

    def __call__(self, look: Look) -> Hint:
        before, after = look.before or {}, look.after or {}
        if any(key in after and after[key] != before.get(key) for key in self.wanted):
            return Hint.QUEUE
        if look.before is None:
            return queue_if(bool(self.unwanted))
        return queue_if(any(key in before and before[key] != after.get(key) for key in self.unwanted))


def _nodes(old: Node | None, new: Node) -> Look:
    return Look(before=None if old is None else dict(old.metadata.labels), after=dict(new.metadata.labels))


# ---------------------------------------------------------------------------------------------------------- namespaces


@dataclass(frozen=True, slots=True)
class _AfterNamespace:
    """Whether any term selects namespaces by their labels: then any labels may match."""

    selects: bool

    @classmethod
    def of(cls, pod: Pod) -> _AfterNamespace:
        return cls(any(_has_requirements(term) for term in (*_affinity(pod), *_anti_affinity(pod))))

    @property
    def keys(self) -> frozenset[str]:
        return frozenset()

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((ANYTHING,),) if self.selects else ()

    def __call__(self, look: Look) -> Hint:  # noqa: ARG002 - any labels may match
        return queue_if(self.selects)


def _namespaces(old: Namespace | None, new: Namespace) -> Look:  # noqa: ARG001 - any labels may match
    return Look()


def _has_requirements(term: PodAffinityTerm) -> bool:
    return term.HasField("namespace_selector") and not LabelSelectorMatcher(term.namespace_selector).empty


def _affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    return pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution


def _anti_affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    return pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
