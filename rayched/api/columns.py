"""Columns of lists: what a person sees of each kind, as kubectl prints it. For `rayched get` and for kubectl itself.

Pure: `now` comes in, text comes out. A kind without columns of its own shows name and age.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api import kinds
from rayched.api.kinds import AnyObject, Kind
from rayched.api.names import ZONE_LABEL
from rayched.api.resources import is_sidecar
from rayched.api.termination import FINAL_PHASES
from rayched.v1.core_pb2 import Event, Namespace, Node, Pod, ReplicationController, Service
from rayched.v1.meta_pb2 import IntOrString
from rayched.v1.workloads_pb2 import Job, PodDisruptionBudget, PodGroup, PriorityClass, ReplicaSet, RuntimeClass, StatefulSet

NONE = "<none>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and what stands below it. `wide`: only with -o wide."""

    heading: str
    text: Callable[[AnyObject, float], str]
    wide: bool = False


def columns_of(
    kind: Kind, *, wide: bool = False, namespaces: bool = False, label_keys: Sequence[str] = (), labels: bool = False
) -> list[Column]:
    """The columns of a kind; NAMESPACE in front where objects of several are shown, labels that were asked for behind."""
    columns = [column for column in _COLUMNS.get(kind.name, [NAME, _AGE]) if wide or not column.wide]
    columns += [_label_column(key) for key in label_keys]
    if labels:
        columns.append(_LABELS)
    return [_NAMESPACE, *columns] if namespaces and kind.namespaced else columns


def cells(item: AnyObject, columns: Sequence[Column], now: float) -> list[str]:
    return [column.text(item, now) for column in columns]


def age(since: Timestamp, now: float) -> str:
    """How long ago, in one or two units, as kubectl has it: 42s, 3m10s, 5h, 3d4h, 12d, 2y30d."""
    if not since.seconds:
        return UNKNOWN
    # Clocks differ by a moment; a time well ahead is nobody's age.
    seconds = int(now - since.seconds)
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, rest = divmod(hours, 24)
    if days < 8:
        return f"{days}d{rest}h" if rest else f"{days}d"
    years, rest = divmod(days, 365)
    if years < 2:
        return f"{days}d"
    return f"{years}y{rest}d" if rest and years < 8 else f"{years}y"


def pod_status(pod: Pod) -> str:
    """The one word that says how a pod is doing."""
    if pod.metadata.HasField("deletion_timestamp") and pod.status.phase not in FINAL_PHASES:
        return "Terminating"
    for container in pod.status.container_statuses:
        if reason := container.state.waiting.reason or container.state.terminated.reason:
            return reason
    if pod.status.reason:
        return pod.status.reason
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason == "SchedulingGated":
            return "SchedulingGated"
    return pod.status.phase or "Pending"


def node_status(node: Node) -> str:
    """Ready, NotReady, or Unknown for a node whose agent has not said anything yet."""
    ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    return ",".join([*words, "SchedulingDisabled"] if node.spec.unschedulable else words)


def _ready(pod: Pod, _now: float) -> str:
    """Sidecars count, other init containers do not: they end before the pod runs."""
    sidecars = {container.name for container in pod.spec.init_containers if is_sidecar(container)}
    statuses = [*pod.status.container_statuses, *(s for s in pod.status.init_container_statuses if s.name in sidecars)]
    return f"{sum(status.ready for status in statuses)}/{len(pod.spec.containers) + len(sidecars)}"


def _ports(service: Service, _now: float) -> str:
    return ",".join(f"{port.port}/{port.protocol or 'TCP'}" for port in service.spec.ports) or NONE


def _int_or_string(found: IntOrString) -> str:
    which = found.WhichOneof("value")
    return "N/A" if which is None else str(getattr(found, which))


def _subject(event: Event, _now: float) -> str:
    return f"{event.involved_object.kind.lower()}/{event.involved_object.name}"


