"""The hard constraints of a pod on a node, judged again for the auditor alone: simple, slow, nothing shared with the scheduler.

`against_node` needs the pod and the node only. `against_pods` looks at every pod that has a node: required affinity, required
anti-affinity in both directions, and topology spread with DoNotSchedule. Each answers None, or in words what is broken.

What a configuration adds to pods (default spread constraints, added node affinity) is not known here.

Source: Kubernetes' documentation of scheduling gates, node affinity, taints, inter-pod affinity and topology spread constraints.
Cost: O(pods) for each constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rayched.audit.matching import (
    Labels,
    node_is_selected,
    own_term_means,
    selector_matches,
    their_term_means,
    tolerates,
    untolerated,
)
from rayched.audit.view import AuditView, Resident
from rayched.v1.core_pb2 import Node, Pod, PodAffinityTerm, TopologySpreadConstraint


def against_node(pod: Pod, node: Node) -> str | None:
    """What of the node alone forbids the pod there."""
    if pod.spec.scheduling_gates:
        return f"it has the scheduling gate {pod.spec.scheduling_gates[0].name}"
    if not node_is_selected(pod, node):
        return "its node selector or required node affinity does not take the node"
    taint = untolerated(pod, node)
    if taint is not None:
        return f"it does not tolerate {taint.key}={taint.value}:{taint.effect}"
    return None


def against_pods(pod: Pod, node: Node, view: AuditView) -> str | None:
    """What of the other pods forbids the pod there. The pod itself is left out of them."""
    if words := _against_their_anti_affinity(pod, node, view):
        return words
    if not concerns_pods(pod):
        return None
    others = [resident for uid, resident in view.residents.items() if uid != pod.metadata.uid]
    return (
        _against_own_anti_affinity(pod, node, others, view)
        or _against_affinity(pod, node, others, view)
        or _against_spread(pod, node, others, view)
    )


def concerns_pods(pod: Pod) -> bool:
    """Whether the pod itself has constraints on other pods."""
    affinity = pod.spec.affinity
    return bool(
        affinity.pod_affinity.required_during_scheduling_ignored_during_execution
        or affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
        or any(one.when_unsatisfiable == "DoNotSchedule" for one in pod.spec.topology_spread_constraints)
    )


def _against_their_anti_affinity(pod: Pod, node: Node, view: AuditView) -> str | None:
    for uid, other in view.repelling.items():
        for term in other.repels if uid != pod.metadata.uid else ():
            if not their_term_means(term, other.pod, pod, view.namespaces):
                continue
            if _together(term.topology_key, node, view.nodes.get(other.node)):
                return f"{other.name} on {other.node} wants no such pod in its {term.topology_key}"
    return None


def _against_own_anti_affinity(pod: Pod, node: Node, others: Iterable[Resident], view: AuditView) -> str | None:
    for term in pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution:
        for other in _meant(term, pod, others, view):
            if _together(term.topology_key, node, view.nodes.get(other.node)):
                return f"it does not want {other.name} in its {term.topology_key}, which is on {other.node}"
    return None


def _against_affinity(pod: Pod, node: Node, others: list[Resident], view: AuditView) -> str | None:
    terms = list(pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution)
    if not terms:
        return None
    if missing := [term.topology_key for term in terms if term.topology_key not in node.metadata.labels]:
        return f"the node has no {missing[0]}"
    # Only a pod that all terms mean counts, for each of them.
    meant = [other for other in others if all(_means(term, pod, other, view) for term in terms)]
    located = [
        other
        for other in meant
        if (theirs := view.nodes.get(other.node)) is not None and any(t.topology_key in theirs.metadata.labels for t in terms)
    ]
    if not located and all(_means_itself(term, pod, view) for term in terms):
        return None
    for term in terms:
        if not any(_together(term.topology_key, node, view.nodes.get(other.node)) for other in located):
            return f"no pod that it wants is in the node's {term.topology_key}"
    return None


def _against_spread(pod: Pod, node: Node, others: Iterable[Resident], view: AuditView) -> str | None:
    constraints = [one for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"]
    for constraint in constraints:
        if constraint.topology_key not in node.metadata.labels:
            return f"the node has no {constraint.topology_key}"
    keys = [constraint.topology_key for constraint in constraints]
    for constraint in constraints:
        counts: dict[str, int] = {}
        eligible: dict[str, str] = {}
        for name, candidate in view.nodes.items():
            labels = candidate.metadata.labels
            if all(key in labels for key in keys) and _is_eligible(constraint, pod, candidate):
                eligible[name] = labels[constraint.topology_key]
                counts.setdefault(eligible[name], 0)
        for other in () if _spreads_over_all(constraint, pod) else others:
            if other.node in eligible and not other.deleting and other.namespace == pod.metadata.namespace:
                counts[eligible[other.node]] += _spreads_over(constraint, pod, other.labels)
        smallest = min(counts.values(), default=0)
        if constraint.HasField("min_domains") and len(counts) < constraint.min_domains:
            smallest = 0
        here = counts.get(node.metadata.labels[constraint.topology_key], 0)
        own = _spreads_over(constraint, pod, pod.metadata.labels)
        if here + own - smallest > constraint.max_skew:
            return (
                f"{here} such pods are in its {constraint.topology_key} and {smallest} in the emptiest one, "
                f"allowed is a skew of {constraint.max_skew}"
            )
    return None


def _is_eligible(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    if constraint.node_affinity_policy != "Ignore" and not node_is_selected(pod, node):
        return False
    if constraint.node_taints_policy != "Honor":
        return True
    hard = (taint for taint in node.spec.taints if taint.effect in ("NoSchedule", "NoExecute"))
    return all(tolerates(pod.spec.tolerations, taint) for taint in hard)


def _spreads_over(constraint: TopologySpreadConstraint, pod: Pod, labels: Labels) -> bool:
    own = pod.metadata.labels
    wanted = {key: own[key] for key in constraint.match_label_keys if key in own}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    if not constraint.HasField("label_selector"):
        return bool(wanted)
    return selector_matches(constraint.label_selector, labels)


def _spreads_over_all(constraint: TopologySpreadConstraint, pod: Pod) -> bool:
    """A selector that requires nothing means the pod itself, and counts nobody."""
    selector = constraint.label_selector
    keyed = any(key in pod.metadata.labels for key in constraint.match_label_keys)
    return not (selector.match_labels or selector.match_expressions or keyed)


def _meant(term: PodAffinityTerm, pod: Pod, others: Iterable[Resident], view: AuditView) -> Iterator[Resident]:
    return (other for other in others if _means(term, pod, other, view))


def _means(term: PodAffinityTerm, pod: Pod, other: Resident, view: AuditView) -> bool:
    return own_term_means(term, pod, other.namespace, other.labels, view.namespaces)


def _means_itself(term: PodAffinityTerm, pod: Pod, view: AuditView) -> bool:
    return own_term_means(term, pod, pod.metadata.namespace, pod.metadata.labels, view.namespaces)


def _together(key: str, node: Node, other: Node | None) -> bool:
    """Both are in the same domain."""
    if other is None:
        return False
    here = node.metadata.labels.get(key)
    return here is not None and here == other.metadata.labels.get(key)
