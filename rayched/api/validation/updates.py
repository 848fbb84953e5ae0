"""`validate_update`: which fields of a stored object may change, and how. `validate_new`: what is judged of a new one alone.

Metadata's identity never changes. A pod's spec is fixed but for images, an earlier deadline, more tolerations and gates taken
away; while it is gated its node selector and required node affinity may become narrower. A pod's node is set by a binding,
which is no update. Status is not judged here: who may write it is a matter of the call.

Total, like `validate`; it does not repeat `validate`'s rules for the new object.

Source: ValidatePodUpdate and its kin, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from rayched.api import kinds
from rayched.api.disconnection import STOP_AFTER_ANNOTATION, stop_after_seconds
from rayched.api.errors import FieldError, join, key_of, quoted
from rayched.api.kinds import AnyObject
from rayched.api.node_size import SIZE_ANNOTATION, size_text_fault
from rayched.api.validation.faults import Faults
from rayched.api.validation.pod_groups import policy_of
from rayched.v1.core_pb2 import Node, NodeSelectorTerm, Pod, PodSpec, Service, Toleration
from rayched.v1.meta_pb2 import ObjectMeta
from rayched.v1.workloads_pb2 import Job, PodGroup, PriorityClass, ReplicaSet, RuntimeClass, StatefulSet

_FIXED: Final = "cannot be changed"
_NODE_TERMS: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def validate_update(old: AnyObject, new: AnyObject) -> list[FieldError]:
    """All that is wrong with the step from the stored object to the new one."""
    faults = Faults()
    kind = kinds.of_message(old)
    if type(old) is not type(new):
        faults.add("kind", f"{_FIXED} from {quoted(kind.name)} to {quoted(kinds.of_message(new).name)}")
        return faults.errors
    _check_metadata(old.metadata, new.metadata, faults)
    rule = _BY_KIND.get(kind.name)
    if rule is not None:
        rule(old, new, faults)
    return faults.errors


def validate_new(new: AnyObject) -> list[FieldError]:
    """What is judged where somebody writes it, and not wherever the object is: one that was wrong before is in nobody's way."""
    faults = Faults()
    if isinstance(new, Node):
        _check_size(None, new, faults)
    return faults.errors


def _check_metadata(old: ObjectMeta, new: ObjectMeta, faults: Faults) -> None:
    for field, was, is_now in (("name", old.name, new.name), ("namespace", old.namespace, new.namespace)):
        if was != is_now:
            faults.add(f"metadata.{field}", f"{_FIXED} from {quoted(was)} to {quoted(is_now)}")
    if new.uid and new.uid != old.uid:
        faults.add("metadata.uid", f"{_FIXED} from {quoted(old.uid)} to {quoted(new.uid)}; it is another object")
    for field, name in (("creationTimestamp", "creation_timestamp"), ("deletionTimestamp", "deletion_timestamp")):
        if new.HasField(name) and getattr(old, name) != getattr(new, name):
            faults.add(f"metadata.{field}", _FIXED)
    if new.generation and new.generation < old.generation:
        faults.add("metadata.generation", f"{new.generation} must not be less than {old.generation}")


# ----------------------------------------------------------------------------------------------------------------- pods


def _check_pod(old: Pod, new: Pod, faults: Faults) -> None:
    # What a node that is cut off believes of it has to stay true.
    if old.spec.node_name and stop_after_seconds(old) != stop_after_seconds(new):
        faults.add(f"metadata.annotations[{STOP_AFTER_ANNOTATION}]", f"{_FIXED} once the pod has a node")
    if old.spec == new.spec:
        return
    rest = PodSpec()
    rest.CopyFrom(new.spec)
    _take_images(old.spec, rest)
    _take_deadline(old.spec, rest, faults)
    _take_tolerations(old.spec, rest, faults)
    gated = bool(old.spec.scheduling_gates)
    _take_gates(old.spec, rest, faults)
    if gated:
        _take_node_selector(old.spec, rest, faults)
        _take_node_affinity(old.spec, rest, faults)
    _report_changes(old.spec, rest, "spec", faults)


def _take_images(old: PodSpec, rest: PodSpec) -> None:
    """Each rule below undoes the change that it allows; what still differs at the end was not allowed."""
    for before, after in ((old.containers, rest.containers), (old.init_containers, rest.init_containers)):
        if len(before) == len(after):
            for was, container in zip(before, after, strict=True):
                container.image = was.image