def _desired(item: ReplicaSet | StatefulSet | ReplicationController) -> str:
    return str(item.spec.replicas if item.spec.HasField("replicas") else 1)


def labels_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={text}" for key, text in sorted(labels.items())) or NONE


def _label_column(key: str) -> Column:
    return Column(key.rpartition("/")[2].upper(), lambda item, _: item.metadata.labels.get(key, ""))


NAME = Column("NAME", lambda item, _: item.metadata.name)
_NAMESPACE = Column("NAMESPACE", lambda item, _: item.metadata.namespace)
_LABELS = Column("LABELS", lambda item, _: labels_text(item.metadata.labels))
_AGE = Column("AGE", lambda item, now: age(item.metadata.creation_timestamp, now))


def _column(heading: str, text: Callable[..., str], wide: bool = False) -> Column:
    """A column of one kind; its function is called with objects of that kind alone."""
    return Column(heading, text, wide)


def _pod_columns() -> list[Column]:
    def restarts(pod: Pod, _now: float) -> str:
        return str(sum(status.restart_count for status in pod.status.container_statuses))

    return [
        NAME,
        _column("READY", _ready),
        _column("STATUS", lambda pod, _: pod_status(pod)),
        _column("RESTARTS", restarts),
        _AGE,
        _column("IP", lambda pod, _: pod.status.pod_ip or NONE, wide=True),
        _column("NODE", lambda pod, _: pod.spec.node_name or NONE, wide=True),
        _column("NOMINATED NODE", lambda pod, _: pod.status.nominated_node_name or NONE, wide=True),
    ]


def _node_columns() -> list[Column]:
    def roles(node: Node, _now: float) -> str:
        prefix = "node-role.kubernetes.io/"
        return ",".join(sorted(key.removeprefix(prefix) for key in node.metadata.labels if key.startswith(prefix))) or NONE

    def offers(resource: str) -> Callable[..., str]:
        return lambda node, _: node.status.allocatable[resource].string if resource in node.status.allocatable else NONE

    return [
        NAME,
        _column("STATUS", lambda node, _: node_status(node)),
        _column("ROLES", roles),
        _AGE,
        _column("VERSION", lambda node, _: node.status.node_info.kubelet_version or UNKNOWN),
        _column("ZONE", lambda node, _: node.metadata.labels.get(ZONE_LABEL, NONE), wide=True),
        _column("CPU", offers("cpu"), wide=True),
        _column("MEMORY", offers("memory"), wide=True),
        _column("TAINTS", lambda node, _: str(len(node.spec.taints)), wide=True),
        _column("CONTAINER-RUNTIME", lambda node, _: node.status.node_info.container_runtime_version or NONE, wide=True),
    ]


def _priority_class_columns() -> list[Column]:
    def policy(item: PriorityClass, _now: float) -> str:
        return item.preemption_policy or "PreemptLowerPriority"

    return [
        NAME,
        _column("VALUE", lambda item, _: str(item.value)),
        _column("GLOBAL-DEFAULT", lambda item, _: str(item.global_default).lower()),
        _AGE,
        _column("PREEMPTIONPOLICY", policy),
    ]


def _budget_columns() -> list[Column]:
    def field(name: str) -> Callable[..., str]:
        return lambda item, _: _int_or_string(getattr(item.spec, name))

    def allowed(item: PodDisruptionBudget, _now: float) -> str:
        return str(item.status.disruptions_allowed)

    return [
        NAME,
        _column("MIN AVAILABLE", field("min_available")),
        _column("MAX UNAVAILABLE", field("max_unavailable")),
        _column("ALLOWED DISRUPTIONS", allowed),
        _AGE,
    ]


