"""`validate`: every rule for an object of any kind, all faults at once.

Total: it never raises and never stops at the first fault. It expects an object after defaulting; without defaults it
reports what they would have filled in as missing. The same rules hold at the edge and when reading from the store, where an
object that fails is parked.

Differs from Kubernetes: templates of controllers and ports of services may be absent, as scheduling reads the selectors alone.
A template without labels and containers counts as absent. More differences stand in the modules for resources, placement, pods.

Source: the validation packages of core, apps, policy, scheduling and node, Kubernetes 1.34; limits are rayched's own.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rayched.api import kinds
from rayched.api.errors import FieldError, quoted
from rayched.api.kinds import AnyObject
from rayched.api.names import (
    label_1035_fault,
    label_fault,
    label_value_fault,
    port_name_fault,
    qualified_fault,
    subdomain_fault,
)
from rayched.api.selectors import matches_all
from rayched.api.tolerations import EFFECTS
from rayched.api.validation import limits
from rayched.api.validation.containers import PORT_MAX
from rayched.api.validation.faults import Faults
from rayched.api.validation.jobs import check_job
from rayched.api.validation.metadata import check_label_selector, check_labels, check_metadata
from rayched.api.validation.placement import check_tolerations
from rayched.api.validation.pod_groups import check_pod_group
from rayched.api.validation.pods import PREEMPTION_POLICIES, PROTOCOLS, check_pod, check_template
from rayched.api.validation.resources import check_amounts, container_resource_fault, node_resource_fault
from rayched.api.validation.selection import check_selector
from rayched.v1.core_pb2 import Event, Namespace, Node, PodTemplateSpec, ReplicationController, Service
from rayched.v1.meta_pb2 import IntOrString
from rayched.v1.workloads_pb2 import PodDisruptionBudget, PriorityClass, ReplicaSet, RuntimeClass, StatefulSet

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
SYSTEM_PREFIX: Final = "system-"
SYSTEM_PRIORITIES: Final[Mapping[str, int]] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that every cluster has."""

_PERCENT = re.compile(r"[0-9]{1,3}%", re.ASCII)
_SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")


def validate(message: AnyObject) -> list[FieldError]:
    """All that is wrong with an object; empty: it may be stored."""
    kind = kinds.of_message(message)
    faults = Faults()
    size = message.ByteSize()
    most = limits.POD_BYTES if kind is kinds.POD else limits.OBJECT_BYTES
    if size > most:
        faults.add("", f"the {kind.name} has {size} bytes; at most {most} are allowed")
        return faults.errors
    if message.api_version:
        faults.choice("apiVersion", message.api_version, (kind.api_version,))
    if message.kind:
        faults.choice("kind", message.kind, (kind.name,))
    _BY_KIND[kind.name](message, faults)
    return faults.errors


# ------------------------------------------------------------------------------------------------------------- clusters


def _check_node(node: Node, faults: Faults) -> None:
    check_metadata(node.metadata, kinds.NODE, subdomain_fault, faults)
    spec, status = node.spec, node.status
    if spec.pod_cidr:
        faults.check("spec.podCIDR", _network_fault(spec.pod_cidr))
    if faults.at_most("spec.taints", spec.taints, limits.TAINTS):
        seen: set[tuple[str, str]] = set()
        for position, taint in enumerate(spec.taints):
            where = f"spec.taints[{position}]"
            faults.check(f"{where}.key", qualified_fault(taint.key))
            faults.check(f"{where}.value", label_value_fault(taint.value))
            faults.choice(f"{where}.effect", taint.effect, EFFECTS)
            if (taint.key, taint.effect) in seen:
                faults.add(
                    where, f"the taint {quoted(f'{taint.key}:{taint.effect}')} occurs twice; key and effect together are unique"
                )
            seen.add((taint.key, taint.effect))
    check_amounts(status.capacity, "status.capacity", node_resource_fault, faults, limits.NODE_RESOURCES)
    check_amounts(status.allocatable, "status.allocatable", node_resource_fault, faults, limits.NODE_RESOURCES)
    if faults.at_most("status.images", status.images, limits.IMAGES):
        for position, image in enumerate(status.images):
            faults.at_most(f"status.images[{position}].names", image.names, limits.IMAGE_NAMES)
            faults.not_negative(f"status.images[{position}].sizeBytes", image.size_bytes)


