"""cordon, uncordon, taint, label: kubectl's verbs of administration; and hollow-nodes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from rayched.api import quantity
from rayched.api.kinds import NODE
from rayched.cli.connection import ObjectFailures, connected
from rayched.cli.options import Namespace, NodeNames, Overwrite, Selector, Server
from rayched.cli.printing import counted, fail, note, nothing_found, out, progress, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NamedObject, Reference, kind_named, references, targets
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Taint

_TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^:=]*))?(:(?P<effect>[A-Za-z]+))?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_A_TAINT = f"KEY[=VALUE]:EFFECT with {', '.join(_EFFECTS)}, or KEY[:EFFECT]- to remove it"
_PATIENCE_SECONDS = 30.0
"""Hollow nodes may be started beside the cluster that they are for."""

All = Annotated[bool, typer.Option("--all", help="All of them.")]


def cordon(nodes: NodeNames = None, server: Server = None, selector: Selector = "") -> None:
    """Keep new pods off nodes.

    \b
      rayched cordon node-001 node-002
      rayched cordon -l topology.kubernetes.io/zone=zone-a
    """
    _cordon(nodes or [], server, selector, True, "cordoned")


def uncordon(nodes: NodeNames = None, server: Server = None, selector: Selector = "") -> None:
    """Let new pods on nodes again."""
    _cordon(nodes or [], server, selector, False, "uncordoned")


def taint(
    words: Annotated[list[str], typer.Argument(metavar="NODE|TAINT", hidden=True)],
    server: Server = None,
    overwrite: Overwrite = False,
    selector: Selector = "",
    every: All = False,
) -> None:
    """Set and remove taints of nodes.

    \b
      rayched taint nodes node-001 dedicated=experiments:NoSchedule
      rayched taint nodes node-001 dedicated:NoSchedule-      this effect alone
      rayched taint nodes -l disktype=ssd dedicated-          all effects
    """
    wanted, texts = named_and_changes(words)
    if any(reference.kind is not NODE for reference in wanted):
        fail("taints are set on nodes: taint nodes NAME KEY=VALUE:EFFECT")
    add, remove = taints(texts)
    failures = ObjectFailures()
    with connected(server) as client:
        for target in _some(targets(client, wanted, "", selector, every)):
            with failures.told(_overwrite_hint):
                changed = client.taint(target.name, add=add, remove=remove, overwrite=overwrite).changed
                verb = ("modified" if add and remove else "tainted" if add else "untainted") if changed else "not changed"
                out(f"{target} {verb}")
    failures.end()


def label(
    words: Annotated[list[str], typer.Argument(metavar="OBJECT|LABEL", hidden=True)],
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    overwrite: Overwrite = False,
    selector: Selector = "",
    every: All = False,
) -> None:
    """Set and remove labels of objects.

    \b
      rayched label node node-001 disktype=ssd
      rayched label pods web-0 web-1 tier=db --overwrite
      rayched label pods -l app=web tier-
    """
    wanted, texts = named_and_changes(words)
    add, remove = labels(texts)
    failures = ObjectFailures()
    with connected(server) as client:
        for target in _some(targets(client, wanted, namespace, selector, every)):
            with failures.told(_overwrite_hint):
                changed = client.label(
                    target.kind, target.name, target.namespace, add=add, remove=remove, overwrite=overwrite
                ).changed
                out(f"{target} {('labeled' if add else 'unlabeled') if changed else 'not labeled'}")
    failures.end()


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
        float | None, typer.Option(metavar="SECONDS", help="Then nodes fall silent, as if cut off.", min=0.0, show_default=False)
    ] = None,
    silent_for: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="So long; none: for good.", min=0.0, show_default=False)
    ] = None,
    silent_nodes: Annotated[
        int | None, typer.Option(metavar="N", help="The first N of them alone; none: all.", min=1, show_default=False)
    ] = None,
) -> None:
    """Register nodes that run nothing, and answer for them.

    Up to 20,000 of them, until interrupted: heartbeats are kept up, pods that are bound to them become Running.
    To see what becomes of lost nodes and their pods, let some of them fall silent.

    \b
      rayched hollow-nodes 100 --zones 3
      rayched hollow-nodes 100 --silent-after 30 --silent-nodes 5 --silent-for 600
      rayched hollow-nodes 8 --prefix gpu --resource nvidia.com/gpu=8 --label accelerator=a100
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
        agents.register(lambda done: bar.advance(bar.task_ids[0], done))
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
        note("stopping")
    finally:
        agents.stop()
    if agents.failure is not None:
        raise agents.failure


