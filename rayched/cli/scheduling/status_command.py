"""status: how full the cluster is: nodes and pods by state, resources as a whole and by zone, with bars.

It reads all nodes and pods, so that it needs no leader for that; what the queue holds is the leader's to say.
"""

from __future__ import annotations

import enum
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer

from rayched.api import kinds, quantity
from rayched.api.columns import node_status
from rayched.api.resources import accounted_requests
from rayched.api.termination import FINAL_PHASES
from rayched.cli.connection import connected
from rayched.cli.options import Server
from rayched.cli.printing import counted, note, out, out_json, plain_table
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import ZONE_LABEL
from rayched.v1.core_pb2 import Node, Pod

BAR: Final = 20
_FIRST: Final = ("cpu", "memory", "pods")
_NO_GROUP: Final = "<none>"


class StatusOutput(enum.StrEnum):
    """What `status` prints besides tables."""

    json = "json"


@dataclass(slots=True)
class Fullness:
    """Of some nodes: what they offer pods and what pods have requested of it. CPU in thousandths, else bytes and counts."""

    nodes: int = 0
    offered: Counter[str] = field(default_factory=Counter)
    requested: Counter[str] = field(default_factory=Counter)

    def plain(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "allocatable": dict(self.offered), "requested": dict(self.requested)}


@dataclass(frozen=True, slots=True)
class ClusterFullness:
    """The whole, and by the value of a label of nodes."""

    total: Fullness
    groups: Mapping[str, Fullness]
    nodes: Counter[str]
    """By status, as Ready or NotReady,SchedulingDisabled."""
    pods: Counter[str]
    """By phase; those with a node that do not run yet are Starting."""


def status(
    server: Server = None,
    by: Annotated[str, typer.Option("--by", metavar="LABEL", help="The label of nodes to group by.")] = ZONE_LABEL,
    output: Annotated[
        StatusOutput | None, typer.Option("--output", "-o", metavar="json", help="Print JSON.", show_default=False)
    ] = None,
) -> None:
    """Show how full the cluster is.

    \b
      rayched status                        as a whole and by zone
      rayched status --by disktype          by another label of nodes

    What counts is what pods request, as for the scheduler. What they use: `rayched top nodes`.
    """
    with connected(server) as client:
        nodes = [node for node in client.list(kinds.NODE) if isinstance(node, Node)]
        pods = [pod for pod in client.list(kinds.POD) if isinstance(pod, Pod)]
        waiting = _waiting(client)
    found = fullness(nodes, pods, by)
    if output is StatusOutput.json:
        whole = {
            "nodes": dict(found.nodes),
            "pods": dict(found.pods),
            "queue": waiting,
            "total": found.total.plain(),
            "by": {"label": by, "groups": {name: group.plain() for name, group in found.groups.items()}},
        }
        out_json(json.dumps(whole, indent=4, ensure_ascii=False))
        return
    out(f"Nodes:  {_counts(found.nodes, 'node')}")
    out(f"Pods:   {_counts(found.pods, 'pod')}")
    if waiting is None:
        note("nobody leads, so the queue is not known")
    else:
        out(f"Queue:  {', '.join(f'{count} {place}' for place, count in waiting.items() if count) or 'empty'}")
    if nodes:
        out("")
        _print_table("RESOURCE", [(name, name, found.total) for name in _names(found.total)], first_only=False)
        out("")
        rows = [(group, name, each) for group, each in found.groups.items() for name in _names(each)]
        _print_table(by.rpartition("/")[2].upper(), rows, first_only=True)


def fullness(nodes: Iterable[Node], pods: Iterable[Pod], label: str) -> ClusterFullness:
    """Pods that have ended take nothing."""
    total, groups = Fullness(), defaultdict[str, Fullness](Fullness)
    group_of: dict[str, str] = {}
    states: Counter[str] = Counter()
    for node in nodes:
        group = group_of[node.metadata.name] = node.metadata.labels.get(label, _NO_GROUP)
        states[node_status(node)] += 1
        offered = {
            name: quantity.milli_value(amount.string) if name == "cpu" else quantity.value(amount.string)
            for name, amount in node.status.allocatable.items()
        }
        for each in (total, groups[group]):
            each.nodes += 1
            each.offered.update(offered)
    phases: Counter[str] = Counter()
    for pod in pods:
        phase = pod.status.phase or "Pending"
        node_name = pod.spec.node_name
        phases["Starting" if phase == "Pending" and node_name else phase] += 1
        if not node_name or phase in FINAL_PHASES:
            continue
        requested = {**accounted_requests(pod), "pods": 1}
        here = [total, groups[group_of[node_name]]] if node_name in group_of else []
        for each in here:
            each.requested.update(requested)
    return ClusterFullness(total, dict(sorted(groups.items())), states, phases)


def _waiting(client: Client) -> dict[str, int] | None:
    """Counts of the queue; None: nobody leads."""
    try:
        counts = client.queue(limit=1).counts
    except ApiError as error:
        if error.violations:
            raise
        return None
    return {place: int(counts[place]) for place in ("active", "backoff", "unschedulable", "gated", "in_flight")}


def _counts(found: Counter[str], noun: str) -> str:
    told = ", ".join(f"{count} {state}" for state, count in sorted(found.items(), key=lambda item: (-item[1], item[0])))
    return f"{counted(found.total(), noun)}{f': {told}' if told else ''}"


def _names(found: Fullness) -> list[str]:
    """What is offered: cpu, memory and pods first, then extended resources."""
    return [name for name in (*_FIRST, *sorted(set(found.offered) - set(_FIRST))) if found.offered[name]]


def _print_table(heading: str, rows: Sequence[tuple[str, str, Fullness]], *, first_only: bool) -> None:
    headings = [heading, "RESOURCE", "REQUESTED", "OF", ""] if first_only else [heading, "REQUESTED", "OF", ""]
    cells = []
    before = ""
    for group, name, found in rows:
        amounts = [amount_text(name, found.requested[name]), amount_text(name, found.offered[name])]
        named = [group if group != before else "", name] if first_only else [name]
        cells.append([*named, *amounts, bar(found.requested[name], found.offered[name])])
        before = group
    plain_table(headings, cells)


def bar(part: int, whole: int) -> str:
    """`[########............]  40%`: never full before all is taken, never empty once something is."""
    share = part / whole if whole else 0.0
    filled = min(BAR, max(int(share * BAR), 1 if part else 0))
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {int(share * 100):3}%"


def amount_text(name: str, amount: int) -> str:
    """CPU in cores, memory in the largest unit that leaves three digits, all else as it is."""
    if name == "cpu":
        return f"{amount / 1000:g}"
    if name not in ("memory", "ephemeral-storage") and not name.startswith("hugepages-"):
        return str(amount)
    for unit, power in (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if amount >= 1 << power:
            return f"{amount / (1 << power):.3g}{unit}" if amount < 1000 << power else f"{amount >> power}{unit}"
    return str(amount)