def _check_namespace(namespace: Namespace, faults: Faults) -> None:
    check_metadata(namespace.metadata, kinds.NAMESPACE, label_fault, faults)
    for position, finalizer in enumerate(namespace.spec.finalizers):
        faults.check(f"spec.finalizers[{position}]", qualified_fault(finalizer))


def _check_priority_class(priority_class: PriorityClass, faults: Faults) -> None:
    check_metadata(priority_class.metadata, kinds.PRIORITY_CLASS, subdomain_fault, faults)
    name, value = priority_class.metadata.name, priority_class.value
    if name.startswith(SYSTEM_PREFIX):
        if SYSTEM_PRIORITIES.get(name) != value:
            faults.add("metadata.name", f"{quoted(name)} is reserved: the prefix {quoted(SYSTEM_PREFIX)} is the system's")
    elif value > HIGHEST_USER_PRIORITY:
        faults.add("value", f"{value} is reserved for the system; at most {HIGHEST_USER_PRIORITY} is allowed")
    if priority_class.HasField("preemption_policy"):
        faults.choice("preemptionPolicy", priority_class.preemption_policy, PREEMPTION_POLICIES)


def _check_runtime_class(runtime_class: RuntimeClass, faults: Faults) -> None:
    check_metadata(runtime_class.metadata, kinds.RUNTIME_CLASS, subdomain_fault, faults)
    faults.check("handler", label_fault(runtime_class.handler))
    check_amounts(runtime_class.overhead.pod_fixed, "overhead.podFixed", container_resource_fault, faults)
    check_labels(runtime_class.scheduling.node_selector, "scheduling.nodeSelector", faults)
    check_tolerations(runtime_class.scheduling.tolerations, "scheduling.tolerations", faults)


# ------------------------------------------------------------------------------------------------------------ workloads


def _check_replica_set(replica_set: ReplicaSet, faults: Faults) -> None:
    check_metadata(replica_set.metadata, kinds.REPLICA_SET, subdomain_fault, faults)
    _check_counts(replica_set.spec, faults)
    template = _template_of(replica_set.spec)
    selector = replica_set.spec.selector if replica_set.spec.HasField("selector") else None
    check_selector(selector, template, faults)


def _check_stateful_set(stateful_set: StatefulSet, faults: Faults) -> None:
    check_metadata(stateful_set.metadata, kinds.STATEFUL_SET, subdomain_fault, faults)
    spec = stateful_set.spec
    _check_counts(spec, faults)
    faults.choice("spec.podManagementPolicy", spec.pod_management_policy, ("OrderedReady", "Parallel"))
    faults.text("spec.serviceName", spec.service_name, subdomain_fault)
    check_selector(spec.selector if spec.HasField("selector") else None, _template_of(spec), faults)


def _check_replication_controller(controller: ReplicationController, faults: Faults) -> None:
    check_metadata(controller.metadata, kinds.REPLICATION_CONTROLLER, subdomain_fault, faults)
    spec = controller.spec
    _check_counts(spec, faults)
    if not spec.selector:
        faults.add("spec.selector", "is required")
    check_labels(spec.selector, "spec.selector", faults)
    template = _template_of(spec)
    if template is not None:
        check_template(template, "spec.template", faults)
        if not matches_all(spec.selector, template.metadata.labels):
            faults.add("spec.template.metadata.labels", "must match spec.selector")


def _template_of(spec: Any) -> PodTemplateSpec | None:
    """A controller's template; one without labels and containers counts as absent."""
    template: PodTemplateSpec = spec.template
    return template if template.metadata.labels or template.spec.containers else None


def _check_counts(spec: Any, faults: Faults) -> None:
    faults.not_negative("spec.replicas", spec.replicas)
    faults.not_negative("spec.minReadySeconds", spec.min_ready_seconds)


