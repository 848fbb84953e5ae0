"""Labels, selectors, tolerations: Kubernetes' rules for what matches what, written down once more for the auditor alone.

Slow and literal on purpose. Source: Kubernetes' API documentation of LabelSelector, NodeSelector, Toleration and PodAffinityTerm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rayched.v1.core_pb2 import Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, Taint, Toleration
from rayched.v1.meta_pb2 import LabelSelector

Labels = Mapping[str, str]

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What a cordoned node is treated like."""
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
"""A term that asks for anything else takes no node."""
_INT64_MAX = 2**63 - 1


def selector_matches(selector: LabelSelector, labels: Labels) -> bool:
    """A selector without any requirement matches everything."""
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    for requirement in selector.match_expressions:
        there = requirement.key in labels
        listed = there and labels[requirement.key] in requirement.values
        match requirement.operator:
            case "In":
                holds = listed
            case "NotIn":
                holds = not listed
            case "Exists":
                holds = there
            case "DoesNotExist":
                holds = not there
            case _:
                holds = False
        if not holds:
            return False
    return True


def node_is_selected(pod: Pod, node: Node) -> bool:
    """The pod's node selector and its required node affinity take the node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity
    if not affinity.HasField("required_during_scheduling_ignored_during_execution"):
        return True
    terms = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    return any(_term_takes(term, node) for term in terms)


def _term_takes(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_is_valid(one) and _holds(one, node.metadata.labels) for one in term.match_expressions) and all(
        one.operator in ("In", "NotIn") and len(one.values) == 1 and _holds(one, fields) for one in term.match_fields
    )


def _is_valid(requirement: NodeSelectorRequirement) -> bool:
    if not all(map(_LABEL_VALUE.fullmatch, requirement.values)):
        return False
    if requirement.operator in ("Exists", "DoesNotExist"):
        return not requirement.values
    return bool(requirement.values)


def _holds(requirement: NodeSelectorRequirement, labels: Labels) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or len(requirement.values) != 1:
                return False
            try:
                found, bound = int(value), int(requirement.values[0])
            except ValueError:
                return False
            if max(abs(found), abs(bound)) > _INT64_MAX:
                return False
            return found > bound if requirement.operator == "Gt" else found < bound
        case _:
            return False


def untolerated(pod: Pod, node: Node) -> Taint | None:
    """The first taint that keeps the pod off the node."""
    taints = [*node.spec.taints, *([UNSCHEDULABLE] if node.spec.unschedulable else [])]
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerates(pod.spec.tolerations, taint):
            return taint
    return None


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    for one in tolerations:
        if (one.effect and one.effect != taint.effect) or (one.key and one.key != taint.key):
            continue
        if one.operator == "Exists" or (one.operator in ("", "Equal") and one.value == taint.value):
            return True
    return False


def own_term_means(term: PodAffinityTerm, owner: Pod, namespace: str, labels: Labels, namespaces: Mapping[str, Labels]) -> bool:
    """Whether a term of the pod that is judged means a pod of that namespace with those labels.

    A namespace selector selects namespaces that exist. In 1.34 one that takes a namespace without labels means all namespaces.
    """
    if term.HasField("namespace_selector"):
        here = namespaces.get(namespace)
        selected = here is not None and selector_matches(term.namespace_selector, here)
        in_reach = namespace in term.namespaces or selected or selector_matches(term.namespace_selector, {})
    else:
        in_reach = namespace in (term.namespaces or [owner.metadata.namespace])
    return in_reach and _labels_are_meant(term, owner, labels)


def their_term_means(term: PodAffinityTerm, owner: Pod, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
    """Whether a term of a pod that is there already means the pod that is judged."""
    namespace = pod.metadata.namespace
    if term.namespaces or term.HasField("namespace_selector"):
        here = namespaces.get(namespace, {})
        selected = term.HasField("namespace_selector") and selector_matches(term.namespace_selector, here)
        in_reach = namespace in term.namespaces or selected
    else:
        in_reach = namespace == owner.metadata.namespace
    return in_reach and _labels_are_meant(term, owner, pod.metadata.labels)


def _labels_are_meant(term: PodAffinityTerm, owner: Pod, labels: Labels) -> bool:
    own = owner.metadata.labels
    if any(key in own and labels.get(key) != own[key] for key in term.match_label_keys):
        return False
    if any(key in own and labels.get(key) == own[key] for key in term.mismatch_label_keys):
        return False
    return term.HasField("label_selector") and selector_matches(term.label_selector, labels)
