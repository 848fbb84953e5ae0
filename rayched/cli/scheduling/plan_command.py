"""plan: what would happen, on a copy of the cluster, changing nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rayched.api.manifest import ReadResult
from rayched.cli import printing
from rayched.cli.connection import connected
from rayched.cli.manifests.named_manifests import read_manifests
from rayched.cli.options import Namespace, Recursive, Server
from rayched.cli.printing import counted, fail, out, out_sentence
from rayched.client.client import Client
from rayched.v1.core_pb2 import Node

if TYPE_CHECKING:
    from rayched.cli.scheduling.plan_inputs import Start
    from rayched.whatif.cluster import Cluster
    from rayched.whatif.plan import GroupOutlook, Unplaced, WhatIfPlan

PLACES = 1
FAILED = 2
_NAMED_MAX = 5
"""Pods that a drain would delete for good."""


class PlanOutput(StrEnum):
    """What `plan` prints."""

    json = "json"


def plan(
    filename: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", metavar="FILE|DIR|URL|-", help="Manifests that would be applied.", show_default=False),
    ] = None,
    namespace: Namespace = "",
    server: Server = None,
    recursive: Recursive = False,
    add_nodes: Annotated[
        int | None,
        typer.Option("--add-nodes", metavar="N", min=1, help="Add N nodes like the one of --like.", show_default=False),
    ] = None,
    like: Annotated[str, typer.Option("--like", metavar="NODE", help="The node that --add-nodes copies.")] = "",
    drain: Annotated[
        list[str] | None,
        typer.Option("--drain", metavar="NODE", help="The node would be drained. May be repeated.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="A KubeSchedulerConfiguration in place of the cluster's.", show_default=False
        ),
    ] = None,
    kubectl: Annotated[
        list[str] | None,
        typer.Option(
            "--from-kubectl",
            metavar="FILE,...",
            help="Plan on the output of kubectl get nodes,pods -A -o yaml, without a cluster.",
            show_default=False,
        ),
    ] = None,
    handed_over: Annotated[int | None, typer.Option("--handed-over", metavar="FD", min=0, hidden=True)] = None,
    output: Annotated[
        PlanOutput | None, typer.Option("--output", "-o", metavar="json", help="Print JSON.", show_default=False)
    ] = None,
    saved_as: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Save the plan, for apply --at-plan.", show_default=False)
    ] = None,
) -> None:
    """Show where pods would go, changing nothing. Pod groups go whole or not at all, and the plan says which.
    Pods that a ReplicaSet or Job would get have new1, new2, ... in their names.

    \b
      rayched plan -f web.yaml                       what applying it would place
      rayched plan -f web.yaml --out plan.json       for apply --at-plan
      rayched plan --add-nodes 20 --like node-001    what pods that wait would do
      rayched plan --drain node-001                  where its pods would go
      rayched plan -f web.yaml --config other.yaml   with other plugins or weights
      rayched plan --from-kubectl nodes.yaml,pods.yaml -f web.yaml

    Exit codes: 0 nothing would change, 1 pods would be placed, preempted, evicted or deleted, 2 an error.
    """
    with printing.failing_with(FAILED):
        if bool(add_nodes) != bool(like):
            fail("--add-nodes and --like belong together: how many nodes, and of which one's shape")
        results = read_manifests(filename, recursive=recursive, namespace=namespace) if filename else []
        start = _start(server, kubectl, handed_over)
        found = _planned(results, start, config, add_nodes or 0, like, drain or ())
        text = json.dumps({"revision": start.revision, **asdict(found)}, indent=2)
        if saved_as is not None:
            _save(saved_as, text)
    if output is PlanOutput.json:
        out(text)
    else:
        _print(found, start)
    if not found.is_empty:
        raise SystemExit(PLACES)


def planned(results: Sequence[ReadResult], client: Client) -> WhatIfPlan:
    """What would happen to the manifests on the cluster as it is."""
    # See _planned.
    from rayched.cli.scheduling.plan_inputs import from_cluster

    return _planned(results, from_cluster(client), None, 0, "", ())


def _start(server: str | None, kubectl: list[str] | None, descriptor: int | None) -> Start:
    # See _planned.
    from rayched.cli.scheduling.plan_inputs import from_cluster, from_descriptor, from_kubectl

    if descriptor is not None:
        return from_descriptor(descriptor)
    if kubectl:
        return from_kubectl(kubectl)
    with connected(server) as client:
        return from_cluster(client)


def _planned(
    results: Sequence[ReadResult], start: Start, config: Path | None, add_nodes: int, like: str, drained: Sequence[str]
) -> WhatIfPlan:
    # It brings numpy, which starts threads: a replica, which is a command as well, has to block signals before any thread.
    from rayched.cli.scheduling.plan_inputs import more_nodes, profiles_of, wanted
    from rayched.core.groups.planning import planner_of
    from rayched.whatif.cluster import Cluster

    asked = wanted(results, start)
    profiles = profiles_of(start, config)
    cluster = Cluster([*start.objects, *asked.others], profiles, start.basis)
    planner = planner_of(cluster)
    planner.delete(asked.deleted)
    if add_nodes:
        for node in more_nodes(add_nodes, _node(cluster, like, "--like")):
            cluster.add_node(node)
    # All are cordoned before any is emptied: no pod moves from one drained node to another.
    for name in drained:
        _node(cluster, name, "--drain")
        cluster.cordon(name)
    for name in drained:
        planner.drain(name)
    return planner.plan(asked.new)


def _outlook(group: GroupOutlook) -> str:
    """A pod group: whole, or why not."""
    placed = f"{group.placed} of {counted(group.members, 'member')} that wait would be placed"
    if group.is_whole:
        return f"Pod group {group.group} would be whole: {placed}, {group.min_count} are needed"
    return f"Pod group {group.group} would not start: {placed}: {group.reason}"


def _save(file: Path, text: str) -> None:
    try:
        file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        fail(f"--out {file}: {error.strerror}")


def _node(cluster: Cluster, name: str, option: str) -> Node:
    try:
        return cluster.node(name)
    except KeyError:
        fail(f'{option}: there is no node "{name}"')


def _print_unplaced(heading: str, unplaced: Sequence[Unplaced], *, below: bool) -> None:
    """`below` other lines."""
    if not unplaced:
        return
    if below:
        out("")
    out(heading)
    reasons = Counter(one.reason for one in unplaced)
    for reason, count in reasons.most_common():
        first = next(one.pod for one in unplaced if one.reason == reason)
        named = first if count == 1 else f"{first} and {count - 1} more"
        out_sentence(f"{named}: {reason}", "  ")


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _print(found: WhatIfPlan, start: Start) -> None:
    if found.uncontrolled:
        out_sentence(f"The drain would delete for good, as no controller makes them anew: {_some(found.uncontrolled)}")
        out_sentence("What follows says where they would go if you made them anew.")
        out("")
    if found.placements:
        printing.plain_table(["POD", "NODE"], [(one.pod, one.node_name) for one in found.placements])
    for preemption in found.preemptions:
        where = f" on {preemption.node_name}" if preemption.node_name else ""
        out_sentence(f"{preemption.pod} would preempt {', '.join(preemption.victims)}{where}")
    if found.deleted:
        out_sentence(f"Would be deleted by their controllers: {_some(found.deleted)}")
    for group in found.groups:
        out_sentence(_outlook(group))
    new = [one for one in found.unplaced if not one.waits_already]
    _print_unplaced(f"{counted(len(new), 'pod')} would stay pending:", new, below=bool(found.placements))
    others = [one for one in found.unplaced if one.waits_already]
    _print_unplaced("Pending already, and would stay so:", others, below=bool(found.placements or new))
    at = f" at revision {start.revision}" if start.revision else ""
    gone = len(found.uncontrolled) + len(found.deleted)
    out_sentence(
        f"Plan{at}: {counted(len(found.placements), 'pod')} would be placed, {len(found.preemptions)} would preempt others, "
        f"{len(found.unplaced)} would stay pending{f', {gone} would be deleted' if gone else ''}."
    )