def _check_pod_disruption_budget(budget: PodDisruptionBudget, faults: Faults) -> None:
    check_metadata(budget.metadata, kinds.POD_DISRUPTION_BUDGET, subdomain_fault, faults)
    spec = budget.spec
    for field, is_set, amount in (
        ("minAvailable", spec.HasField("min_available"), spec.min_available),
        ("maxUnavailable", spec.HasField("max_unavailable"), spec.max_unavailable),
    ):
        if is_set:
            _check_count_or_percentage(amount, f"spec.{field}", faults)
    if spec.HasField("min_available") and spec.HasField("max_unavailable"):
        faults.add("spec.maxUnavailable", "is not allowed together with minAvailable: one of the two")
    if spec.HasField("selector"):
        check_label_selector(spec.selector, "spec.selector", faults)
    if spec.HasField("unhealthy_pod_eviction_policy"):
        faults.choice("spec.unhealthyPodEvictionPolicy", spec.unhealthy_pod_eviction_policy, ("IfHealthyBudget", "AlwaysAllow"))


def _check_count_or_percentage(amount: IntOrString, path: str, faults: Faults) -> None:
    if amount.WhichOneof("value") == "string_value":
        text = amount.string_value
        if not _PERCENT.fullmatch(text) or int(text[:-1]) > 100:
            faults.add(path, f'{quoted(text)} must be an integer or a percentage from "0%" to "100%"')
    else:
        faults.not_negative(path, amount.int_value)


# ------------------------------------------------------------------------------------------------------ services, events


def _check_service(service: Service, faults: Faults) -> None:
    check_metadata(service.metadata, kinds.SERVICE, label_1035_fault, faults)
    spec = service.spec
    check_labels(spec.selector, "spec.selector", faults)
    faults.choice("spec.type", spec.type, _SERVICE_TYPES)
    if not faults.at_most("spec.ports", spec.ports, limits.PORTS):
        return
    names: set[str] = set()
    for position, port in enumerate(spec.ports):
        where = f"spec.ports[{position}]"
        if port.name or len(spec.ports) > 1:
            faults.check(f"{where}.name", label_fault(port.name))
        if port.name and port.name in names:
            faults.add(f"{where}.name", f"{quoted(port.name)} occurs twice")
        names.add(port.name)
        faults.within(f"{where}.port", port.port, 1, PORT_MAX)
        faults.choice(f"{where}.protocol", port.protocol, PROTOCOLS)
        faults.within(f"{where}.nodePort", port.node_port, 0, PORT_MAX)
        if port.target_port.WhichOneof("value") == "string_value":
            faults.check(f"{where}.targetPort", port_name_fault(port.target_port.string_value))
        elif port.HasField("target_port"):
            faults.within(f"{where}.targetPort", port.target_port.int_value, 1, PORT_MAX)


def _check_event(event: Event, faults: Faults) -> None:
    check_metadata(event.metadata, kinds.EVENT, subdomain_fault, faults)
    faults.not_negative("count", event.count)
    if event.type:
        faults.choice("type", event.type, ("Normal", "Warning"))


def _network_fault(text: str) -> str | None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return f"{quoted(text)} is not a network such as 10.0.0.0/24"
    return None if "/" in text else f"{quoted(text)} is not a network such as 10.0.0.0/24"


_BY_KIND: Final[dict[str, Callable[[Any, Faults], None]]] = {
    kinds.POD.name: check_pod,
    kinds.NODE.name: _check_node,
    kinds.NAMESPACE.name: _check_namespace,
    kinds.PRIORITY_CLASS.name: _check_priority_class,
    kinds.RUNTIME_CLASS.name: _check_runtime_class,
    kinds.REPLICA_SET.name: _check_replica_set,
    kinds.STATEFUL_SET.name: _check_stateful_set,
    kinds.REPLICATION_CONTROLLER.name: _check_replication_controller,
    kinds.POD_DISRUPTION_BUDGET.name: _check_pod_disruption_budget,
    kinds.SERVICE.name: _check_service,
    kinds.EVENT.name: _check_event,
    kinds.JOB.name: check_job,
    kinds.POD_GROUP.name: check_pod_group,
}