def _cordon(names: list[str], server: str | None, selector: str, unschedulable: bool, word: str) -> None:
    wanted = [node_named(name, "cordoned") for name in names] if names else [Reference(NODE)]
    if not names and not selector:
        wrong("name the nodes, or choose them with -l")
    failures = ObjectFailures()
    with connected(server) as client:
        for target in _some(targets(client, wanted, "", selector, False)):
            with failures.told():
                changed = client.cordon(target.name, unschedulable).changed
                out(f"{target} {word if changed else f'already {word}'}")
    failures.end()


def node_named(word: str, done: str) -> Reference:
    """NAME or node/NAME; `done` says what only nodes can be."""
    kind, slash, name = word.rpartition("/")
    if slash and kind_named(kind) is not NODE:
        fail(f"{word!r} is no node; only nodes are {done}")
    return Reference(NODE, name)


def _some(found: Iterable[NamedObject]) -> Iterator[NamedObject]:
    """The targets, and a word where there are none."""
    target = None
    for target in found:
        yield target
    if target is None:
        nothing_found("")


def _overwrite_hint(error: ApiError) -> str:
    return "--overwrite replaces it" if "overwrite is not set" in error.message else ""


def named_and_changes(words: Sequence[str]) -> tuple[list[Reference], list[str]]:
    """`nodes a b key=value key-`, `node/a key-`: what comes before the first change names the objects."""
    first = next((index for index, word in enumerate(words) if _is_change(word)), len(words))
    names, changes = words[:first], list(words[first:])
    if not names:
        fail(f"{words[0]!r} comes before any object; name one as TYPE NAME or TYPE/NAME")
    for word in changes:
        if not _is_change(word):
            fail(f"{word!r} is neither KEY=VALUE nor KEY-; objects are named first")
    return references(names), changes


def _is_change(word: str) -> bool:
    """No name of an object has such a character, nor ends so."""
    return "=" in word or ":" in word or word.endswith("-")


def taints(texts: Sequence[str]) -> tuple[list[Taint], list[Taint]]:
    """The taints to set and those to remove."""
    add: list[Taint] = []
    remove: list[Taint] = []
    for text in texts:
        gone = text.endswith("-")
        found = _TAINT.fullmatch(text[:-1] if gone else text)
        effect = (found["effect"] if found else None) or ""
        if found is None or (effect and effect not in _EFFECTS) or not (gone or effect):
            fail(f"{text!r} is no taint; want {_A_TAINT}")
        taint = Taint(key=found["key"], value=found["value"] or "", effect=effect)
        if not gone and any((taint.key, taint.effect) == (other.key, other.effect) for other in add):
            fail(f"{text!r}: a node has one taint of a key and effect; this is the second one")
        (remove if gone else add).append(taint)
    if not texts:
        fail(f"name at least one taint: {_A_TAINT}")
    return add, remove


def labels(texts: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The labels to set and those to remove."""
    add: dict[str, str] = {}
    remove: list[str] = []
    for text in texts:
        key, equals, found = text.partition("=")
        if equals and key:
            if add.get(key, found) != found:
                fail(f"{text!r}: label {key} has another value on the same command line")
            add[key] = found
        elif not equals and len(text) > 1 and text.endswith("-"):
            remove.append(text[:-1])
        else:
            fail(f"{text!r} is neither KEY=VALUE nor KEY-")
    for key in remove:
        if key in add:
            fail(f"label {key} cannot be set and removed at once")
    if not texts:
        fail("name at least one label: KEY=VALUE, or KEY- to remove it")
    return add, remove


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, found = text.partition("=")
        if not equals or not key:
            wrong(f"{option} {text!r}: want NAME=VALUE")
        pairs[key] = found
    return pairs