def _pod_group_columns() -> list[Column]:
    def policy(item: PodGroup, _now: float) -> str:
        return "gang" if item.spec.scheduling_policy.HasField("gang") else "basic"

    def least(item: PodGroup, _now: float) -> str:
        return str(item.spec.scheduling_policy.gang.min_count or 1)

    def scheduled(item: PodGroup, _now: float) -> str:
        return next((one.status for one in item.status.conditions if one.type == "PodGroupInitiallyScheduled"), NONE)

    return [NAME, _column("POLICY", policy), _column("MIN-COUNT", least), _column("SCHEDULED", scheduled), _AGE]


def event_time(event: Event) -> int:
    """When it happened last, in Unix seconds."""
    return event.last_timestamp.seconds or event.first_timestamp.seconds


def event_interval(event: Event, now: float) -> str:
    """How long ago; of what happened several times also how often, and since when: 5m (x3 over 20m)."""
    latest = age(Timestamp(seconds=event_time(event)), now)
    return f"{latest} (x{event.count} over {age(event.first_timestamp, now)})" if event.count > 1 else latest


def _event_columns() -> list[Column]:
    return [
        _column("LAST SEEN", lambda event, now: age(Timestamp(seconds=event_time(event)), now)),
        _column("TYPE", lambda event, _: event.type),
        _column("REASON", lambda event, _: event.reason),
        _column("OBJECT", _subject),
        _column("MESSAGE", lambda event, _: event.message),
    ]


def _namespace_status(item: Namespace, _now: float) -> str:
    return "Terminating" if item.metadata.HasField("deletion_timestamp") else item.status.phase or "Active"


def _handler(item: RuntimeClass, _now: float) -> str:
    return item.handler


def _job_status(job: Job, _now: float) -> str:
    true = {condition.type for condition in job.status.conditions if condition.status == "True"}
    for word in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if word in true:
            return word
    return "Running"


def _job_completions(job: Job, _now: float) -> str:
    spec = job.spec
    if spec.HasField("completions"):
        return f"{job.status.succeeded}/{spec.completions}"
    return f"{job.status.succeeded}/1 of {spec.parallelism}" if spec.parallelism > 1 else f"{job.status.succeeded}/1"


def _job_duration(job: Job, now: float) -> str:
    status = job.status
    if not status.HasField("start_time"):
        return NONE
    return age(status.start_time, status.completion_time.seconds if status.HasField("completion_time") else now)


_DESIRED = _column("DESIRED", lambda item, _: _desired(item))
_REPLICAS = [NAME, _DESIRED, _AGE]

_COLUMNS: dict[str, list[Column]] = {
    kinds.POD.name: _pod_columns(),
    kinds.NODE.name: _node_columns(),
    kinds.NAMESPACE.name: [NAME, _column("STATUS", _namespace_status), _AGE],
    kinds.PRIORITY_CLASS.name: _priority_class_columns(),
    kinds.POD_DISRUPTION_BUDGET.name: _budget_columns(),
    kinds.POD_GROUP.name: _pod_group_columns(),
    kinds.RUNTIME_CLASS.name: [NAME, _column("HANDLER", _handler), _AGE],
    kinds.SERVICE.name: [
        NAME,
        _column("TYPE", lambda item, _: item.spec.type or "ClusterIP"),
        _column("CLUSTER-IP", lambda item, _: item.spec.cluster_ip or NONE),
        _column("PORT(S)", _ports),
        _AGE,
    ],
    kinds.REPLICA_SET.name: [
        NAME,
        _DESIRED,
        _column("CURRENT", lambda item, _: str(item.status.replicas)),
        _column("READY", lambda item, _: str(item.status.ready_replicas)),
        _AGE,
    ],
    kinds.JOB.name: [
        NAME,
        _column("STATUS", _job_status),
        _column("COMPLETIONS", _job_completions),
        _column("DURATION", _job_duration),
        _AGE,
    ],
    kinds.STATEFUL_SET.name: _REPLICAS,
    kinds.REPLICATION_CONTROLLER.name: _REPLICAS,
    kinds.EVENT.name: _event_columns(),
}
