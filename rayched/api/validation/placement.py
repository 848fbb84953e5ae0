"""Rules for where a pod wants to run: affinity, spread constraints, tolerations, scheduling gates.

Differs from Kubernetes: the integer that Gt and Lt need and the grammar of values are checked in preferred node affinity too
(there a bad one ends every attempt to schedule the pod with an error); numbers of terms, expressions and values are bounded.

Source: ValidatePodSpec and what it calls, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from rayched.api.errors import quoted
from rayched.api.names import label_fault, label_value_fault, qualified_fault, subdomain_fault
from rayched.api.selectors import NAME_FIELD, NODE_OPERATORS, int64
from rayched.api.tolerations import EFFECTS, EQUAL, EXISTS, NO_EXECUTE
from rayched.api.validation import limits
from rayched.api.validation.faults import Faults
from rayched.api.validation.metadata import check_label_selector, check_label_values, check_value_count
from rayched.v1.core_pb2 import (
    Affinity,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodSchedulingGate,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)
from rayched.v1.meta_pb2 import LabelSelector

_NODE_OPERATORS: Final = tuple(operator.value for operator in NODE_OPERATORS)
_DO_NOT_SCHEDULE: Final = "DoNotSchedule"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def check_placement(spec: PodSpec, path: str, faults: Faults) -> None:
    """All that a pod's spec says about the node it wants; `path` is the spec's."""
    if spec.HasField("affinity"):
        check_affinity(spec.affinity, f"{path}.affinity", faults)
    if spec.tolerations:
        check_tolerations(spec.tolerations, f"{path}.tolerations", faults)
    if spec.topology_spread_constraints:
        _check_spread(spec.topology_spread_constraints, f"{path}.topologySpreadConstraints", faults)
    if spec.scheduling_gates:
        _check_gates(spec.scheduling_gates, f"{path}.schedulingGates", faults)
        if spec.node_name:
            faults.add(f"{path}.nodeName", f"{quoted(spec.node_name)} cannot be set while the pod has scheduling gates")
    if spec.HasField("scheduling_group"):
        faults.check(f"{path}.schedulingGroup.podGroupName", subdomain_fault(spec.scheduling_group.pod_group_name))


def check_affinity(affinity: Affinity, path: str, faults: Faults) -> None:
    if affinity.HasField("node_affinity"):
        _check_node_affinity(affinity.node_affinity, f"{path}.nodeAffinity", faults)
    if affinity.HasField("pod_affinity"):
        _check_pod_affinity(affinity.pod_affinity, f"{path}.podAffinity", faults)
    if affinity.HasField("pod_anti_affinity"):
        _check_pod_affinity(affinity.pod_anti_affinity, f"{path}.podAntiAffinity", faults)


# -------------------------------------------------------------------------------------------------------- node affinity


def _check_node_affinity(affinity: NodeAffinity, path: str, faults: Faults) -> None:
    if affinity.HasField("required_during_scheduling_ignored_during_execution"):
        terms = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
        where = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not terms:
            faults.add(where, "is required: at least one term")
        if faults.at_most(where, terms, limits.NODE_SELECTOR_TERMS):
            for position, term in enumerate(terms):
                _check_node_term(term, f"{where}[{position}]", faults)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    where = f"{path}.{_PREFERRED}"
    if faults.at_most(where, preferred, limits.NODE_SELECTOR_TERMS):
        for position, weighted in enumerate(preferred):
            faults.within(f"{where}[{position}].weight", weighted.weight, 1, 100)
            _check_node_term(weighted.preference, f"{where}[{position}].preference", faults)


def _check_node_term(term: NodeSelectorTerm, path: str, faults: Faults) -> None:
    if faults.at_most(f"{path}.matchExpressions", term.match_expressions, limits.EXPRESSIONS):
        for position, expression in enumerate(term.match_expressions):
            where = f"{path}.matchExpressions[{position}]"
            operator, values = expression.operator, expression.values
            faults.check(f"{where}.key", qualified_fault(expression.key))
            faults.choice(f"{where}.operator", operator, _NODE_OPERATORS)
            check_value_count(operator, len(values), f"{where}.values", faults)
            if operator in ("Gt", "Lt"):
                if len(values) != 1:
                    faults.add(f"{where}.values", f"must have exactly one value for operator {operator}, not {len(values)}")
                elif int64(values[0]) is None:
                    faults.add(f"{where}.values[0]", f"{quoted(values[0])} must be an integer for operator {operator}")
            check_label_values(values[: limits.VALUES], f"{where}.values", faults)
    if faults.at_most(f"{path}.matchFields", term.match_fields, limits.EXPRESSIONS):
        for position, expression in enumerate(term.match_fields):
            where = f"{path}.matchFields[{position}]"
            faults.choice(f"{where}.key", expression.key, (NAME_FIELD,))
            faults.choice(f"{where}.operator", expression.operator, ("In", "NotIn"))
            if len(expression.values) != 1:
                faults.add(f"{where}.values", f"must have exactly one value, not {len(expression.values)}")
            for index, text in enumerate(expression.values[: limits.VALUES]):
                faults.check(f"{where}.values[{index}]", subdomain_fault(text))


# --------------------------------------------------------------------------------------------------------- pod affinity


def _check_pod_affinity(affinity: PodAffinity | PodAntiAffinity, path: str, faults: Faults) -> None:
    required = affinity.required_during_scheduling_ignored_during_execution
    where = f"{path}.{_REQUIRED}"
    if faults.at_most(where, required, limits.POD_AFFINITY_TERMS):
        for position, term in enumerate(required):
            _check_pod_affinity_term(term, f"{where}[{position}]", faults)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    where = f"{path}.{_PREFERRED}"
    if faults.at_most(where, preferred, limits.POD_AFFINITY_TERMS):
        for position, weighted in enumerate(preferred):
            faults.within(f"{where}[{position}].weight", weighted.weight, 1, 100)
            _check_pod_affinity_term(weighted.pod_affinity_term, f"{where}[{position}].podAffinityTerm", faults)


def _check_pod_affinity_term(term: PodAffinityTerm, path: str, faults: Faults) -> None:
    faults.check(f"{path}.topologyKey", qualified_fault(term.topology_key))
    selector = term.label_selector if term.HasField("label_selector") else None
    if selector is not None:
        check_label_selector(selector, f"{path}.labelSelector", faults)
    if term.HasField("namespace_selector"):
        check_label_selector(term.namespace_selector, f"{path}.namespaceSelector", faults)
    if faults.at_most(f"{path}.namespaces", term.namespaces, limits.NAMESPACES):
        for position, namespace in enumerate(term.namespaces):
            faults.check(f"{path}.namespaces[{position}]", label_fault(namespace))
    if term.match_label_keys or term.mismatch_label_keys:
        _check_label_keys(term.match_label_keys, selector, f"{path}.matchLabelKeys", faults)
        _check_label_keys(term.mismatch_label_keys, selector, f"{path}.mismatchLabelKeys", faults)
        for key in sorted(set(term.match_label_keys) & set(term.mismatch_label_keys)):
            faults.add(f"{path}.mismatchLabelKeys", f"{quoted(key)} stands in matchLabelKeys too")


def _check_label_keys(keys: Sequence[str], selector: LabelSelector | None, path: str, faults: Faults) -> None:
    """Keys whose values are taken from the pod's own labels; they narrow a selector, so there has to be one."""
    if not keys or not faults.at_most(path, keys, limits.LABEL_KEYS):
        return
    if selector is None:
        faults.add(path, "must be empty without a labelSelector")
    fixed: Collection[str] = selector.match_labels if selector is not None else ()
    for position, key in enumerate(keys):
        faults.check(f"{path}[{position}]", qualified_fault(key))
        if key in fixed:
            faults.add(f"{path}[{position}]", f"{quoted(key)} stands in the labelSelector's matchLabels too")


