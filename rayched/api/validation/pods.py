"""Rules for pods and templates of pods: containers, ports, and all that is not about placement.

Differs from Kubernetes: a container needs no image (a process has none), dnsPolicy None needs no dnsConfig, and a grace period is
at most 2^31-1 seconds.

Source: ValidatePodCreate and ValidatePodTemplateSpec, Kubernetes 1.34. Cost: about 15 µs for a small pod.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from rayched.api.disconnection import STOP_AFTER_ANNOTATION, stop_after_fault
from rayched.api.errors import quoted
from rayched.api.kinds import POD
from rayched.api.names import label_fault, port_name_fault, subdomain_fault, variable_fault
from rayched.api.termination import GRACE_SECONDS_MAX
from rayched.api.validation import limits
from rayched.api.validation.containers import PORT_MAX, check_running, check_users, check_volumes
from rayched.api.validation.faults import Faults
from rayched.api.validation.metadata import check_labels, check_metadata, check_template_metadata
from rayched.api.validation.placement import check_placement
from rayched.api.validation.resources import (
    check_amounts,
    check_container_resources,
    check_pod_resources,
    container_resource_fault,
)
from rayched.v1.core_pb2 import Container, ContainerPort, Pod, PodSpec, PodTemplateSpec

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_ACTIVE_SECONDS_MAX: Final = 2**31 - 1


def check_pod(pod: Pod, faults: Faults) -> None:
    check_metadata(pod.metadata, POD, subdomain_fault, faults)
    if STOP_AFTER_ANNOTATION in pod.metadata.annotations:
        where = f"metadata.annotations[{STOP_AFTER_ANNOTATION}]"
        faults.check(where, stop_after_fault(pod.metadata.annotations[STOP_AFTER_ANNOTATION]) or None)
    check_pod_spec(pod.spec, "spec", faults)
    if pod.spec.HasField("resources"):
        check_pod_resources(pod, faults)
    status = pod.status
    if status.phase and status.phase not in _PHASES:
        faults.choice("status.phase", status.phase, _PHASES)
    if status.nominated_node_name:
        faults.check("status.nominatedNodeName", subdomain_fault(status.nominated_node_name))
    for position, found in enumerate((*status.container_statuses, *status.init_container_statuses)):
        field = "containerStatuses" if position < len(status.container_statuses) else "initContainerStatuses"
        where = f"status.{field}[{position - (0 if field[0] == 'c' else len(status.container_statuses))}]"
        check_amounts(found.allocated_resources, f"{where}.allocatedResources", container_resource_fault, faults)
        if found.HasField("resources"):
            check_container_resources(found.resources, f"{where}.resources", faults)


def check_template(template: PodTemplateSpec, path: str, faults: Faults, restart_policies: Sequence[str] = ("Always",)) -> None:
    """The template of a controller; what most of them make restarts always."""
    check_template_metadata(template.metadata, f"{path}.metadata", faults)
    check_pod_spec(template.spec, f"{path}.spec", faults)
    if template.spec.restart_policy not in restart_policies:
        faults.choice(f"{path}.spec.restartPolicy", template.spec.restart_policy, restart_policies)


def check_pod_spec(spec: PodSpec, path: str, faults: Faults) -> None:
    _check_containers(spec, path, faults)
    if spec.restart_policy not in _RESTART_POLICIES:
        faults.choice(f"{path}.restartPolicy", spec.restart_policy, _RESTART_POLICIES)
    if spec.dns_policy not in _DNS_POLICIES:
        faults.choice(f"{path}.dnsPolicy", spec.dns_policy, _DNS_POLICIES)
    if spec.termination_grace_period_seconds < 0:
        faults.not_negative(f"{path}.terminationGracePeriodSeconds", spec.termination_grace_period_seconds)
    elif spec.termination_grace_period_seconds > GRACE_SECONDS_MAX:
        faults.within(f"{path}.terminationGracePeriodSeconds", spec.termination_grace_period_seconds, 0, GRACE_SECONDS_MAX)
    if spec.HasField("active_deadline_seconds"):
        faults.within(f"{path}.activeDeadlineSeconds", spec.active_deadline_seconds, 1, _ACTIVE_SECONDS_MAX)
    if spec.node_selector:
        check_labels(spec.node_selector, f"{path}.nodeSelector", faults)
    for field, text, rule in (
        ("serviceAccountName", spec.service_account_name, subdomain_fault),
        ("nodeName", spec.node_name, subdomain_fault),
        ("hostname", spec.hostname, label_fault),
        ("subdomain", spec.subdomain, label_fault),
        ("schedulerName", spec.scheduler_name, subdomain_fault),
        ("priorityClassName", spec.priority_class_name, subdomain_fault),
        ("runtimeClassName", spec.runtime_class_name, subdomain_fault),
    ):
        if text:
            faults.check(f"{path}.{field}", rule(text))
    if spec.HasField("preemption_policy"):
        faults.choice(f"{path}.preemptionPolicy", spec.preemption_policy, PREEMPTION_POLICIES)
    if spec.overhead:
        check_amounts(spec.overhead, f"{path}.overhead", container_resource_fault, faults)
    if spec.HasField("security_context"):
        check_users(spec.security_context, f"{path}.securityContext", faults)
    check_volumes(spec, path, faults)
    check_placement(spec, path, faults)


def _check_containers(spec: PodSpec, path: str, faults: Faults) -> None:
    containers, init_containers = spec.containers, spec.init_containers
    if not containers:
        faults.add(f"{path}.containers", "is required: at least one container")
    if not faults.at_most(f"{path}.containers", (*containers, *init_containers), limits.CONTAINERS):
        return
    names: dict[str, str] = {}
    host_ports: dict[tuple[str, str, int], str] = {}
    for position, container in enumerate(init_containers):
        where = f"{path}.initContainers[{position}]"
        sidecar = container.restart_policy == "Always"
        if container.HasField("restart_policy") and not sidecar:
            faults.choice(f"{where}.restartPolicy", container.restart_policy, ("Always",))
        _check_container(container, where, spec.host_network, names, host_ports if sidecar else {}, faults)
    for position, container in enumerate(containers):
        where = f"{path}.containers[{position}]"
        if container.HasField("restart_policy"):
            faults.add(f"{where}.restartPolicy", "is only allowed in init containers")
        _check_container(container, where, spec.host_network, names, host_ports, faults)


def _check_container(
    container: Container,
    path: str,
    host_network: bool,
    names: dict[str, str],
    host_ports: dict[tuple[str, str, int], str],
    faults: Faults,
) -> None:
    name = container.name
    fault = label_fault(name)
    if fault is not None:
        faults.add(f"{path}.name", fault)
    elif names.setdefault(name, path) != path:
        faults.add(f"{path}.name", f"{quoted(name)} is the name of {names[name]} too")
    image = container.image
    if image and image != image.strip():
        faults.add(f"{path}.image", f"{quoted(image)} must not begin or end with space")
    if container.image_pull_policy:
        faults.choice(f"{path}.imagePullPolicy", container.image_pull_policy, _PULL_POLICIES)
    if container.ports:
        _check_ports(container.ports, f"{path}.ports", host_network, host_ports, faults)
    for position, variable in enumerate(container.env):
        faults.check(f"{path}.env[{position}].name", variable_fault(variable.name))
    if container.HasField("resources"):
        check_container_resources(container.resources, f"{path}.resources", faults)
    check_running(container, path, faults)


def _check_ports(
    ports: Sequence[ContainerPort],
    path: str,
    host_network: bool,
    host_ports: dict[tuple[str, str, int], str],
    faults: Faults,
) -> None:
    if not faults.at_most(path, ports, limits.PORTS):
        return
    names: set[str] = set()
    for position, port in enumerate(ports):
        where = f"{path}[{position}]"
        if port.name:
            faults.check(f"{where}.name", port_name_fault(port.name))
            if port.name in names:
                faults.add(f"{where}.name", f"{quoted(port.name)} occurs twice")
            names.add(port.name)
        faults.within(f"{where}.containerPort", port.container_port, 1, PORT_MAX)
        faults.choice(f"{where}.protocol", port.protocol, PROTOCOLS)
        if port.host_ip:
            faults.check(f"{where}.hostIP", _address_fault(port.host_ip))
        if not port.host_port:
            continue
        faults.within(f"{where}.hostPort", port.host_port, 1, PORT_MAX)
        if host_network and port.host_port != port.container_port:
            faults.add(f"{where}.hostPort", f"{port.host_port} must equal containerPort when hostNetwork is true")
        triple = (port.protocol, port.host_ip, port.host_port)
        if host_ports.setdefault(triple, where) != where:
            faults.add(f"{where}.hostPort", f"{port.host_port} is taken by {host_ports[triple]}")


def _address_fault(text: str) -> str | None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return f"{quoted(text)} is not an IP address"
    return None
