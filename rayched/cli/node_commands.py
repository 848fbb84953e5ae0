"""cordon, uncordon, taint, label: kubectl's verbs of administration; and hollow-nodes."""

from __future__ import annotations

import re
import signal
from typing import Annotated

import typer

from rayched.api.kinds import NODE
from rayched.cli.connection import Namespace, Server, connected
from rayched.cli.printing import fail, note, out, progress
from rayched.cli.references import one_reference
from rayched.client.client import Client
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Taint

_TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^:=]*))?(:(?P<effect>[A-Za-z]*))?(?P<remove>-)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

NodeNames = Annotated[list[str], typer.Argument(help="Names of nodes.")]
Overwrite = Annotated[bool, typer.Option(help="Replace a value that is there already.")]


def cordon(nodes: NodeNames, server: Server = None) -> None:
    """Keep new pods off nodes."""
    _cordon(nodes, server, True, "cordoned")


def uncordon(nodes: NodeNames, server: Server = None) -> None:
    """Let new pods on nodes again."""
    _cordon(nodes, server, False, "uncordoned")


def taint(
    words: Annotated[list[str], typer.Argument(help="nodes NAME KEY[=VALUE]:EFFECT ... or KEY[:EFFECT]- to remove")],
    server: Server = None,
    overwrite: Overwrite = False,
) -> None:
    """Set and remove taints of a node."""
    nodes, texts = _nodes_and_rest(words)
    add, remove = _taints(texts)
    with connected(server) as client:
        for name in nodes:
            changed = client.taint(name, add=add, remove=remove, overwrite=overwrite).changed
            verb = ("modified" if add and remove else "tainted" if add else "untainted") if changed else "not changed"
            out(f"node/{name} {verb}")


def label(
    words: Annotated[list[str], typer.Argument(help="TYPE NAME KEY=VALUE ... or KEY- to remove")],
    namespace: Namespace = "default",
    server: Server = None,
    overwrite: Overwrite = False,
) -> None:
    """Set and remove labels of an object."""
    split = 1 if words and "/" in words[0] else 2
    wanted = one_reference(words[:split])
    add: dict[str, str] = {}
    remove: list[str] = []
    for text in words[split:]:
        key, equals, found = text.partition("=")
        if equals and key:
            add[key] = found
        elif not equals and text.endswith("-") and len(text) > 1:
            remove.append(text[:-1])
        else:
            fail(f"{text!r} is neither KEY=VALUE nor KEY-")
    if not add and not remove:
        fail("name at least one label: KEY=VALUE, or KEY- to remove it")
    with connected(server) as client:
        answer = client.label(wanted.kind, wanted.name, namespace, add=add, remove=remove, overwrite=overwrite)
        verb = ("labeled" if add else "unlabeled") if answer.changed else "not labeled"
        out(f"{wanted} {verb}")


def hollow(
    count: Annotated[int, typer.Argument(help="How many nodes.", min=1, max=20_000)],
    server: Server = None,
    zones: Annotated[int, typer.Option(help="Zones to spread them over; 0: none.", min=0, max=1000)] = 3,
    cpu: Annotated[str, typer.Option(help="CPU of each node.")] = "16",
    memory: Annotated[str, typer.Option(help="Memory of each node.")] = "64Gi",
    pods: Annotated[int, typer.Option(help="Pods that each node takes.", min=1)] = 110,
    resource: Annotated[list[str] | None, typer.Option(help="Further resource, NAME=QUANTITY; may be repeated.")] = None,
    node_label: Annotated[list[str] | None, typer.Option("--label", help="Label, KEY=VALUE; may be repeated.")] = None,
    prefix: Annotated[str, typer.Option(help="What the names begin with.")] = "node",
    heartbeat: Annotated[float, typer.Option(help="Seconds between heartbeats.", min=0.1)] = 10.0,
    stop_after: Annotated[float, typer.Option(help="Seconds that a pod takes to stop.", min=0.0)] = 0.0,
) -> None:
    """Register nodes that run nothing, and answer for them until interrupted."""
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods), **_pairs("--resource", resource or [])}
    shape = NodeShape(resources, _pairs("--label", node_label or []))
    with connected(server, timeout_seconds=30.0) as client:
        agents = HollowNodes(
            client, hollow_nodes(count, zones, shape, prefix), heartbeat_seconds=heartbeat, stop_seconds=stop_after
        )
        run_agents(client, agents, count)


def run_agents(client: Client, agents: HollowNodes, count: int) -> None:
    """Registers and serves until SIGINT or SIGTERM, or until the cluster is gone for good."""
    with progress("registering", count) as bar:
        agents.register(lambda done: bar.advance(bar.task_ids[0], done))
    out(f"{count} hollow nodes registered at {', '.join(client.endpoints)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    agents.start()
    try:
        agents.wait()
    except KeyboardInterrupt:
        note("stopping")
    finally:
        agents.stop()
    if agents.failure is not None:
        raise agents.failure


def _cordon(nodes: list[str], server: str | None, unschedulable: bool, word: str) -> None:
    with connected(server) as client:
        for name in nodes:
            changed = client.cordon(name.removeprefix("node/"), unschedulable).changed
            out(f"node/{name.removeprefix('node/')} {word if changed else f'already {word}'}")


def _nodes_and_rest(words: list[str]) -> tuple[list[str], list[str]]:
    """`nodes a b key=value:Effect`, `node/a key-`; names come before the first word with a sign of a taint."""
    named = [word for word in words if word.startswith("node/")]
    if named:
        return [word.removeprefix("node/") for word in named], [word for word in words if word not in named]
    if not words or words[0] not in ("node", *NODE.short_names, NODE.plural):
        fail("taints are set on nodes: taint nodes NAME KEY=VALUE:EFFECT")
    rest = words[1:]
    first = next((i for i, word in enumerate(rest) if re.search(r"[=:]|-$", word)), len(rest))
    if not rest[:first]:
        fail("name the node: taint nodes NAME KEY=VALUE:EFFECT")
    return rest[:first], rest[first:]


def _taints(texts: list[str]) -> tuple[list[Taint], list[Taint]]:
    add: list[Taint] = []
    remove: list[Taint] = []
    for text in texts:
        found = _TAINT.fullmatch(text)
        effect = found["effect"] if found else None
        if found is None or (effect and effect not in _EFFECTS) or (not found["remove"] and not effect):
            fail(f"{text!r} is no taint; want KEY[=VALUE]:EFFECT with {', '.join(_EFFECTS)}, or KEY[:EFFECT]- to remove it")
        taint = Taint(key=found["key"], value=found["value"] or "", effect=effect or "")
        (remove if found["remove"] else add).append(taint)
    if not texts:
        fail("name at least one taint: KEY=VALUE:EFFECT, or KEY- to remove it")
    return add, remove


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, found = text.partition("=")
        if not equals or not key:
            fail(f"{option} {text!r}: want NAME=VALUE")
        pairs[key] = found
    return pairs