def _take_deadline(old: PodSpec, rest: PodSpec, faults: Faults) -> None:
    if rest.HasField("active_deadline_seconds"):
        deadline = rest.active_deadline_seconds
        if old.HasField("active_deadline_seconds") and deadline > old.active_deadline_seconds:
            faults.add("spec.activeDeadlineSeconds", f"{deadline} must not exceed the present {old.active_deadline_seconds}")
    elif old.HasField("active_deadline_seconds"):
        faults.add("spec.activeDeadlineSeconds", "cannot be taken away")
    rest.ClearField("active_deadline_seconds")
    if old.HasField("active_deadline_seconds"):
        rest.active_deadline_seconds = old.active_deadline_seconds


def _take_tolerations(old: PodSpec, rest: PodSpec, faults: Faults) -> None:
    kept = [_without_seconds(toleration) for toleration in rest.tolerations]
    for position, toleration in enumerate(old.tolerations):
        if _without_seconds(toleration) not in kept:
            faults.add(f"spec.tolerations[{position}]", "cannot be changed or taken away; tolerations can only be added")
    del rest.tolerations[:]
    rest.tolerations.extend(old.tolerations)


def _without_seconds(toleration: Toleration) -> tuple[str, str, str, str]:
    return toleration.key, toleration.operator, toleration.value, toleration.effect


def _take_gates(old: PodSpec, rest: PodSpec, faults: Faults) -> None:
    known = {gate.name for gate in old.scheduling_gates}
    for position, gate in enumerate(rest.scheduling_gates):
        if gate.name not in known:
            faults.add(f"spec.schedulingGates[{position}].name", f"{quoted(gate.name)} cannot be added; gates only go")
    del rest.scheduling_gates[:]
    rest.scheduling_gates.extend(old.scheduling_gates)


def _take_node_selector(old: PodSpec, rest: PodSpec, faults: Faults) -> None:
    for key, wanted in old.node_selector.items():
        if rest.node_selector.get(key) != wanted:
            faults.add(key_of("spec.nodeSelector", key), "cannot be changed or taken away; a gated pod's labels only grow")
    rest.node_selector.clear()
    rest.node_selector.update(old.node_selector)


def _take_node_affinity(old: PodSpec, rest: PodSpec, faults: Faults) -> None:
    """Preferred terms are free; required ones can only become narrower."""
    before, after = old.affinity.node_affinity, rest.affinity.node_affinity
    required = "required_during_scheduling_ignored_during_execution"
    if before.HasField(required):
        old_terms = before.required_during_scheduling_ignored_during_execution.node_selector_terms
        new_terms = after.required_during_scheduling_ignored_during_execution.node_selector_terms
        if len(old_terms) != len(new_terms):
            faults.add(_NODE_TERMS, f"has {len(new_terms)} terms; their number cannot be changed from {len(old_terms)}")
        else:
            for position, (was, term) in enumerate(zip(old_terms, new_terms, strict=True)):
                if not _narrower(was, term):
                    faults.add(f"{_NODE_TERMS}[{position}]", "can only be added to while the pod is gated")
    if old.HasField("affinity"):
        if old.affinity.HasField("node_affinity"):
            after.CopyFrom(before)
        else:
            rest.affinity.ClearField("node_affinity")
            rest.affinity.SetInParent()
    elif rest.HasField("affinity"):
        rest.affinity.ClearField("node_affinity")
        if not (rest.affinity.HasField("pod_affinity") or rest.affinity.HasField("pod_anti_affinity")):
            rest.ClearField("affinity")


def _narrower(old: NodeSelectorTerm, new: NodeSelectorTerm) -> bool:
    """Whether the new term has all of the old one's conditions first. An empty term, which matches nothing, stays as it is."""
    if not (old.match_expressions or old.match_fields):
        return old == new
    return _begins_with(new.match_expressions, old.match_expressions) and _begins_with(new.match_fields, old.match_fields)


def _begins_with(items: Sequence[Message], first: Sequence[Message]) -> bool:
    return len(items) >= len(first) and all(one == other for one, other in zip(items, first, strict=False))


# ----------------------------------------------------------------------------------------------------------- other kinds


def _check_node(old: Node, new: Node, faults: Faults) -> None:
    for field, was, is_now in (
        ("podCIDR", old.spec.pod_cidr, new.spec.pod_cidr),
        ("providerID", old.spec.provider_id, new.spec.provider_id),
    ):
        if was and was != is_now:
            faults.add(f"spec.{field}", f"{_FIXED} from {quoted(was)} to {quoted(is_now)}")
    _check_size(old.metadata.annotations.get(SIZE_ANNOTATION), new, faults)


