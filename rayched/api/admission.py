"""Admission: what the API does to a new pod between its arrival and the store, as pure steps over what the cluster has.

    default -> RuntimeClass (overhead, where it runs) -> priority -> label keys merged into selectors -> validate
            -> QoS class -> tolerations of the cluster's own taints

Each step changes the pod in place and returns what is wrong; `admit_pod` runs all of them and returns every error at once. A pod
with errors is not to be stored, whatever was changed in it. The steps are for creation only: a stored pod keeps its priority when
classes change, and label keys are merged once.

Source: the admission plugins Priority and RuntimeClass and the pod strategy of Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.api import quantity
from rayched.api.defaulting import PREEMPT_LOWER_PRIORITY, default
from rayched.api.errors import FieldError, key_of, quoted
from rayched.api.resources import CPU, MEMORY
from rayched.api.tolerations import EQUAL, EXISTS
from rayched.api.validation import validate
from rayched.api.validation.limits import TOLERATIONS
from rayched.api.validation.objects import SYSTEM_PRIORITIES
from rayched.api.well_known_taints import DefaultTolerations, add_tolerations
from rayched.v1.core_pb2 import Container, Pod, PodAffinityTerm, PodSpec, Toleration
from rayched.v1.meta_pb2 import LabelSelector, Quantity
from rayched.v1.workloads_pb2 import PodGroup, PriorityClass, RuntimeClass

DEFAULT_PRIORITY: Final = 0
"""Of pods that name no class where no class is the default."""

KNOWN_SHOWN: Final = 20
"""Names of classes in one message."""

HOSTNAME: Final = "kubernetes.io/hostname"

_DEFAULT_TOLERATIONS: Final = DefaultTolerations()

GUARANTEED: Final = "Guaranteed"
BURSTABLE: Final = "Burstable"
BEST_EFFORT: Final = "BestEffort"


def admit_pod(
    pod: Pod,
    priority_classes: Mapping[str, PriorityClass],
    runtime_classes: Mapping[str, RuntimeClass],
    *,
    limit_hard_anti_affinity: bool = False,
    tolerations: DefaultTolerations = _DEFAULT_TOLERATIONS,
) -> list[FieldError]:
    """Make a new pod ready for the store; all that is wrong with it. Classes are given by name.

    `limit_hard_anti_affinity` refuses required anti-affinity to anything wider than a node; off by default, as in Kubernetes.
    """
    default(pod)
    errors = apply_runtime_class(pod, runtime_classes)
    errors += resolve_priority(pod, priority_classes)
    if limit_hard_anti_affinity:
        errors += check_hard_anti_affinity(pod)
    merge_label_keys(pod)
    found = validate(pod)
    if not found:
        pod.status.qos_class = qos_class(pod)
        add_tolerations(pod, pod.status.qos_class, tolerations)
        if len(pod.spec.tolerations) > TOLERATIONS:
            sentence = f"{len(pod.spec.tolerations)} with those that the cluster adds; at most {TOLERATIONS} are allowed"
            errors.append(FieldError("spec.tolerations", sentence))
    return [*found, *errors]


# ------------------------------------------------------------------------------------------------------------- priority


@dataclass(frozen=True, slots=True)
class Priority:
    """What a pod gets from its class; `class_name` is "" where there is none."""

    class_name: str
    value: int
    preemption_policy: str


def resolve_priority(pod: Pod | PodGroup, classes: Mapping[str, PriorityClass]) -> list[FieldError]:
    """Set priority and preemption policy from the class of the pod, or group, or, without one, from the cluster's default."""
    spec, setter = pod.spec, "the pod" if isinstance(pod, Pod) else "the pod group"
    priority = _priority_of(spec.priority_class_name, classes)
    if priority is None:
        known = ", ".join(sorted({*classes, *SYSTEM_PRIORITIES})[:KNOWN_SHOWN])
        sentence = f"there is no PriorityClass {quoted(spec.priority_class_name)}; known are {known}"
        return [FieldError("spec.priorityClassName", sentence)]
    origin = f"PriorityClass {priority.class_name}" if priority.class_name else "the cluster's default"
    errors = []
    if spec.HasField("priority") and spec.priority != priority.value:
        errors.append(FieldError("spec.priority", f"{spec.priority} cannot be set by {setter}; {origin} gives {priority.value}"))
    if spec.HasField("preemption_policy") and spec.preemption_policy != priority.preemption_policy:
        errors.append(
            FieldError(
                "spec.preemptionPolicy",
                f"{quoted(spec.preemption_policy)} cannot be set by {setter}; {origin} gives {priority.preemption_policy}",
            )
        )
    spec.priority_class_name = priority.class_name
    spec.priority = priority.value
    spec.preemption_policy = priority.preemption_policy
    return errors


