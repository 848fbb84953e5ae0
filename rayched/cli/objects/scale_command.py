"""scale: how many pods a ReplicaSet is to have, or how many of a Job run at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from rayched.cli.connection import acting
from rayched.cli.options import Namespace, Selector, Server
from rayched.cli.printing import note, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, references, targets

_REPLICAS_MAX = 2**31 - 1


def scale(
    words: Annotated[list[str], typer.Argument(metavar="OBJECT", hidden=True)],
    replicas: Annotated[int, typer.Option("--replicas", metavar="N", min=0, max=_REPLICAS_MAX, help="The new number of pods.")],
    namespace: Namespace = "",
    server: Server = None,
    selector: Selector = "",
    scale_all: Annotated[bool, typer.Option("--all", help="Select all objects of the type in the namespace.")] = False,
    current_replicas: Annotated[
        int, typer.Option("--current-replicas", metavar="N", min=-1, help="Scale only if this is the present number; -1: always.")
    ] = -1,
) -> None:
    """Set how many pods a ReplicaSet is to have.

    Of a Job it is how many run at a time. StatefulSets and ReplicationControllers are scaled too, but nothing makes pods of them.

    \b
      rayched scale rs web --replicas 5
      rayched scale replicaset/web job/count --replicas 0
      rayched scale rs web --current-replicas 2 --replicas 3
    """
    with acting(server) as (client, failures):
        found = list(targets(client, references(words), namespace or DEFAULT_NAMESPACE, selector, scale_all))
        if not found:
            note("No resources found")
        for target in found:
            if not target.kind.namespaced:
                wrong(f"{target}: cannot be scaled")
            with failures.told():
                client.scale(
                    target.kind,
                    target.name,
                    target.namespace,
                    replicas=replicas,
                    current_replicas=None if current_replicas < 0 else current_replicas,
                )
                out(f"{target} scaled")
