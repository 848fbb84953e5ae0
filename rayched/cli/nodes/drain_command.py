"""drain: cordon nodes and evict their pods, within what disruption budgets allow."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rayched.api.kinds import NODE
from rayched.cli.connection import ObjectFailures, connected
from rayched.cli.nodes.draining import NodeDrain, Ways, choose
from rayched.cli.nodes.node_commands import node_named
from rayched.cli.options import DryRunBy, DryRunOption, NodeNames, Selector, Server, seconds_of
from rayched.cli.printing import note, nothing_found, out, progress, wrong
from rayched.cli.references import NamedObject, Reference, targets
from rayched.client.client import Client
from rayched.v1.core_pb2 import Node, Pod


def drain(
    nodes: NodeNames = None,
    server: Server = None,
    selector: Selector = "",
    pod_selector: Annotated[
        str, typer.Option(metavar="LABELS", help="Only pods with these labels, as in app!=db.", show_default=False)
    ] = "",
    ignore_daemonsets: Annotated[bool, typer.Option("--ignore-daemonsets", help="Ignore pods of DaemonSets.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also evict pods without a controller, which are not replaced.")] = False,
    delete_emptydir_data: Annotated[
        bool, typer.Option("--delete-emptydir-data", help="Accepted for compatibility; no effect.")
    ] = False,
    disable_eviction: Annotated[
        bool, typer.Option("--disable-eviction", help="Delete pods instead of evicting them; ignores budgets.")
    ] = False,
    grace_period: Annotated[
        int, typer.Option(metavar="SECONDS", min=-1, help="Seconds the pod gets to stop; 0: none, -1: the pod's own value.")
    ] = -1,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="When to give up on a node, as in 90s or 5m; 0s: never.")
    ] = "0s",
    skip_wait_for_delete_timeout: Annotated[
        int, typer.Option(metavar="SECONDS", min=0, help="Do not wait for pods that have been terminating for so long; 0: wait.")
    ] = 0,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Cordon nodes and evict their pods.

    Pods go as far and as fast as disruption budgets allow it; what is held back, and by which budget, is shown.

    \b
      rayched drain node-001 --ignore-daemonsets
      rayched drain -l topology.kubernetes.io/zone=zone-a --timeout 10m
      rayched drain node-001 --dry-run
    """
    del delete_emptydir_data
    ways = Ways(
        force=force,
        ignore_daemonsets=ignore_daemonsets,
        disable_eviction=disable_eviction,
        dry_run_by=dry_run,
        grace_period_seconds=None if grace_period < 0 else grace_period,
        timeout_seconds=seconds_of("--timeout", timeout),
        skip_wait_seconds=skip_wait_for_delete_timeout,
    )
    if bool(nodes) == bool(selector):
        wrong("name the nodes, or choose them with -l")
    wanted = [node_named(name, "drained") for name in nodes] if nodes else [Reference(NODE)]
    failures = ObjectFailures()
    left: list[str] = []
    with connected(server) as client:
        cordoned: list[NamedObject] = []
        for target in targets(client, wanted, "", selector, False):
            with failures.told():
                _cordon(client, target, ways)
                cordoned.append(target)
        if not cordoned and not failures.some:
            nothing_found("")
        for target in cordoned:
            with failures.told():
                if not _drain(client, target, ways, pod_selector):
                    left.append(target.name)
    if left:
        note(f"There are pending nodes to be drained: {', '.join(left)}")
        raise SystemExit(1)
    failures.end()


def _cordon(client: Client, target: NamedObject, ways: Ways) -> None:
    if ways.dry_run:
        node = client.get(NODE, target.name)
        changed = isinstance(node, Node) and not node.spec.unschedulable
    else:
        changed = client.cordon(target.name).changed
    out(f"{target} {'cordoned' if changed else 'already cordoned'}{ways.dry_run_by.suffix}")


def _drain(client: Client, target: NamedObject, ways: Ways, pod_selector: str) -> bool:
    """Whether the node is empty now."""
    found = client.list("pods", field_selector=f"spec.nodeName={target.name}", label_selector=pod_selector)
    choice = choose((pod for pod in found if isinstance(pod, Pod)), ways, time.time())
    if choice.errors:
        for line in choice.errors:
            note(f"error: {target}: {line}")
        return False
    for line in choice.warnings:
        note(f"Warning: {line}")
    drain = NodeDrain(client, ways, choice.pods, out, note)
    with progress(f"draining {target.name}", len(choice.pods)) as bar:
        drained = drain.run(bar.advance)
    for line in drain.failures:
        note(f"error: {target}: {line}")
    if drained:
        out(f"{target} drained{ways.dry_run_by.suffix}")
    elif ways.timeout_seconds and not ways.dry_run:
        note(f"error: {target}: not drained within {ways.timeout_seconds:g} s")
    return drained
