"""`rayched describe`: one object for a person, with what else belongs to it.

Pods show where they are and why not; nodes what they offer and what is taken of it. What makes pods shows
how many it has and what they are like. Other kinds show their manifest.
"""

from __future__ import annotations

from rayched.api import kinds
from rayched.api.columns import NONE, event_interval, event_time, node_status, pod_status
from rayched.api.kinds import AnyObject
from rayched.api.manifest import write_text
from rayched.api.quantity import canonical, milli_value, value
from rayched.api.resources import pod_requests
from rayched.api.termination import FINAL_PHASES
from rayched.cli.objects.describing_groups import group_lines
from rayched.cli.objects.describing_makers import maker_lines
from rayched.cli.objects.description_lines import container, field, listed, mapping, quantities, shown_annotations, table
from rayched.cli.scheduling.schedulers import missing_scheduler
from rayched.cli.scheduling.wake_words import waiting_rows
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Event, Node, Pod, ReplicationController, Taint, Toleration
from rayched.v1.meta_pb2 import Quantity
from rayched.v1.workloads_pb2 import Job, PodGroup, ReplicaSet, StatefulSet

_KIB = 1 << 10


def describe(client: Client, item: AnyObject, now: float) -> str:
    """Text of several lines."""
    match item:
        case Pod():
            lines = _pod(item, missing_scheduler(client, item), _waiting(client, item))
        case Node():
            lines = _node(client, item)
        case ReplicaSet() | StatefulSet() | ReplicationController() | Job():
            lines = maker_lines(client, item)
        case PodGroup():
            lines = group_lines(client, item)
        case _:
            lines = write_text([kinds.wrap(item)]).rstrip("\n").splitlines()
    return "\n".join([*lines, *_events(client, item, now)])


def _waiting(client: Client, pod: Pod) -> list[tuple[str, str]]:
    """What the leader's queue says of it; nothing where it has a node, or nobody leads who could say so."""
    if pod.spec.node_name or pod.status.phase not in ("", "Pending"):
        return []
    try:
        found = client.queue(namespace=pod.metadata.namespace, name=pod.metadata.name).pods
    except ApiError:
        return []
    return next((waiting_rows(one) for one in found if one.uid == pod.metadata.uid), [])


def _pod(pod: Pod, missing: str, waiting: list[tuple[str, str]]) -> list[str]:
    """`missing`: why no scheduler takes the pod."""
    spec, status = pod.spec, pod.status
    requests = pod_requests(pod)
    lines = [
        field("Name", pod.metadata.name),
        field("Namespace", pod.metadata.namespace),
        field("UID", pod.metadata.uid),
        field("Priority", f"{spec.priority}" + (f" ({spec.priority_class_name})" if spec.priority_class_name else "")),
        field("Scheduler", f"{spec.scheduler_name} ({missing})" if missing else spec.scheduler_name),
        field("Node", spec.node_name or NONE),
        field("Start Time", status.start_time.ToJsonString() if status.HasField("start_time") else NONE),
        *mapping("Labels", pod.metadata.labels),
        *mapping("Annotations", shown_annotations(pod.metadata)),
        field("Status", status.phase if status.reason else pod_status(pod)),
    ]
    said = (("Reason", status.reason), ("Message", status.message), ("NominatedNode", status.nominated_node_name))
    lines += [field(name, text) for name, text in (*said, *waiting) if text]
    if pod.metadata.HasField("deletion_timestamp"):
        lines.append(field("Grace Period", f"{pod.metadata.deletion_grace_period_seconds}s"))
    if spec.init_containers:
        lines += ["Init Containers:", *(line for one in spec.init_containers for line in container(one))]
    lines += ["Containers:", *(line for one in spec.containers for line in container(one))]
    lines += quantities("Overhead", spec.overhead)
    asked = ", ".join(f"{name} {_amount(name, amount)}" for name, amount in sorted(requests.items())) or NONE
    lines.append(field("Total Requests", asked))
    lines += mapping("Node-Selectors", spec.node_selector)
    lines += listed("Tolerations", map(_toleration, spec.tolerations))
    if spec.scheduling_gates:
        lines += listed("Scheduling Gates", (gate.name for gate in spec.scheduling_gates))
    if spec.scheduling_group.pod_group_name:
        lines.append(field("Pod Group", spec.scheduling_group.pod_group_name))
    lines += [field("QoS Class", status.qos_class or NONE), "Conditions:"]
    rows = [[condition.type, condition.status, condition.reason, condition.message] for condition in status.conditions]
    return lines + table(["Type", "Status", "Reason", "Message"], rows)


