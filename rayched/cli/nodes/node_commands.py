"""cordon, uncordon, taint: kubectl's verbs of administration; and hollow-nodes."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from rayched.api import quantity
from rayched.api.kinds import NODE
from rayched.cli.connection import acting, connected, overwrite_hint
from rayched.cli.objects.dry_runs import cordon_edit, taint_edit, would_change
from rayched.cli.options import All, DryRunBy, DryRunOption, NodeNames, Overwrite, Selector, Server
from rayched.cli.printing import counted, fail, note, out, progress, wrong
from rayched.cli.references import Reference, kind_named, named_and_changes, some, targets
from rayched.client.client import Client
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Taint

_TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^:=]*))?(:(?P<effect>[A-Za-z]+))?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_A_TAINT = f"KEY[=VALUE]:EFFECT with {', '.join(_EFFECTS)}, or KEY[:EFFECT]- to remove it"
_PATIENCE_SECONDS = 30.0
"""Hollow nodes may be started beside the cluster that they are for."""


def cordon(
    nodes: NodeNames = None, server: Server = None, selector: Selector = "", dry_run: DryRunOption = DryRunBy.none
) -> None:
    """Keep new pods off nodes.

    \b
      rayched cordon node-001 node-002
      rayched cordon -l topology.kubernetes.io/zone=zone-a
    """
    _cordon(nodes or [], server, selector, True, dry_run)


def uncordon(
    nodes: NodeNames = None, server: Server = None, selector: Selector = "", dry_run: DryRunOption = DryRunBy.none
) -> None:
    """Let new pods on nodes again."""
    _cordon(nodes or [], server, selector, False, dry_run)


def taint(
    words: Annotated[list[str], typer.Argument(metavar="NODE|TAINT", hidden=True)],
    server: Server = None,
    overwrite: Overwrite = False,
    selector: Selector = "",
    every: All = False,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Set and remove taints of nodes.

    \b
      rayched taint nodes node-001 dedicated=experiments:NoSchedule
      rayched taint nodes node-001 dedicated:NoSchedule-      this effect alone
      rayched taint nodes -l disktype=ssd dedicated-          all effects
    """
    wanted, texts = named_and_changes(words)
    if any(reference.kind is not NODE for reference in wanted):
        wrong("taints are set on nodes: taint nodes NAME KEY=VALUE:EFFECT")
    add, remove = taints(texts)
    with acting(server) as (client, failures):
        for target in some(targets(client, wanted, "", selector, every)):
            with failures.told(overwrite_hint):
                if dry_run is DryRunBy.none:
                    changed = client.taint(target.name, add=add, remove=remove, overwrite=overwrite).changed
                else:
                    changed = would_change(client, target, taint_edit(add, remove, overwrite), dry_run)
                verb = ("modified" if add and remove else "tainted" if add else "untainted") if changed else "not changed"
                out(f"{target} {verb}{dry_run.suffix}")


def hollow(
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, max=20_000, hidden=True)],
    server: Server = None,
    zones: Annotated[int, typer.Option(metavar="N", help="Zones to spread them over; 0: none.", min=0, max=1000)] = 3,
    cpu: Annotated[str, typer.Option(metavar="QUANTITY", help="CPU of each node.")] = "16",
    memory: Annotated[str, typer.Option(metavar="QUANTITY", help="Memory of each node.")] = "64Gi",
    pods: Annotated[int, typer.Option(metavar="N", help="Pods that each node takes.", min=1)] = 110,
    resource: Annotated[
        list[str] | None, typer.Option(metavar="NAME=QUANTITY", help="A further resource. May be repeated.")
    ] = None,
    node_label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label of each node. May be repeated.")
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="What the names begin with.")] = "node",
    heartbeat: Annotated[float, typer.Option(metavar="SECONDS", help="Time between heartbeats.", min=0.1)] = 10.0,
    stop_after: Annotated[float, typer.Option(metavar="SECONDS", help="Time that a pod takes to stop.", min=0.0)] = 0.0,
    silent_after: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="After this time nodes fall silent, as if cut off.", min=0.0, show_default=False),
    ] = None,
    silent_for: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long they stay silent; none: for ever.", min=0.0, show_default=False),
    ] = None,
    silent_nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Only the first N nodes fall silent; none: all.", min=1, show_default=False)
    ] = None,
) -> None:
    """Register nodes that run nothing, and answer for them.

    Up to 20,000 of them, until interrupted: heartbeats are kept up, pods that are bound to them become Running.
    To see what becomes of lost nodes and their pods, let some of them fall silent.

    \b
      rayched hollow-nodes 100 --zones 3
      rayched hollow-nodes 100 --silent-after 30 --silent-nodes 5 --silent-for 600
      rayched hollow-nodes 8 --prefix gpu --resource nvidia.com/gpu=8 --label a=b
    """
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods), **_pairs("--resource", resource or [])}
    for name, text in resources.items():
        option = f"--{name}" if name in ("cpu", "memory") else f"--resource {name}"
        try:
            quantity.value(text)
        except quantity.QuantityError as error:
            wrong(f"{option}: {error}, want one such as 500m, 16 or 64Gi")
    shape = NodeShape(resources, _pairs("--label", node_label or []))
    with connected(server, timeout_seconds=_PATIENCE_SECONDS, listens_seconds=_PATIENCE_SECONDS) as client:
        nodes = hollow_nodes(count, zones, shape, prefix)
        agents = HollowNodes(client, nodes, heartbeat_seconds=heartbeat, stop_seconds=stop_after)
        silence = None
        if silent_after is not None:
            silence = Silence(tuple(node.metadata.name for node in nodes[:silent_nodes]), silent_after, silent_for)
        elif silent_for is not None or silent_nodes is not None:
            wrong("--silent-for and --silent-nodes say how --silent-after is meant; name that too")
        run_agents(client, agents, count, silence)