def _priority_of(name: str, classes: Mapping[str, PriorityClass]) -> Priority | None:
    if name:
        found = classes.get(name)
        if found is not None:
            return _from_class(found)
        if name in SYSTEM_PRIORITIES:
            return Priority(name, SYSTEM_PRIORITIES[name], PREEMPT_LOWER_PRIORITY)
        return None
    # Should several classes be the default, the lowest of them is, as in Kubernetes.
    defaults = [one for one in classes.values() if one.global_default]
    if defaults:
        return _from_class(min(defaults, key=lambda one: (one.value, one.metadata.name)))
    return Priority("", DEFAULT_PRIORITY, PREEMPT_LOWER_PRIORITY)


def _from_class(found: PriorityClass) -> Priority:
    policy = found.preemption_policy if found.HasField("preemption_policy") else PREEMPT_LOWER_PRIORITY
    return Priority(found.metadata.name, found.value, policy)


def check_default_class(new: PriorityClass, classes: Mapping[str, PriorityClass]) -> list[FieldError]:
    """A cluster has one default priority class: whether another one is already."""
    if not new.global_default:
        return []
    others = sorted(name for name, one in classes.items() if one.global_default and name != new.metadata.name)
    return [FieldError("globalDefault", f"PriorityClass {others[0]} is the default already; there can be one")] if others else []


# -------------------------------------------------------------------------------------------------------- runtime class


def apply_runtime_class(pod: Pod, classes: Mapping[str, RuntimeClass]) -> list[FieldError]:
    """Add the overhead of the pod's RuntimeClass and the nodes it runs on. A pod sets no overhead of its own."""
    spec = pod.spec
    if not spec.HasField("runtime_class_name") or not spec.runtime_class_name:
        return _refuse_overhead(spec, "the pod names no RuntimeClass")
    name = spec.runtime_class_name
    found = classes.get(name)
    if found is None:
        known = ", ".join(sorted(classes)[:KNOWN_SHOWN]) or "none"
        return [FieldError("spec.runtimeClassName", f"there is no RuntimeClass {quoted(name)}; known are {known}")]
    errors: list[FieldError] = []
    fixed = found.overhead.pod_fixed
    if not fixed:
        errors += _refuse_overhead(spec, f"RuntimeClass {name} defines none")
    elif spec.overhead and not _same_amounts(spec.overhead, fixed):
        errors.append(FieldError("spec.overhead", f"differs from the overhead of RuntimeClass {name}; leave it out"))
    else:
        for resource, amount in fixed.items():
            spec.overhead[resource].string = amount.string
    for key, wanted in found.scheduling.node_selector.items():
        present = spec.node_selector.get(key)
        if present is not None and present != wanted:
            sentence = f"{quoted(present)} contradicts RuntimeClass {name}, which wants {quoted(wanted)}"
            errors.append(FieldError(key_of("spec.nodeSelector", key), sentence))
        else:
            spec.node_selector[key] = wanted
    _merge_tolerations(spec, found.scheduling.tolerations)
    return errors


def _refuse_overhead(spec: PodSpec, reason: str) -> list[FieldError]:
    if not spec.overhead:
        return []
    return [FieldError("spec.overhead", f"cannot be set by the pod: {reason}")]