def _node(client: Client, node: Node) -> list[str]:
    pods = list(client.list(kinds.POD, field_selector=f"spec.nodeName={node.metadata.name}"))
    running = [pod for pod in pods if isinstance(pod, Pod) and pod.status.phase not in FINAL_PHASES]
    lines = [
        field("Name", node.metadata.name),
        *mapping("Labels", node.metadata.labels),
        *mapping("Annotations", shown_annotations(node.metadata)),
        *listed("Taints", map(taint_text, node.spec.taints)),
        field("Unschedulable", str(node.spec.unschedulable).lower()),
        field("Status", node_status(node)),
        "Conditions:",
    ]
    conditions = [[found.type, found.status, found.reason, found.message] for found in node.status.conditions]
    lines += table(["Type", "Status", "Reason", "Message"], conditions)
    lines += [*quantities("Capacity", node.status.capacity), *quantities("Allocatable", node.status.allocatable)]
    lines.append(f"Non-terminated Pods: ({len(running)} in total)")
    needs = [(pod, pod_requests(pod)) for pod in running]
    rows = [
        [
            pod.metadata.namespace,
            pod.metadata.name,
            _amount("cpu", asked.get("cpu", 0)),
            _amount("memory", asked.get("memory", 0)),
        ]
        for pod, asked in needs
    ]
    lines += table(["Namespace", "Name", "CPU Requests", "Memory Requests"], rows)
    lines.append("Allocated resources:")
    offered = {name: _value(name, quantity) for name, quantity in node.status.allocatable.items()}
    totals = {name: sum(asked.get(name, 0) for _, asked in needs) for name in offered if name != "pods"}
    rows = [[name, f"{_amount(name, total)} ({_percent(total, offered[name])})"] for name, total in sorted(totals.items())]
    return lines + table(["Resource", "Requests"], rows)


def _events(client: Client, item: AnyObject, now: float) -> list[str]:
    kind, metadata = kinds.of_message(item), item.metadata
    if kind is kinds.EVENT:
        return []
    selector = f"involvedObject.uid={metadata.uid}"
    found = client.list(kinds.EVENT, namespace=metadata.namespace or "default", field_selector=selector)
    events = sorted((event for event in found if isinstance(event, Event)), key=event_time)
    if not events:
        return [field("Events", NONE)]
    rows = [
        [event.type, event.reason, event_interval(event, now), event.source.component, event.message.strip()] for event in events
    ]
    return ["Events:", *table(["Type", "Reason", "Age", "From", "Message"], rows)]


def taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _toleration(toleration: Toleration) -> str:
    text = toleration.key or "all keys"
    if toleration.operator == "Exists":
        text += " exists"
    elif toleration.value:
        text += f"={toleration.value}"
    if toleration.effect:
        text += f":{toleration.effect}"
    return f"{text} for {toleration.toleration_seconds}s" if toleration.HasField("toleration_seconds") else text


def _value(name: str, quantity: Quantity) -> int:
    return milli_value(quantity.string) if name == "cpu" else value(quantity.string)


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if (name != "memory" and name != "ephemeral-storage") or amount % _KIB:
        return str(amount)
    return canonical(f"{amount // _KIB}Ki")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole}%" if whole else "0%"