def _check_size(old: str | None, new: Node, faults: Faults) -> None:
    is_now = new.metadata.annotations.get(SIZE_ANNOTATION)
    if is_now is not None and is_now != old:
        faults.check(f"metadata.annotations[{SIZE_ANNOTATION}]", size_text_fault(is_now) or None)


def _check_priority_class(old: PriorityClass, new: PriorityClass, faults: Faults) -> None:
    if old.value != new.value:
        faults.add("value", f"{_FIXED} from {old.value} to {new.value}")
    if old.preemption_policy != new.preemption_policy:
        faults.add("preemptionPolicy", f"{_FIXED} from {quoted(old.preemption_policy)} to {quoted(new.preemption_policy)}")


def _check_runtime_class(old: RuntimeClass, new: RuntimeClass, faults: Faults) -> None:
    if old.handler != new.handler:
        faults.add("handler", f"{_FIXED} from {quoted(old.handler)} to {quoted(new.handler)}")


def _check_replica_set(old: ReplicaSet, new: ReplicaSet, faults: Faults) -> None:
    if old.spec.selector != new.spec.selector:
        faults.add("spec.selector", _FIXED)


def _check_stateful_set(old: StatefulSet, new: StatefulSet, faults: Faults) -> None:
    rest = StatefulSet()
    rest.CopyFrom(new)
    for name in ("replicas", "min_ready_seconds", "template"):
        rest.spec.ClearField(name)
        if name == "template":
            if old.spec.HasField("template"):
                rest.spec.template.CopyFrom(old.spec.template)
        elif name != "replicas" or old.spec.HasField("replicas"):
            setattr(rest.spec, name, getattr(old.spec, name))
    _report_changes(old.spec, rest.spec, "spec", faults)


def _check_job(old: Job, new: Job, faults: Faults) -> None:
    """Completions, the selector, the template and the mode stay; those of an Indexed job grow and shrink with its parallelism."""
    was, spec = old.spec, new.spec
    if (was.HasField("completions"), was.completions) != (spec.HasField("completions"), spec.completions):
        elastic = was.completion_mode == "Indexed" and spec.HasField("completions") and was.HasField("completions")
        if not elastic:
            faults.add("spec.completions", _FIXED)
        elif spec.completions != spec.parallelism:
            faults.add("spec.completions", "can only be changed together with spec.parallelism, to the same number")
    for field, name in (("selector", "selector"), ("template", "template"), ("completion_mode", "completionMode")):
        if getattr(was, field) != getattr(spec, field):
            faults.add(f"spec.{name}", _FIXED)


def _check_pod_group(old: PodGroup, new: PodGroup, faults: Faults) -> None:
    """Of its spec only the gang's minCount may change."""
    was, is_now = policy_of(old), policy_of(new)
    if was != is_now:
        faults.add("spec.schedulingPolicy", f"{_FIXED} from {was} to {is_now}")
    rest = PodGroup()
    rest.CopyFrom(new)
    rest.spec.ClearField("scheduling_policy")
    if old.spec.HasField("scheduling_policy"):
        rest.spec.scheduling_policy.CopyFrom(old.spec.scheduling_policy)
    _report_changes(old.spec, rest.spec, "spec", faults)


def _check_service(old: Service, new: Service, faults: Faults) -> None:
    if old.spec.cluster_ip and new.spec.cluster_ip and old.spec.cluster_ip != new.spec.cluster_ip:
        faults.add("spec.clusterIP", f"{_FIXED} from {quoted(old.spec.cluster_ip)} to {quoted(new.spec.cluster_ip)}")


def _report_changes(old: Message, new: Message, path: str, faults: Faults) -> None:
    """An error for each field of a message that differs."""
    if old == new:
        return
    for descriptor in old.DESCRIPTOR.fields:
        name = descriptor.name
        if getattr(old, name) != getattr(new, name) or _presence(old, descriptor) != _presence(new, descriptor):
            faults.add(join(path, descriptor.json_name), _FIXED)


def _presence(message: Message, descriptor: Any) -> bool:
    return bool(message.HasField(descriptor.name)) if descriptor.has_presence else True


_BY_KIND: Final[dict[str, Callable[[Any, Any, Faults], None]]] = {
    kinds.POD.name: _check_pod,
    kinds.NODE.name: _check_node,
    kinds.PRIORITY_CLASS.name: _check_priority_class,
    kinds.RUNTIME_CLASS.name: _check_runtime_class,
    kinds.REPLICA_SET.name: _check_replica_set,
    kinds.STATEFUL_SET.name: _check_stateful_set,
    kinds.JOB.name: _check_job,
    kinds.SERVICE.name: _check_service,
    kinds.POD_GROUP.name: _check_pod_group,
}
