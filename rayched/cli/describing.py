"""`rayched describe`: one object for a person, with what else belongs to it.

Pods show where they are and why not; nodes what they offer and what is taken of it. Other kinds show their manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rayched.api import kinds
from rayched.api.columns import FINAL_PHASES, NONE, event_interval, event_time, node_status, pod_status
from rayched.api.kinds import AnyObject
from rayched.api.manifest import write_text
from rayched.api.names import LAST_APPLIED
from rayched.api.quantity import milli_value, value
from rayched.api.resources import pod_requests
from rayched.cli import printing
from rayched.cli.printing import shown
from rayched.cli.schedulers import missing_scheduler
from rayched.client.client import Client
from rayched.v1.core_pb2 import Container, ContainerPort, Event, Node, Pod, Taint, Toleration
from rayched.v1.meta_pb2 import ObjectMeta, Quantity

_WIDTH = 18
_MIB = 1 << 20


def describe(client: Client, item: AnyObject, now: float) -> str:
    """Text of several lines."""
    match item:
        case Pod():
            lines = _pod(item, missing_scheduler(client, item))
        case Node():
            lines = _node(client, item)
        case _:
            lines = write_text([kinds.wrap(item)]).rstrip("\n").splitlines()
    return "\n".join([*lines, *_events(client, item, now)])


def _pod(pod: Pod, missing: str) -> list[str]:
    """`missing`: why no scheduler takes the pod."""
    spec, status = pod.spec, pod.status
    requests = pod_requests(pod)
    lines = [
        _field("Name", pod.metadata.name),
        _field("Namespace", pod.metadata.namespace),
        _field("UID", pod.metadata.uid),
        _field("Priority", f"{spec.priority}" + (f" ({spec.priority_class_name})" if spec.priority_class_name else "")),
        _field("Scheduler", f"{spec.scheduler_name} ({missing})" if missing else spec.scheduler_name),
        _field("Node", spec.node_name or NONE),
        _field("Start Time", status.start_time.ToJsonString() if status.HasField("start_time") else NONE),
        *_mapping("Labels", pod.metadata.labels),
        *_mapping("Annotations", _annotations(pod.metadata)),
        _field("Status", status.phase if status.reason else pod_status(pod)),
    ]
    said = (("Reason", status.reason), ("Message", status.message), ("NominatedNode", status.nominated_node_name))
    lines += [_field(name, text) for name, text in said if text]
    if pod.metadata.HasField("deletion_timestamp"):
        lines.append(_field("Grace Period", f"{pod.metadata.deletion_grace_period_seconds}s"))
    if spec.init_containers:
        lines += ["Init Containers:", *(line for container in spec.init_containers for line in _container(container))]
    lines += ["Containers:", *(line for container in spec.containers for line in _container(container))]
    lines += _quantities("Overhead", spec.overhead)
    asked = ", ".join(f"{name} {_amount(name, amount)}" for name, amount in sorted(requests.items())) or NONE
    lines.append(_field("Total Requests", asked))
    lines += _mapping("Node-Selectors", spec.node_selector)
    lines += _list("Tolerations", map(_toleration, spec.tolerations))
    if spec.scheduling_gates:
        lines += _list("Scheduling Gates", (gate.name for gate in spec.scheduling_gates))
    if spec.scheduling_group.pod_group_name:
        lines.append(_field("Pod Group", spec.scheduling_group.pod_group_name))
    lines += [_field("QoS Class", status.qos_class or NONE), "Conditions:"]
    rows = [[condition.type, condition.status, condition.reason, condition.message] for condition in status.conditions]
    return lines + _table(["Type", "Status", "Reason", "Message"], rows)


def _container(container: Container) -> list[str]:
    lines = [f"  {shown(container.name)}:", "    " + _field("Image", container.image or NONE)]
    if container.restart_policy:
        lines.append("    " + _field("Restart Policy", container.restart_policy))
    if container.command or container.args:
        lines.append("    " + _field("Command", " ".join([*container.command, *container.args])))
    if container.ports:
        lines.append("    " + _field("Ports", ", ".join(map(_port, container.ports))))
    for name, quantities in (("Limits", container.resources.limits), ("Requests", container.resources.requests)):
        lines += [f"    {line}" for line in _quantities(name, quantities)]
    return lines


def _port(port: ContainerPort) -> str:
    host = f" (host {port.host_port})" if port.host_port else ""
    return f"{port.container_port}/{port.protocol or 'TCP'}{host}"


def _node(client: Client, node: Node) -> list[str]:
    pods = list(client.list(kinds.POD, field_selector=f"spec.nodeName={node.metadata.name}"))
    running = [pod for pod in pods if isinstance(pod, Pod) and pod.status.phase not in FINAL_PHASES]
    lines = [
        _field("Name", node.metadata.name),
        *_mapping("Labels", node.metadata.labels),
        *_mapping("Annotations", _annotations(node.metadata)),
        *_list("Taints", map(taint_text, node.spec.taints)),
        _field("Unschedulable", str(node.spec.unschedulable).lower()),
        _field("Status", node_status(node)),
        "Conditions:",
    ]
    conditions = [[found.type, found.status, found.reason, found.message] for found in node.status.conditions]
    lines += _table(["Type", "Status", "Reason", "Message"], conditions)
    lines += [*_quantities("Capacity", node.status.capacity), *_quantities("Allocatable", node.status.allocatable)]
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
    lines += _table(["Namespace", "Name", "CPU Requests", "Memory Requests"], rows)
    lines.append("Allocated resources:")
    offered = {name: _value(name, quantity) for name, quantity in node.status.allocatable.items()}
    totals = {name: sum(asked.get(name, 0) for _, asked in needs) for name in offered if name != "pods"}
    rows = [[name, f"{_amount(name, total)} ({_percent(total, offered[name])})"] for name, total in sorted(totals.items())]
    return lines + _table(["Resource", "Requests"], rows)


def _events(client: Client, item: AnyObject, now: float) -> list[str]:
    kind, metadata = kinds.of_message(item), item.metadata
    if kind is kinds.EVENT:
        return []
    selector = f"involvedObject.uid={metadata.uid}"
    found = client.list(kinds.EVENT, namespace=metadata.namespace or "default", field_selector=selector)
    events = sorted((event for event in found if isinstance(event, Event)), key=event_time)
    if not events:
        return [_field("Events", NONE)]
    rows = [
        [event.type, event.reason, event_interval(event, now), event.source.component, event.message.strip()] for event in events
    ]
    return ["Events:", *_table(["Type", "Reason", "Age", "From", "Message"], rows)]


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


def _field(name: str, text: str) -> str:
    return f"{name}:".ljust(_WIDTH) + shown(text)


def _list(name: str, texts: Iterable[str]) -> list[str]:
    found = list(texts) or [NONE]
    return [_field(name, found[0]), *(" " * _WIDTH + shown(text) for text in found[1:])]


def _annotations(metadata: ObjectMeta) -> dict[str, str]:
    """Without the note of `apply`, which is no person's concern."""
    return {key: text for key, text in metadata.annotations.items() if key != LAST_APPLIED}


def _mapping(name: str, found: Mapping[str, str]) -> list[str]:
    return _list(name, (f"{key}={text}" for key, text in sorted(found.items())))


def _quantities(name: str, found: Mapping[str, Quantity]) -> list[str]:
    if not found:
        return []
    return [
        f"{name}:",
        *(f"  {shown(key)}:".ljust(_WIDTH + 2) + shown(quantity.string) for key, quantity in sorted(found.items())),
    ]


def _table(headings: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return [f"  {NONE}"]
    lines = [headings, ["-" * len(heading) for heading in headings], *rows]
    column_widths = printing.widths(headings, rows)
    return ["  " + printing.line(row, column_widths).rstrip() for row in lines]


def _value(name: str, quantity: Quantity) -> int:
    return milli_value(quantity.string) if name == "cpu" else value(quantity.string)


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if name in ("memory", "ephemeral-storage") and amount % _MIB == 0 and amount:
        return f"{amount // _MIB}Mi"
    return str(amount)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole}%" if whole else "0%"
