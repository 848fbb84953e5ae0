"""top: what nodes and pods use now, as their agents see it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from rayched.api import quantity
from rayched.cli.connection import connected
from rayched.cli.options import AllNamespaces, NamespaceOfPod, Selector, Server
from rayched.cli.printing import fail, note, nothing_found, plain_table, wrong
from rayched.cli.references import DEFAULT_NAMESPACE
from rayched.client.client import Client
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.streams_pb2 import NodeUsage, UsageResponse

_NODES = ("node", "nodes", "no")
_PODS = ("pod", "pods", "po")
_UNKNOWN = "<unknown>"


class SortBy(enum.StrEnum):
    """What comes first has most of it."""

    cpu = "cpu"
    memory = "memory"


@dataclass(frozen=True, slots=True)
class _Row:
    cells: list[str]
    cpu: int = -1
    memory: int = -1


def top(
    kind: Annotated[str, typer.Argument(metavar="nodes|pods", hidden=True)],
    name: Annotated[str, typer.Argument(metavar="[NAME]", hidden=True)] = "",
    namespace: NamespaceOfPod = DEFAULT_NAMESPACE,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    containers: Annotated[bool, typer.Option("--containers", help="Show each container.")] = False,
    sort_by: Annotated[
        SortBy | None, typer.Option("--sort-by", metavar="cpu|memory", help="Sort by this, largest first.", show_default=False)
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Do not print headings.")] = False,
    server: Server = None,
) -> None:
    """Show what nodes and pods use.

    \b
      rayched top nodes                      of what they have for pods
      rayched top pods -A --sort-by memory
      rayched top pod web --containers

    CPU is that of a second at least; memory is what processes have for themselves. Nodes without an agent, as hollow ones, show
    nothing.
    """
    if kind not in (*_NODES, *_PODS):
        wrong(f"{kind}: nothing is known of what these use; nodes and pods are possible")
    with connected(server) as client:
        found = client.usage()
        for node in sorted(found.silent):
            note(f"warning: node {node} does not say what it and its pods use")
        if kind in _NODES:
            headings, rows = ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"], _nodes(client, found, name, selector)
        else:
            where = "" if all_namespaces else namespace
            headings, rows = _pods(client, found, name, where, selector, by_container=containers)
            if not rows and name:
                fail(f"metrics not available for pod {namespace}/{name}")
            if not rows:
                nothing_found(where)
                return
    if sort_by is not None:
        rows.sort(key=lambda row: -(row.cpu if sort_by is SortBy.cpu else row.memory))
    plain_table(headings, [row.cells for row in rows], show_headings=not no_headers)


def _nodes(client: Client, found: UsageResponse, name: str, selector: str) -> list[_Row]:
    if name:
        nodes = [client.get("node", name)]
    else:
        nodes = list(client.list("nodes", label_selector=selector))
    by_name = {one.node: one for one in found.nodes}
    return [_node(node, by_name.get(node.metadata.name)) for node in sorted(nodes, key=lambda one: one.metadata.name)]


def _node(node: Node, use: NodeUsage | None) -> _Row:
    name = node.metadata.name
    if use is None:
        return _Row([name, *[_UNKNOWN] * 4])
    for_pods = node.status.allocatable
    cpu = quantity.milli_value(for_pods["cpu"].string) if "cpu" in for_pods else 0
    memory = quantity.value(for_pods["memory"].string) if "memory" in for_pods else 0
    cells = [
        name,
        _cpu(use.cpu_millis),
        _share(use.cpu_millis, cpu),
        _memory(use.memory_bytes),
        _share(use.memory_bytes, memory),
    ]
    return _Row(cells, use.cpu_millis, use.memory_bytes)


def _pods(
    client: Client, found: UsageResponse, name: str, namespace: str, selector: str, *, by_container: bool
) -> tuple[list[str], list[_Row]]:
    """Headings and rows."""
    if name:
        pods: Iterable[object] = [client.get("pod", name, namespace or DEFAULT_NAMESPACE)]
    else:
        pods = client.list("pods", namespace=namespace, label_selector=selector)
    wanted = {pod.metadata.uid for pod in pods if isinstance(pod, Pod)}
    headings = ["POD", "NAME"] if by_container else ["NAME"]
    headings = [*([] if namespace else ["NAMESPACE"]), *headings, "CPU(cores)", "MEMORY(bytes)"]
    rows = []
    for pod in sorted((pod for node in found.nodes for pod in node.pods), key=lambda one: (one.namespace, one.name)):
        if pod.uid not in wanted:
            continue
        own = [pod.name] if namespace else [pod.namespace, pod.name]
        uses = [(one.name, one.cpu_millis, one.memory_bytes) for one in pod.containers]
        if by_container:
            rows += [_use([*own, container], [cpu], [memory]) for container, cpu, memory in uses]
        else:
            rows.append(_use(own, [cpu for _, cpu, _ in uses], [memory for _, _, memory in uses]))
    return headings, rows


def _use(names: Sequence[str], cpus: Sequence[int], memories: Sequence[int]) -> _Row:
    cpu, memory = sum(cpus), sum(memories)
    return _Row([*names, _cpu(cpu), _memory(memory)], cpu, memory)


def _cpu(millis: int) -> str:
    return f"{millis}m"


def _memory(n_bytes: int) -> str:
    return f"{n_bytes >> 20}Mi"


def _share(used: int, of: int) -> str:
    return f"{used * 100 // of}%" if of else _UNKNOWN