# ------------------------------------------------------------------------------------------- spread, tolerations, gates


def _check_spread(constraints: Sequence[TopologySpreadConstraint], path: str, faults: Faults) -> None:
    if not faults.at_most(path, constraints, limits.SPREAD_CONSTRAINTS):
        return
    seen: dict[tuple[str, str], int] = {}
    for position, constraint in enumerate(constraints):
        where = f"{path}[{position}]"
        if constraint.max_skew <= 0:
            faults.add(f"{where}.maxSkew", f"{constraint.max_skew} must be greater than 0")
        faults.check(f"{where}.topologyKey", qualified_fault(constraint.topology_key))
        faults.choice(f"{where}.whenUnsatisfiable", constraint.when_unsatisfiable, (_DO_NOT_SCHEDULE, "ScheduleAnyway"))
        if constraint.HasField("min_domains"):
            if constraint.min_domains <= 0:
                faults.add(f"{where}.minDomains", f"{constraint.min_domains} must be greater than 0")
            if constraint.when_unsatisfiable != _DO_NOT_SCHEDULE:
                faults.add(f"{where}.minDomains", f"is only allowed when whenUnsatisfiable is {quoted(_DO_NOT_SCHEDULE)}")
        for field, is_set, policy in (
            ("nodeAffinityPolicy", constraint.HasField("node_affinity_policy"), constraint.node_affinity_policy),
            ("nodeTaintsPolicy", constraint.HasField("node_taints_policy"), constraint.node_taints_policy),
        ):
            if is_set:
                faults.choice(f"{where}.{field}", policy, ("Honor", "Ignore"))
        selector = constraint.label_selector if constraint.HasField("label_selector") else None
        if selector is not None:
            check_label_selector(selector, f"{where}.labelSelector", faults)
        _check_label_keys(constraint.match_label_keys, selector, f"{where}.matchLabelKeys", faults)
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        first = seen.setdefault(pair, position)
        if first != position:
            faults.add(where, f"has the topologyKey and whenUnsatisfiable of {path}[{first}]; each pair is allowed once")


