"""get: objects as a table, as manifests or as names, now and as they change."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject, Kind
from rayched.api.manifest import write_json, write_object, write_text
from rayched.api.yaml_text import dump_all
from rayched.cli import printing
from rayched.cli.columns import NAME, Column, cells, columns_of
from rayched.cli.connection import ObjectFailures, connected
from rayched.cli.options import AllNamespaces, FieldSelector, Namespace, Output, Selector, Server, Words
from rayched.cli.printing import out, out_json, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, Reference, label_of, references
from rayched.client.client import Client

Found = list[tuple[Kind, list[AnyObject]]]


def get(
    words: Words,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    all_namespaces: AllNamespaces = False,
    output: Annotated[Output | None, typer.Option("--output", "-o", metavar="wide|yaml|json|name", help="Format.")] = None,
    selector: Selector = "",
    field_selector: FieldSelector = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with changes as they come.")] = False,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="All labels as the last column.")] = False,
    label_columns: Annotated[
        list[str] | None, typer.Option("--label-columns", "-L", metavar="KEY", help="This label as a column. May be repeated.")
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="The rows alone.")] = False,
) -> None:
    """Show objects.

    \b
      rayched get pods                          the pods of a namespace
      rayched get pods,nodes -o wide            several types, more columns
      rayched get pods web-0 web-1 -o yaml      some of them, as manifests
      rayched get pod/web-0 node/node-001
      rayched get pods -A -l app=web -w         of all namespaces, by labels, as they change
    """
    wanted = references(words)
    if any(reference.name for reference in wanted) and (selector or field_selector or all_namespaces):
        wrong("a name cannot be combined with a selector or --all-namespaces")
    where = "" if all_namespaces else namespace
    keys = [key for text in label_columns or [] for key in text.split(",") if key]

    def columns(kind: Kind) -> list[Column]:
        wide = output is Output.wide
        return columns_of(kind, wide=wide, namespaces=not where, label_keys=keys, labels=show_labels)

    if watch:
        if len(wanted) > 1:
            wrong("--watch follows one type of object, or one object")
        with connected(server) as client:
            _watch(client, wanted[0], where, (selector, field_selector), output, columns(wanted[0].kind), not no_headers)
        return
    failures = ObjectFailures()
    with connected(server) as client:
        found = _found(client, wanted, where, selector, field_selector, failures)
    items = [item for _, some in found for item in some]
    if output in (Output.yaml, Output.json):
        if items or not failures.some:
            one = len(wanted) == 1 and bool(wanted[0].name)
            _document(_manifest(items[0], output) if one else _list(items, output), output)
    elif output is Output.name:
        for kind, some in found:
            for item in some:
                out(label_of(kind, item.metadata.name))
    elif items:
        several = len({reference.kind for reference in wanted}) > 1
        _tables([(kind, some) for kind, some in found if some], columns, several, not no_headers)
    elif not failures.some:
        printing.nothing_found(where if any(reference.kind.namespaced for reference in wanted) else "")
    failures.end()


def _found(
    client: Client, wanted: Sequence[Reference], namespace: str, selector: str, field_selector: str, failures: ObjectFailures
) -> Found:
    """The objects by kind, in the order in which the kinds were named."""
    found: dict[Kind, list[AnyObject]] = {}
    for reference in wanted:
        items = found.setdefault(reference.kind, [])
        with failures.told():
            if reference.name:
                items.append(client.get(reference.kind, reference.name, namespace))
            else:
                items += client.list(reference.kind, namespace=namespace, label_selector=selector, field_selector=field_selector)
    return list(found.items())


def _tables(found: Found, columns: Callable[[Kind], list[Column]], several: bool, show_headings: bool) -> None:
    now = time.time()
    for position, (kind, items) in enumerate(found):
        if position:
            out("")
        chosen = columns(kind)
        rows = [cells(item, chosen, now) for item in items]
        if several:
            # With kinds side by side a name alone says too little.
            places = [index for index, column in enumerate(chosen) if column is NAME]
            for row, item in zip(rows, items, strict=True):
                for place in places:
                    row[place] = label_of(kind, item.metadata.name)
        printing.plain_table([column.heading for column in chosen], rows, show_headings=show_headings)


def _document(text: str, output: Output) -> None:
    (out_json if output is Output.json else out)(text)


def _manifest(item: AnyObject, output: Output) -> str:
    return (write_text if output is Output.yaml else write_json)([kinds.wrap(item)])


def _list(items: Sequence[AnyObject], output: Output) -> str:
    """A List also where one object or none was found: what a script reads does not depend on how many there are."""
    documents = [write_object(kinds.wrap(item)) for item in items]
    found = {"apiVersion": "v1", "items": documents, "kind": "List", "metadata": {"resourceVersion": ""}}
    return dump_all([found]) if output is Output.yaml else json.dumps(found, indent=4, ensure_ascii=False)


def _watch(
    client: Client,
    wanted: Reference,
    namespace: str,
    selectors: tuple[str, str],
    output: Output | None,
    columns: list[Column],
    show_headings: bool,
) -> None:
    label_selector, field_selector = selectors
    if wanted.name:
        # A name that is not there is an error; from then on the object may come and go.
        client.get(wanted.kind, wanted.name, namespace)
        field_selector = f"metadata.name={wanted.name}"
    listing = client.list_all(wanted.kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector)
    table = printing.GrowingTable(len(columns))

    def show(items: Sequence[AnyObject], headings: Sequence[list[str]] = ()) -> None:
        if output is Output.yaml:
            for item in items:
                out("---\n" + _manifest(item, output))
        elif output is Output.json:
            for item in items:
                out_json(_manifest(item, output))
        elif output is Output.name:
            for item in items:
                out(label_of(wanted.kind, item.metadata.name))
        else:
            now = time.time()
            table.print([*headings, *(cells(item, columns, now) for item in items)])

    show(listing.objects, [[column.heading for column in columns]] if show_headings else [])
    stream = client.watch(
        wanted.kind,
        namespace=namespace,
        label_selector=label_selector,
        field_selector=field_selector,
        start_revision=listing.revision + 1,
    )
    with stream:
        for event in stream:
            if event.object is not None:
                show([event.object])
