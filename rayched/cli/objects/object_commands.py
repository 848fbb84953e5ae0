"""describe and api-resources: kubectl's verbs that show what there is. `get` has a module of its own."""

from __future__ import annotations

import enum
import time
from typing import Annotated

import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.cli import printing
from rayched.cli.connection import ObjectFailures, connected
from rayched.cli.objects import describing
from rayched.cli.options import AllNamespaces, Namespace, Selector, Server, Words
from rayched.cli.printing import out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, references


def describe(
    words: Words,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
) -> None:
    """Show objects with all that belongs to them.

    \b
      rayched describe pod web-0       why it is where it is, or why it is not
      rayched describe node/node-001   what it offers, and what is taken of it
      rayched describe pods -l app=web
    """
    wanted = references(words)
    if any(reference.name for reference in wanted) and (selector or all_namespaces):
        wrong("a name cannot be combined with a selector or --all-namespaces")
    where = "" if all_namespaces else namespace
    failures = ObjectFailures()
    with connected(server) as client:
        found: list[AnyObject] = []
        for reference in wanted:
            with failures.told():
                if reference.name:
                    found.append(client.get(reference.kind, reference.name, namespace))
                else:
                    found += client.list(reference.kind, namespace=where, label_selector=selector)
        for position, item in enumerate(found):
            out(("\n\n" if position else "") + describing.describe(client, item, time.time()))
    if not found and not failures.some:
        printing.nothing_found(where if any(reference.kind.namespaced for reference in wanted) else "")
    failures.end()


class ResourceOutput(enum.StrEnum):
    """What `api-resources` prints of a kind."""

    table = ""
    name = "name"


def api_resources(
    output: Annotated[
        ResourceOutput,
        typer.Option("--output", "-o", metavar="name", help="Print names alone, with API groups."),
    ] = ResourceOutput.table,
    namespaced: Annotated[
        bool | None,
        typer.Option("--namespaced/--no-namespaced", help="Only kinds with, or without, a namespace.", show_default=False),
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Do not print headings.")] = False,
) -> None:
    """Show the kinds of objects that are served.

    \b
      rayched api-resources --namespaced=false
      rayched api-resources -o name
    """
    found = [kind for kind in kinds.KINDS if namespaced in (None, kind.namespaced)]
    if output is ResourceOutput.name:
        for kind in sorted(found, key=lambda kind: kind.plural):
            out(f"{kind.plural}.{kind.group}" if kind.group else kind.plural)
        return
    headings = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    rows = [
        [kind.plural, ",".join(kind.short_names), kind.api_version, str(kind.namespaced).lower(), kind.name]
        for kind in sorted(found, key=lambda kind: kind.plural)
    ]
    printing.plain_table(headings, rows, show_headings=not no_headers)