def check_tolerations(tolerations: Sequence[Toleration], path: str, faults: Faults) -> None:
    if not faults.at_most(path, tolerations, limits.TOLERATIONS):
        return
    for position, toleration in enumerate(tolerations):
        where = f"{path}[{position}]"
        key, operator, value, effect = toleration.key, toleration.operator, toleration.value, toleration.effect
        if key:
            faults.check(f"{where}.key", qualified_fault(key))
        elif operator != EXISTS:
            faults.add(f"{where}.operator", f"must be {quoted(EXISTS)} when the key is empty")
        if operator in ("", EQUAL):
            faults.check(f"{where}.value", label_value_fault(value))
        elif operator != EXISTS:
            faults.choice(f"{where}.operator", operator, (EQUAL, EXISTS))
        elif value:
            faults.add(f"{where}.value", f"{quoted(value)} must be empty when the operator is {quoted(EXISTS)}")
        if effect:
            faults.choice(f"{where}.effect", effect, EFFECTS)
        if toleration.HasField("toleration_seconds") and effect != NO_EXECUTE:
            faults.add(f"{where}.tolerationSeconds", f"is only allowed when the effect is {quoted(NO_EXECUTE)}")


def _check_gates(gates: Sequence[PodSchedulingGate], path: str, faults: Faults) -> None:
    if not faults.at_most(path, gates, limits.SCHEDULING_GATES):
        return
    seen: dict[str, int] = {}
    for position, gate in enumerate(gates):
        faults.check(f"{path}[{position}].name", qualified_fault(gate.name))
        if seen.setdefault(gate.name, position) != position:
            faults.add(f"{path}[{position}].name", f"{quoted(gate.name)} occurs twice")