@dataclass(frozen=True, slots=True)
class Silence:
    """When these nodes fall silent, counted from the start of the agents, and for how long; None: for good."""

    names: tuple[str, ...]
    after: float
    lasts: float | None


def run_agents(client: Client, agents: HollowNodes, count: int, silence: Silence | None = None) -> None:
    """Registers and serves until SIGINT or SIGTERM, or until the cluster is gone for good."""
    with progress("registering", count) as bar:
        agents.register(bar.advance)
    out(f"{counted(count, 'hollow node')} registered at {', '.join(client.endpoints)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    agents.start()
    try:
        if silence is not None and not agents.wait(silence.after):
            agents.silence(silence.names)
            out(f"{counted(len(silence.names), 'node')} silent")
            if silence.lasts is not None and not agents.wait(silence.lasts):
                agents.speak(silence.names)
                out(f"{counted(len(silence.names), 'node')} back")
        agents.wait()
    except KeyboardInterrupt:
        agents.stop()
        note("stopped")
    finally:
        agents.stop()
    if agents.failure is not None:
        raise agents.failure


def _cordon(names: list[str], server: str | None, selector: str, unschedulable: bool, dry_run: DryRunBy) -> None:
    word = "cordoned" if unschedulable else "uncordoned"
    wanted = [node_named(name, "cordoned") for name in names] if names else [Reference(NODE)]
    if not names and not selector:
        wrong("name the nodes, or choose them with -l")
    with acting(server) as (client, failures):
        for target in some(targets(client, wanted, "", selector, False)):
            with failures.told():
                if dry_run is DryRunBy.none:
                    changed = client.cordon(target.name, unschedulable).changed
                else:
                    changed = would_change(client, target, cordon_edit(unschedulable), dry_run)
                out(f"{target} {word if changed else f'already {word}'}{dry_run.suffix}")


def node_named(word: str, done: str) -> Reference:
    """NAME or node/NAME; `done` says what only nodes can be."""
    kind, slash, name = word.rpartition("/")
    if slash and kind_named(kind) is not NODE:
        fail(f"{word!r} is no node; only nodes are {done}")
    return Reference(NODE, name)


def taints(texts: Sequence[str]) -> tuple[list[Taint], list[Taint]]:
    """The taints to set and those to remove."""
    add: list[Taint] = []
    remove: list[Taint] = []
    for text in texts:
        gone = text.endswith("-")
        found = _TAINT.fullmatch(text[:-1] if gone else text)
        effect = (found["effect"] if found else None) or ""
        if found is None or (effect and effect not in _EFFECTS) or not (gone or effect):
            wrong(f"{text!r} is no taint; want {_A_TAINT}")
        taint = Taint(key=found["key"], value=found["value"] or "", effect=effect)
        if not gone and any((taint.key, taint.effect) == (other.key, other.effect) for other in add):
            wrong(f"{text!r}: a node has one taint of a key and effect; this is the second one")
        (remove if gone else add).append(taint)
    if not texts:
        wrong(f"name at least one taint: {_A_TAINT}")
    return add, remove


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, found = text.partition("=")
        if not equals or not key:
            wrong(f"{option} {text!r}: want NAME=VALUE")
        pairs[key] = found
    return pairs