def _same_amounts(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> bool:
    if set(one) != set(other) or any(quantity.fault(found.string) for found in (*one.values(), *other.values())):
        return False
    return all(quantity.parse(one[name].string).compare(quantity.parse(other[name].string)) == 0 for name in one)


def _merge_tolerations(spec: PodSpec, more: Iterable[Toleration]) -> None:
    """Add tolerations; one that another of them covers entirely is left out."""
    merged: list[Toleration] = []
    everything = [*spec.tolerations, *more]
    if len(everything) == len(spec.tolerations):
        return
    for position, toleration in enumerate(everything):
        later = everything[position + 1 :]
        if not any(_covers(other, toleration) for other in (*merged, *later)):
            merged.append(toleration)
    copies = [Toleration.FromString(toleration.SerializeToString()) for toleration in merged]
    del spec.tolerations[:]
    spec.tolerations.extend(copies)


def _covers(wide: Toleration, narrow: Toleration) -> bool:
    """Whether whatever `narrow` tolerates, `wide` tolerates too, and for at least as long."""
    if wide.key and (wide.key != narrow.key or not narrow.key):
        return False
    if not wide.key and wide.operator != EXISTS:
        return wide == narrow
    if wide.effect and wide.effect != narrow.effect:
        return False
    if wide.HasField("toleration_seconds") and (
        not narrow.HasField("toleration_seconds") or narrow.toleration_seconds > wide.toleration_seconds
    ):
        return False
    if wide.operator in ("", EQUAL):
        return narrow.operator in ("", EQUAL) and wide.value == narrow.value
    return wide.operator == EXISTS


# ----------------------------------------------------------------------------------------------------------- label keys


def merge_label_keys(pod: Pod) -> None:
    """Turn matchLabelKeys and mismatchLabelKeys into conditions of the selectors they belong to.

    For keys that the pod has as labels, where there is a selector: `key In [value]`, for mismatched ones `key NotIn [value]`.
    """
    spec = pod.spec
    labels = pod.metadata.labels
    if spec.HasField("affinity"):
        for term in _pod_affinity_terms(spec):
            if term.HasField("label_selector") and (term.match_label_keys or term.mismatch_label_keys):
                _add_conditions(term.label_selector, term.match_label_keys, "In", labels)
                _add_conditions(term.label_selector, term.mismatch_label_keys, "NotIn", labels)
    for constraint in spec.topology_spread_constraints:
        if constraint.match_label_keys and constraint.HasField("label_selector"):
            _add_conditions(constraint.label_selector, constraint.match_label_keys, "In", labels)


def _pod_affinity_terms(spec: PodSpec) -> list[PodAffinityTerm]:
    affinity, anti_affinity = spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
    return [
        *affinity.required_during_scheduling_ignored_during_execution,
        *(one.pod_affinity_term for one in affinity.preferred_during_scheduling_ignored_during_execution),
        *anti_affinity.required_during_scheduling_ignored_during_execution,
        *(one.pod_affinity_term for one in anti_affinity.preferred_during_scheduling_ignored_during_execution),
    ]


def _add_conditions(selector: LabelSelector, keys: Sequence[str], operator: str, labels: Mapping[str, str]) -> None:
    for key in keys:
        if key in labels:
            selector.match_expressions.add(key=key, operator=operator, values=[labels[key]])


# -------------------------------------------------------------------------------------------------- hard anti-affinity


def check_hard_anti_affinity(pod: Pod) -> list[FieldError]:
    """Required anti-affinity may only keep pods off the same node: wider domains let one pod close a whole zone."""
    terms = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    path = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    return [
        FieldError(
            f"{path}[{position}].topologyKey", f"{quoted(term.topology_key)} is not allowed; allowed is {quoted(HOSTNAME)}"
        )
        for position, term in enumerate(terms)
        if term.topology_key != HOSTNAME
    ]


# ------------------------------------------------------------------------------------------------------------------ QoS


def qos_class(pod: Pod) -> str:
    """Guaranteed: every container limits cpu and memory and requests as much. BestEffort: none names either. Else Burstable.

    Resources of the pod as a whole, where they are given, count in place of the containers'.
    """
    spec = pod.spec
    needs = [spec.resources] if _has_compute(spec.resources.requests) or _has_compute(spec.resources.limits) else []
    if not needs:
        containers: list[Container] = [*spec.containers, *spec.init_containers]
        needs = [container.resources for container in containers]
    if not any(_has_compute(one.requests) or _has_compute(one.limits) for one in needs):
        return BEST_EFFORT
    for one in needs:
        for name in (CPU, MEMORY):
            limit = one.limits[name].string if name in one.limits else "0"
            request = one.requests[name].string if name in one.requests else limit
            if quantity.parse(limit).sign == 0 or quantity.parse(request).compare(quantity.parse(limit)):
                return BURSTABLE
    return GUARANTEED


def _has_compute(amounts: Mapping[str, Quantity]) -> bool:
    return any(name in amounts and quantity.parse(amounts[name].string).sign > 0 for name in (CPU, MEMORY))
