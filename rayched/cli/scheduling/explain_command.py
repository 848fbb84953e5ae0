"""explain: why a pod is where it is, or why it waits: its last attempt as it was, and what would be decided now."""

from __future__ import annotations

import enum
import json
from typing import Annotated, Final

import grpc
import typer
from google.protobuf.json_format import MessageToDict

from rayched.api.kinds import KINDS
from rayched.cli.connection import connected
from rayched.cli.options import NamespaceOfPod, Server
from rayched.cli.printing import fail, out, out_json
from rayched.cli.references import DEFAULT_NAMESPACE
from rayched.cli.scheduling.explanations import ExplanationPage, group_lines
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import PendingPod

GROUP_KINDS = ("podgroup", "podgroups", "pg")
NODES_SHOWN = 10
NODES_GROUPED = 500
_TYPES = frozenset(word for kind in KINDS for word in (kind.singular, kind.plural, *kind.short_names))
_LEGEND: Final = "Points are scores (0 to 100) times weights; -o wide shows the scores."
_WIDE_LEGEND: Final = "Points are scores times weights. In brackets: score (0 to 100), raw score."


class ExplainOutput(enum.StrEnum):
    """What `explain` prints besides its blocks."""

    wide = "wide"
    json = "json"


def explain(
    name: Annotated[str, typer.Argument(metavar="POD", hidden=True)],
    namespace: NamespaceOfPod = DEFAULT_NAMESPACE,
    server: Server = None,
    why_not: Annotated[
        list[str] | None,
        typer.Option("--why-not", metavar="NODE", help="Only this node. May be repeated.", show_default=False),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=0, help="List the N best nodes one by one; 0: all.", show_default=False),
    ] = None,
    output: Annotated[
        ExplainOutput | None,
        typer.Option(
            "--output", "-o", metavar="wide|json", help="Scores as plugins gave them; or all as JSON.", show_default=False
        ),
    ] = None,
) -> None:
    """Show why a pod is where it is, or why it waits.

    \b
      rayched explain web-0                       the points of the best nodes
      rayched explain pod/web-0 --why-not node-7  one node
      rayched explain web-0 --nodes 0             every node by itself
      rayched explain web-0 -o json               everything
      rayched explain podgroup/train              how many members would fit now

    First: the pod's last scheduling attempt (the leader keeps the last 10,000). Then: the same decision if it were made now.
    For a pod that is placed, its own resources count as free.
    """
    kind, _, pod = name.rpartition("/")
    if kind in GROUP_KINDS:
        _explain_group(pod, namespace, server, output)
        return
    if kind not in ("", "pod", "pods", "po"):
        fail(f"{name}: only pods and pod groups can be explained")
    limit = NODES_GROUPED if nodes is None else nodes
    with connected(server) as client:
        everything = output is ExplainOutput.json or bool(why_not)
        try:
            found = client.explain(pod, namespace, nodes=why_not or (), limit=0 if everything else limit)
        except ApiError as error:
            if error.code is grpc.StatusCode.NOT_FOUND and _is_field(pod):
                fail(f"{error.message}; explain says why a pod is where it is; the fields of manifests are in docs/manifests.md")
            raise
        waiting = None if found.node else _waiting(client, namespace, pod)
    if output is ExplainOutput.json:
        document = MessageToDict(found, always_print_fields_with_no_presence=True)
        if waiting is not None:
            document["waiting"] = MessageToDict(waiting)
        out_json(json.dumps(document, indent=2))
        return
    shown = NODES_SHOWN if nodes is None and not why_not else None
    explanation = ExplanationPage(
        found, waiting, shown=shown, one_by_one=nodes is not None or bool(why_not), wide=output is ExplainOutput.wide
    )
    out("\n".join(explanation.lines(f"{namespace}/{pod}", of=len(found.verdicts) if why_not else found.nodes)))
    if explanation.has_scores:
        out(f"\n{_WIDE_LEGEND if output is ExplainOutput.wide else _LEGEND}")


def _is_field(word: str) -> bool:
    """kubectl's `explain pod` and `explain pod.spec.nodeName` are about fields."""
    return word.partition(".")[0].lower() in _TYPES


def _explain_group(name: str, namespace: str, server: Server, output: ExplainOutput | None) -> None:
    with connected(server) as client:
        found = client.explain(f"podgroup:{name}", namespace)
        waiting = _waiting(client, namespace, f"podgroup:{name}")
    if output is ExplainOutput.json:
        out_json(json.dumps(MessageToDict(found.group, always_print_fields_with_no_presence=True), indent=2))
        return
    out("\n".join(group_lines(f"{namespace}/{name}", found, waiting)))


def _waiting(client: Client, namespace: str, name: str) -> PendingPod | None:
    """The pod's place in the queue; None: it is in none, for it is just being decided about."""
    try:
        pods = client.queue(namespace=namespace, name=name, limit=1).pods
    except ApiError as error:
        if error.code is grpc.StatusCode.NOT_FOUND:
            return None
        raise
    return pods[0] if pods else None
