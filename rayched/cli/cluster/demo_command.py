"""demo: what it is called with. The work is in demonstration.py, which a client alone cannot import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rayched.cli.cluster.examples_command import examples_directory
from rayched.cli.printing import wrong
from rayched.replica.settings import DEFAULT_PORT


def demo(
    nodes: Annotated[int, typer.Option(metavar="N", help="Hollow nodes.", min=1, max=5000)] = 100,
    real_nodes: Annotated[int, typer.Option(metavar="N", help="Nodes that really run pods, on this host.", min=0, max=9)] = 3,
    pods: Annotated[int, typer.Option(metavar="N", help="Pods to submit.", min=2, max=100_000)] = 1000,
    replicas: Annotated[int, typer.Option(metavar="N", help="Replicas.", min=2, max=5)] = 3,
    examples: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Manifests to apply first; not given: rayched's examples.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the first replica; the others use the next ones.", min=1, max=65_000)
    ] = DEFAULT_PORT,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running at the end.")] = False,
) -> None:
    """Show it all in a minute: a cluster, its load, its leader killed, and what an independent auditor counts."""
    # Not at the top: it needs etcd3, which a client has not.
    from rayched.cli.cluster.demonstration import Demonstration

    if examples is not None and not examples.exists():
        wrong(f"--examples {examples}: no such directory")
    Demonstration(examples or examples_directory(), nodes, real_nodes, pods, replicas, port, keep=keep).run()
