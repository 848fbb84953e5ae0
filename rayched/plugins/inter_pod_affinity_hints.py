"""Queueing hints of InterPodAffinity: which pods and nodes can help a pod whose required terms no node met.

* Assigned pod: its coming, or its new labels, help when it matches all terms of affinity at once, as one pod must match them
  all; its going, or its new labels, when it matched all terms of anti-affinity.
* Node: helps when it has, or got another value of, the topology key of an affinity term, or lost or changed that of a term of
  anti-affinity. Every new node helps a pod with anti-affinity.
* Namespace: its labels help a pod with a term that selects namespaces.

Known from 1.34 and kept: a selector of namespaces is matched against no labels, and of several terms of anti-affinity all have
to be matched; pods that wait for more than that are tried again when their time in the unschedulable pool is over.
Source: isSchedulableAfterPodChange, isSchedulableAfterNodeChange of kube-scheduler 1.34. Namespaces are not registered for there.
Cost: compiling the pod's terms, once for each event that a template is asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.api.selectors import LabelSelectorMatcher
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import Hint, Registration, queue_if
from rayched.v1.core_pb2 import Namespace, Node, Pod, PodAffinityTerm

_NO_LABELS: Final[dict[str, str]] = {}


def registrations() -> Sequence[Registration]:
    """The events of the plugin, whatever its arguments."""
    return (
        Registration(ClusterEvent(Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE), _after_pod),
        Registration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), _after_node),
        Registration(ClusterEvent(Resource.NAMESPACE, Action.ADD | Action.UPDATE), _after_namespace),
    )


@dataclass(frozen=True, slots=True)
class _Term:
    """Which pods one required term speaks of, as far as it can be told without the namespaces' labels."""

    namespaces: frozenset[str]
    any_namespace: bool
    selector: LabelSelectorMatcher

    def matches(self, pod: Pod) -> bool:
        namespace = pod.metadata.namespace
        return (self.any_namespace or namespace in self.namespaces) and self.selector.matches(pod.metadata.labels)


def _after_pod(pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
    if any(other is not None and not other.spec.node_name for other in (old, new)):
        # Nobody's affinity looks at pods without a node; the pending pod's own labels are no term of its own.
        return Hint.SKIP
    wanted = [_compiled(term, pod) for term in _affinity(pod)]
    if new is not None and _all_match(wanted, new) and not (old is not None and _all_match(wanted, old)):
        return Hint.QUEUE
    unwanted = [_compiled(term, pod) for term in _anti_affinity(pod)]
    return queue_if(old is not None and _all_match(unwanted, old) and not (new is not None and _all_match(unwanted, new)))


def _after_node(pod: Pod, old: Node | None, new: Node) -> Hint:
    before = _NO_LABELS if old is None else old.metadata.labels
    after = new.metadata.labels
    for term in _affinity(pod):
        if term.topology_key in after and after[term.topology_key] != before.get(term.topology_key):
            return Hint.QUEUE
    anti_affinity = _anti_affinity(pod)
    if old is None:
        return queue_if(bool(anti_affinity))
    return queue_if(
        any(term.topology_key in before and before[term.topology_key] != after.get(term.topology_key) for term in anti_affinity)
    )


def _after_namespace(pod: Pod, old: Namespace | None, new: Namespace) -> Hint:  # noqa: ARG001 - any labels may match
    return queue_if(any(_has_requirements(term) for term in (*_affinity(pod), *_anti_affinity(pod))))


def _affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    return pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution


def _anti_affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    return pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution


def _compiled(term: PodAffinityTerm, pod: Pod) -> _Term:
    selects = term.HasField("namespace_selector")
    own = (pod.metadata.namespace,) if not selects and not term.namespaces else ()
    return _Term(
        namespaces=frozenset((*term.namespaces, *own)),
        any_namespace=selects and LabelSelectorMatcher(term.namespace_selector).matches(_NO_LABELS),
        selector=LabelSelectorMatcher(term.label_selector if term.HasField("label_selector") else None),
    )


def _has_requirements(term: PodAffinityTerm) -> bool:
    return term.HasField("namespace_selector") and not LabelSelectorMatcher(term.namespace_selector).empty


def _all_match(terms: Iterable[_Term], pod: Pod) -> bool:
    """Whether there are terms and the pod matches each."""
    found = False
    for term in terms:
        found = True
        if not term.matches(pod):
            return False
    return found
