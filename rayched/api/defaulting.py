"""What an object means where its manifest is silent: the defaults that Kubernetes' API server fills in on create.

In place, idempotent and total: an object that validation will refuse is defaulted as far as it goes. Quantities keep the text
they were written with, except those finer than a thousandth, which are rounded up to it as in Kubernetes, and those beyond
2^63-1, which are capped at it as Kubernetes documents.

Differs from Kubernetes: `whenUnsatisfiable` of a spread constraint defaults to DoNotSchedule instead of being required.

Source: SetObjectDefaults_Pod and its kin, Kubernetes 1.34. Cost: about 10 µs for a small pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Final

from rayched.api import job_labels, kinds, quantity, resources
from rayched.api.kinds import AnyObject
from rayched.api.quantity import QuantityError
from rayched.api.short_texts import remembered
from rayched.v1.core_pb2 import (
    Container,
    Namespace,
    Node,
    Pod,
    PodSpec,
    PodTemplateSpec,
    ReplicationController,
    Service,
)
from rayched.v1.meta_pb2 import Quantity
from rayched.v1.workloads_pb2 import Job, PodGroup, PriorityClass, ReplicaSet, RuntimeClass, StatefulSet

DEFAULT_NAMESPACE: Final = "default"
DEFAULT_SCHEDULER: Final = "default-scheduler"
GRACE_PERIOD_SECONDS: Final = 30
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"
BACKOFF_LIMIT: Final = 6
NON_INDEXED: Final = "NonIndexed"
TERMINATING_OR_FAILED: Final = "TerminatingOrFailed"

ResourceMap = MutableMapping[str, Quantity]


def default(message: AnyObject) -> None:
    """Fill in the defaults of an object of any kind."""
    kind = kinds.of_message(message)
    message.api_version = kind.api_version
    message.kind = kind.name
    if kind.namespaced and not message.metadata.namespace:
        message.metadata.namespace = DEFAULT_NAMESPACE
    fill = _BY_KIND.get(kind.name)
    if fill is not None:
        fill(message)


# ----------------------------------------------------------------------------------------------------------------- pods


def _pod(pod: Pod) -> None:
    spec = pod.spec
    for container in (*spec.containers, *spec.init_containers):
        if container.HasField("resources"):
            _copy_missing(container.resources.limits, container.resources.requests)
    if spec.HasField("resources"):
        _pod_level_limits(pod)
        _pod_level_requests(pod)
    if not spec.HasField("enable_service_links"):
        spec.enable_service_links = True
    if spec.host_network:
        for container in (*spec.containers, *spec.init_containers):
            for port in container.ports:
                port.host_port = port.host_port or port.container_port
    _pod_spec(spec)
    status = pod.status
    if not status.phase:
        status.phase = "Pending"
    if status.container_statuses or status.init_container_statuses:
        for found in (*status.container_statuses, *status.init_container_statuses):
            _round(found.allocated_resources)
            if found.HasField("resources"):
                _round(found.resources.limits)
                _round(found.resources.requests)


def _pod_spec(spec: PodSpec) -> None:
    """What pods and templates of pods have in common."""
    spec.restart_policy = spec.restart_policy or "Always"
    spec.scheduler_name = spec.scheduler_name or DEFAULT_SCHEDULER
    spec.dns_policy = spec.dns_policy or "ClusterFirst"
    if not spec.HasField("termination_grace_period_seconds"):
        spec.termination_grace_period_seconds = GRACE_PERIOD_SECONDS
    for container in spec.containers:
        _container(container)
    for container in spec.init_containers:
        _container(container)
    for constraint in spec.topology_spread_constraints:
        constraint.when_unsatisfiable = constraint.when_unsatisfiable or "DoNotSchedule"
    if spec.HasField("resources"):
        _round(spec.resources.limits)
        _round(spec.resources.requests)
    _round(spec.overhead)


def _container(container: Container) -> None:
    if not container.image_pull_policy and container.image:
        container.image_pull_policy = "Always" if _tag(container.image) == "latest" else "IfNotPresent"
    for port in container.ports:
        port.protocol = port.protocol or "TCP"
    if container.HasField("resources"):
        _round(container.resources.limits)
        _round(container.resources.requests)


def _pod_level_limits(pod: Pod) -> None:
    """Huge pages that only containers limit become a limit of the pod, once the pod says anything about its resources."""
    own = pod.spec.resources
    if not own.limits and not own.requests:
        return
    for name, text in _aggregated(pod, "limits").items():
        if name.startswith(resources.HUGE_PAGES_PREFIX) and name not in own.requests and name not in own.limits:
            own.limits[name].string = text


def _pod_level_requests(pod: Pod) -> None:
    """A pod with limits of its own requests what its containers do, and else its limits."""
    own = pod.spec.resources
    if not own.limits:
        return
    for name, text in _aggregated(pod, "requests").items():
        if name in (resources.CPU, resources.MEMORY) and name not in own.requests:
            own.requests[name].string = text
    for name, limit in list(own.limits.items()):
        if resources.is_pod_level(name) and name not in own.requests:
            own.requests[name].string = limit.string


def _aggregated(pod: Pod, which: str) -> dict[str, str]:
    """What the containers ask for together, without pod-level resources and overhead, as texts."""
    bare = Pod()
    bare.spec.containers.extend(pod.spec.containers)
    bare.spec.init_containers.extend(pod.spec.init_containers)
    try:
        amounts = resources.requested(bare) if which == "requests" else resources.limited(bare)
    except QuantityError:
        # Validation names the quantity; nothing can be derived from it.
        return {}
    return {name: amount.canonical() for name, amount in amounts.items()}


# ----------------------------------------------------------------------------------------------------------- other kinds


def _node(node: Node) -> None:
    status = node.status
    if status.capacity and not status.allocatable:
        _copy_missing(status.capacity, status.allocatable)
    _round(status.capacity)
    _round(status.allocatable)


def _namespace(namespace: Namespace) -> None:
    metadata = namespace.metadata
    if metadata.name:
        metadata.labels[NAMESPACE_NAME_LABEL] = metadata.name
    namespace.status.phase = namespace.status.phase or "Active"


def _service(service: Service) -> None:
    spec = service.spec
    spec.type = spec.type or "ClusterIP"
    for port in spec.ports:
        port.protocol = port.protocol or "TCP"
        target = port.target_port
        if not target.string_value and not target.int_value:
            target.int_value = port.port


def _replication_controller(controller: ReplicationController) -> None:
    spec = controller.spec
    labels = spec.template.metadata.labels
    if labels and not spec.selector:
        spec.selector.update(labels)
    if labels and not controller.metadata.labels:
        controller.metadata.labels.update(labels)
    _replicas(spec)


def _replica_set(replica_set: ReplicaSet) -> None:
    _replicas(replica_set.spec)


def _job(job: Job) -> None:
    spec = job.spec
    # Without both it is one pod; without completions alone it is a pool of workers, complete when one of them says so.
    if not spec.HasField("completions") and not spec.HasField("parallelism"):
        spec.completions = 1
    if not spec.HasField("parallelism"):
        spec.parallelism = 1
    if not spec.HasField("backoff_limit"):
        spec.backoff_limit = BACKOFF_LIMIT
    if not spec.HasField("completion_mode"):
        spec.completion_mode = NON_INDEXED
    if not spec.HasField("suspend"):
        spec.suspend = False
    if not spec.HasField("pod_replacement_policy"):
        spec.pod_replacement_policy = TERMINATING_OR_FAILED
    labels = {key: text for key, text in spec.template.metadata.labels.items() if key not in job_labels.GENERATED}
    if labels and not job.metadata.labels:
        job.metadata.labels.update(labels)
    if not spec.manual_selector:
        job_labels.select_by_uid(job)
    _template(spec.template)


def _stateful_set(stateful_set: StatefulSet) -> None:
    spec = stateful_set.spec
    spec.pod_management_policy = spec.pod_management_policy or "OrderedReady"
    _replicas(spec)


def _replicas(spec: Any) -> None:
    if not spec.HasField("replicas"):
        spec.replicas = 1
    if spec.HasField("template"):
        _template(spec.template)


def _template(template: PodTemplateSpec) -> None:
    if template.HasField("spec"):
        _pod_spec(template.spec)


def _priority_class(priority_class: PriorityClass) -> None:
    if not priority_class.HasField("preemption_policy"):
        priority_class.preemption_policy = PREEMPT_LOWER_PRIORITY


def _pod_group(group: PodGroup) -> None:
    mode = group.spec.disruption_mode
    if not (mode.HasField("single") or mode.HasField("all")):
        mode.single.SetInParent()


def _runtime_class(runtime_class: RuntimeClass) -> None:
    if runtime_class.HasField("overhead"):
        _round(runtime_class.overhead.pod_fixed)


# ----------------------------------------------------------------------------------------------------------- quantities


def _copy_missing(source: ResourceMap, target: ResourceMap) -> None:
    for name, amount in source.items():
        if name not in target:
            target[name].string = amount.string


def _round(amounts: ResourceMap) -> None:
    """Round amounts up to a thousandth; leave the text of all others as it is."""
    changed: Iterable[tuple[str, str]] = [
        (name, rounded) for name, amount in amounts.items() if (rounded := _rounded(amount.string)) is not None
    ]
    for name, rounded in changed:
        amounts[name].string = rounded


@remembered(8_192)
def _rounded(text: str) -> str | None:
    """The canonical text of a quantity rounded up to a thousandth and capped at 2^63-1, or None: the text stays."""
    try:
        limit = quantity.capped(text)
        if limit is not None:
            return limit
        amount = quantity.parse(text)
    except QuantityError:
        return None
    rounded = amount.rounded_to_milli()
    return None if rounded is amount else rounded.canonical()


@remembered(8_192)
def _tag(image: str) -> str:
    """The tag of an image's name; one without tag and digest means the latest."""
    name, digest, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return tag or ("" if digest else "latest")


_BY_KIND: Final[dict[str, Callable[[Any], None]]] = {
    kinds.POD.name: _pod,
    kinds.NODE.name: _node,
    kinds.NAMESPACE.name: _namespace,
    kinds.SERVICE.name: _service,
    kinds.REPLICATION_CONTROLLER.name: _replication_controller,
    kinds.REPLICA_SET.name: _replica_set,
    kinds.STATEFUL_SET.name: _stateful_set,
    kinds.JOB.name: _job,
    kinds.PRIORITY_CLASS.name: _priority_class,
    kinds.RUNTIME_CLASS.name: _runtime_class,
    kinds.POD_GROUP.name: _pod_group,
}
