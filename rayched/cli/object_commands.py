"""apply and describe: kubectl's verbs on objects. The other ones, longer, have modules of their own."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.cli import describing, printing
from rayched.cli.connection import ObjectFailures, connected
from rayched.cli.manifests import read_manifests
from rayched.cli.options import AllNamespaces, Namespace, Recursive, Selector, Server, Words
from rayched.cli.printing import fail, note, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, label_of, references
from rayched.v1.services_pb2 import ApplyResponse

_ACTIONS = {ApplyResponse.CREATED: "created", ApplyResponse.CONFIGURED: "configured", ApplyResponse.UNCHANGED: "unchanged"}

Files = Annotated[
    list[str],
    typer.Option(
        "--filename", "-f", metavar="FILE|DIR|-", help="Manifests; - is standard input. May be repeated.", show_default=False
    ),
]


def apply(
    filename: Files,
    namespace: Namespace = "",
    server: Server = None,
    recursive: Recursive = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Have everything judged and change nothing.")] = False,
) -> None:
    """Create or change objects as manifests say.

    \b
      rayched apply -f web.yaml -f examples/
      rayched get pods -o yaml | rayched apply -f -
    """
    results = read_manifests(filename, recursive=recursive, namespace=namespace)
    suffix = " (server dry run)" if dry_run else ""
    failures = ObjectFailures()
    with connected(server) as client, printing.progress("applying", len(results)) as bar:
        for result in results:
            bar.advance(bar.task_ids[0])
            kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
            if metadata.generate_name and not metadata.name:
                fail(f"{kind.name} {metadata.generate_name}: metadata.generateName: apply needs a metadata.name instead")
            with failures.told():
                response = client.apply(result.object, dry_run=dry_run)
                for warning in response.warnings:
                    note(f"Warning: {label_of(kind, metadata.name)}: {warning}")
                out(f"{label_of(kind, metadata.name)} {_ACTIONS[response.action]}{suffix}")
    failures.end()


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
