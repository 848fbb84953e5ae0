"""explain: why a pod is where it is, or why it waits: every plugin's word on the nodes, and what holds the pod."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import grpc
import typer
from google.protobuf.json_format import MessageToDict

from rayched.cli.connection import connected
from rayched.cli.options import Output, Server
from rayched.cli.printing import counted, fail, out, plain_table, wrong
from rayched.cli.references import DEFAULT_NAMESPACE
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import ExplainResponse, NodeVerdict, PastDecision, PendingPod

NODES_SHOWN = 10
NAMES_SHOWN = 5


def explain(
    name: Annotated[str, typer.Argument(metavar="POD", hidden=True)],
    namespace: Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="The pod's.")] = DEFAULT_NAMESPACE,
    server: Server = None,
    why_not: Annotated[
        list[str] | None,
        typer.Option("--why-not", metavar="NODE", help="Only this node. May be repeated.", show_default=False),
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=0, help="So many nodes at most; 0: all.")] = NODES_SHOWN,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", metavar="json", help="Print JSON, of all nodes.", show_default=False)
    ] = None,
) -> None:
    """Show why a pod is where it is, or waits.

    \b
      rayched explain web-0                       every plugin's word on the best nodes
      rayched explain pod/web-0 --why-not node-7  one node's
      rayched explain web-0 -o json               all of it

    First comes the pod's last attempt as it was, which the leader remembers of its last 10,000. The table is of the cluster as it
    is now; a pod that has a node is judged as if its own room were free.
    """
    if output not in (None, Output.json):
        wrong(f"--output: {output.value} is not possible here; json is")
    kind, _, pod = name.rpartition("/")
    if kind not in ("", "pod", "pods", "po"):
        fail(f"{name}: only pods can be explained")
    with connected(server) as client:
        limit = 0 if output is Output.json or why_not else nodes
        found = client.explain(pod, namespace, nodes=why_not or (), limit=limit)
        waiting = None if found.node else _waiting(client, namespace, pod)
    if output is Output.json:
        document = MessageToDict(found, always_print_fields_with_no_presence=True)
        if waiting is not None:
            document["waiting"] = MessageToDict(waiting)
        out(json.dumps(document, indent=2))
        return
    _print(pod, namespace, found, waiting, of=len(found.verdicts) if why_not else found.nodes)


def _waiting(client: Client, namespace: str, name: str) -> PendingPod | None:
    """The pod's place in the queue; None: it is in none, for it is just being decided about."""
    try:
        pods = client.queue(namespace=namespace, name=name, limit=1).pods
    except ApiError as error:
        if error.code is grpc.StatusCode.NOT_FOUND:
            return None
        raise
    return pods[0] if pods else None


def _print(name: str, namespace: str, found: ExplainResponse, waiting: PendingPod | None, of: int) -> None:
    """`of`: so many nodes were asked for, of which those found are shown."""
    rows = [("Pod:", f"{namespace}/{name}"), ("Node:", found.node or "<none>")]
    if found.nominated_node:
        rows.append(("Nominated Node:", found.nominated_node))
    if waiting is not None:
        held = ", ".join(waiting.held_by) or "<none>"
        rows += [("Queue:", waiting.queue), ("Attempts:", str(waiting.attempts)), ("Held By:", held)]
        if waiting.would_wake:
            rows.append(("Would Wake It:", ", ".join(waiting.would_wake)))
    if found.HasField("decision"):
        rows += _decided(found.decision)
    elif found.node or (waiting is not None and waiting.attempts):
        rows.append(("Decided:", "not remembered: by an earlier leader, or too long ago"))
    rows.append(("Now At Revision:", str(found.revision)))
    if found.rejected:
        rows.append(("Rejected:", found.rejected))
    else:
        rows.append(("Feasible:", f"{found.feasible} of {counted(found.nodes, 'node')}"))
        if found.best:
            ties = len(found.best)
            best = found.best[0] if ties == 1 else f"{counted(ties, 'node')} tie, of which one is drawn: {_some(found.best)}"
            rows.append(("Best:", best))
    plain_table(["", ""], rows, show_headings=False)
    if found.verdicts:
        out("")
        _print_verdicts(list(found.verdicts), of)


def _decided(decision: PastDecision) -> list[tuple[str, str]]:
    """The last attempt as it was."""
    took = f"in {decision.seconds * 1000:.2f} ms" if decision.seconds else ""
    of = f"decision {decision.number} with seed {decision.seed}, at revision {decision.revision}"
    rows = [("Decided:", " ".join(filter(None, (of, took))))]
    if not decision.node:
        rows.append(("Then:", decision.message))
        if decision.nominated_node:
            rows.append(("Preempting:", f"{counted(decision.victims, 'pod')} on node {decision.nominated_node}"))
    elif decision.ties == 0:
        rows.append(("Then:", f"{decision.node}, to which the pod was nominated"))
    else:
        drawn = f", drawn among {decision.ties} that tied" if decision.ties > 1 else ""
        rows.append(("Then:", f"{decision.node}{drawn}"))
        ranked = ", ".join(f"{one.node} {one.total}" if one.HasField("total") else f"{one.node} alone" for one in decision.best)
        rows.append(("Best Then:", ranked))
    if decision.rejections:
        rejected = sorted(decision.rejections.items(), key=lambda item: (-item[1], item[0]))
        told = ", ".join(f"{plugin} {counted(count, 'node')}" for plugin, count in rejected)
        later = decision.rejections_revision != decision.revision
        rows.append(("Rejected By:", told + (f" (at revision {decision.rejections_revision})" if later else "")))
    return rows


def _print_verdicts(verdicts: list[NodeVerdict], nodes: int) -> None:
    plugins = list(dict.fromkeys(score.plugin for verdict in verdicts for score in verdict.scores))
    if plugins:
        weights = {score.plugin: score.weight for verdict in verdicts for score in verdict.scores}
        headings = ["NODE", "TOTAL", *(f"{plugin} x{weights[plugin]}" for plugin in plugins)]
        table = []
        for verdict in verdicts:
            if not verdict.rejections:
                scores = {score.plugin: f"{score.weighted} ({score.normalized}, raw {score.raw})" for score in verdict.scores}
                table.append([verdict.node, str(verdict.total), *(scores.get(plugin, "-") for plugin in plugins)])
        plain_table(headings, table)
    rejected = [verdict for verdict in verdicts if verdict.rejections]
    if rejected:
        if plugins:
            out("")
        lines = []
        for verdict in rejected:
            for place, one in enumerate(verdict.rejections):
                helps = "yes" if one.resolvable else "no"
                lines.append([verdict.node if place == 0 else "", one.plugin, helps, "; ".join(one.reasons)])
        plain_table(["NODE", "REJECTED BY", "PREEMPTION COULD HELP", "REASONS"], lines)
    if len(verdicts) < nodes:
        out(f"\n{counted(nodes - len(verdicts), 'more node')} not shown; --nodes 0 shows all.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
