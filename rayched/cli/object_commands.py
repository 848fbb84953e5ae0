"""apply, describe and api-resources: kubectl's verbs on objects. The other ones, longer, have modules of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import grpc
import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.cli import describing, printing
from rayched.cli.connection import ObjectFailures, connected
from rayched.cli.manifests import judged_here, namespace_hint, read_manifests
from rayched.cli.options import AllNamespaces, DryRunBy, DryRunOption, Namespace, Recursive, Selector, Server, Words
from rayched.cli.planned_apply import apply_at_plan, read_plan
from rayched.cli.printing import fail, note, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, label_of, references
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import ApplyResponse
from rayched.v1.workloads_pb2 import Object

_ACTIONS = {ApplyResponse.CREATED: "created", ApplyResponse.CONFIGURED: "configured", ApplyResponse.UNCHANGED: "unchanged"}

Files = Annotated[
    list[str],
    typer.Option(
        "--filename", "-f", metavar="FILE|DIR|URL|-", help="Manifests; - is standard input. May be repeated.", show_default=False
    ),
]


def apply(
    filename: Files,
    namespace: Namespace = "",
    server: Server = None,
    recursive: Recursive = False,
    dry_run: DryRunOption = DryRunBy.none,
    at_plan: Annotated[
        str,
        typer.Option("--at-plan", metavar="FILE", help="Place pods as this plan says, or change nothing.", show_default=False),
    ] = "",
) -> None:
    """Create or change objects as manifests say.

    \b
      rayched apply -f web.yaml -f examples/
      rayched get pods -o yaml | rayched apply -f -
      rayched apply -f web.yaml --at-plan plan.json     as `plan -f web.yaml --out plan.json` said
    """
    if at_plan and dry_run is not DryRunBy.none:
        wrong("--at-plan cannot be combined with --dry-run; rayched plan changes nothing")
    saved = read_plan(at_plan) if at_plan else None
    results = read_manifests(filename, recursive=recursive, namespace=namespace)
    if saved is not None:
        with connected(server) as client:
            apply_at_plan(client, results, saved)
        return
    failures = ObjectFailures()
    with connected(server) as client, printing.progress("applying", len(results)) as bar:
        for result in results:
            bar.advance(bar.task_ids[0])
            kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
            if metadata.generate_name and not metadata.name:
                fail(
                    f"{kind.name} {metadata.generate_name}: metadata.generateName: apply needs a metadata.name instead; "
                    "`rayched create -f` makes a name"
                )
            with failures.told(namespace_hint, result.source):
                action, warnings = _applied(client, result.object, dry_run)
                for warning in warnings:
                    note(f"Warning: {label_of(kind, metadata.name)}: {warning}")
                out(f"{label_of(kind, metadata.name)} {action}{dry_run.suffix}")
    failures.end()


def _applied(client: Client, item: Object, dry_run: DryRunBy) -> tuple[str, Sequence[str]]:
    """What was done, or would be, and warnings."""
    if dry_run is DryRunBy.client:
        judged_here(item)
        metadata = kinds.unwrap(item).metadata
        try:
            client.get(kinds.of(item), metadata.name, metadata.namespace or DEFAULT_NAMESPACE)
        except ApiError as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:
                raise
            return "created", ()
        return "configured", ()
    response = client.apply(item, dry_run=dry_run is DryRunBy.server)
    return _ACTIONS[response.action], response.warnings


def describe(
    words: Words,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
) -> None:
    """Show objects with all that belongs to them.

    \b
      rayched describe pod web-0                why it is where it is, or why it is not
      rayched describe node/node-001            what it offers, and what is taken of it
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


def api_resources(
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Do not print headings.")] = False,
) -> None:
    """Show the kinds of objects that are served."""
    rows = [
        [kind.plural, ",".join(kind.short_names), kind.api_version, str(kind.namespaced).lower(), kind.name]
        for kind in sorted(kinds.KINDS, key=lambda kind: kind.plural)
    ]
    headings = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    printing.plain_table(headings, rows, show_headings=not no_headers)
