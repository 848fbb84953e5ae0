"""get: objects as a table, as manifests, as names or through a template, now and as they change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import grpc
import typer

from rayched.api import kinds
from rayched.api.columns import NAME, Column, cells, columns_of
from rayched.api.kinds import AnyObject, Kind
from rayched.api.manifest import write_object
from rayched.cli import printing
from rayched.cli.connection import ObjectFailures, connected
from rayched.cli.manifests.named_manifests import read_manifests
from rayched.cli.options import AllNamespaces, FieldSelector, IgnoreNotFound, Namespace, OfManifests, Recursive, Selector, Server
from rayched.cli.output.output_formats import OutputForm, OutputFormat, OutputOption, SortBy, output_format, sort
from rayched.cli.printing import out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, Reference, label_of, references
from rayched.client.client import Client
from rayched.client.errors import ApiError

Found = list[tuple[Kind, list[AnyObject]]]


def get(
    words: Annotated[list[str] | None, typer.Argument(metavar="OBJECT", hidden=True)] = None,
    filename: OfManifests = None,
    namespace: Namespace = "",
    server: Server = None,
    all_namespaces: AllNamespaces = False,
    recursive: Recursive = False,
    output: OutputOption = "",
    sort_by: SortBy = "",
    selector: Selector = "",
    field_selector: FieldSelector = "",
    ignore_not_found: IgnoreNotFound = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep watching, and print changes.")] = False,
    watch_only: Annotated[bool, typer.Option("--watch-only", help="Print only changes, not the objects as they are.")] = False,
    output_watch_events: Annotated[
        bool, typer.Option("--output-watch-events", help="With -w: print whether each was ADDED, MODIFIED or DELETED.")
    ] = False,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="Show all labels in the last column.")] = False,
    label_columns: Annotated[
        list[str] | None,
        typer.Option("--label-columns", "-L", metavar="KEY", help="Show this label as a column. May be repeated."),
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Do not print headings.")] = False,
) -> None:
    """Show objects.

    \b
      rayched get pods                          the pods of a namespace
      rayched get pods,nodes -o wide            several types, more columns
      rayched get pod/web-0 node/node-001 -o yaml
      rayched get pods -A -l app=web -w         of all namespaces, by labels, live
      rayched get pods -o jsonpath='{.items[*].spec.nodeName}'
      rayched get pods --sort-by .spec.nodeName -o custom-columns=N:.metadata.name
    """
    form = output_format(output)
    if bool(words) == bool(filename):
        wrong("name what to show: TYPE, TYPE NAME, TYPE/NAME, or -f FILE")
    if filename:
        _of_manifests(filename, namespace, recursive, server, form, not no_headers)
        return
    wanted = references(words or [])
    if any(reference.name for reference in wanted) and (selector or field_selector or all_namespaces):
        wrong("a name cannot be combined with a selector or --all-namespaces")
    where = "" if all_namespaces else namespace or DEFAULT_NAMESPACE
    keys = [key for text in label_columns or [] for key in text.split(",") if key]

    def columns(kind: Kind) -> list[Column]:
        wide = form.form is OutputForm.wide
        return columns_of(kind, wide=wide, namespaces=not where, label_keys=keys, labels=show_labels)

    if watch or watch_only:
        if len(wanted) > 1:
            wrong("--watch follows one type of object, or one object")
        if sort_by:
            wrong("--sort-by cannot be combined with --watch")
        show = ShownChanges(form, columns(wanted[0].kind), not no_headers, output_watch_events)
        with connected(server) as client:
            _watch(client, wanted[0], where, (selector, field_selector), show, watch_only=watch_only)
        return
    failures = ObjectFailures()
    with connected(server) as client:
        found = _found(client, wanted, where, (selector, field_selector), failures, ignore_not_found=ignore_not_found)
    if sort_by:
        found = [(kind, sort(items, sort_by)) for kind, items in found]
    nowhere = where if any(reference.kind.namespaced for reference in wanted) else ""
    one = len(wanted) == 1 and bool(wanted[0].name)
    _print(found, form, columns, failures, Shown(one, nowhere, not no_headers, silent=ignore_not_found))
    failures.end()


@dataclass(frozen=True, slots=True)
class Shown:
    """How a result is shown, and what is said where nothing was found."""

    one: bool
    namespace: str
    headings: bool
    silent: bool = False


def _print(
    found: Found, form: OutputFormat, columns: Callable[[Kind], list[Column]], failures: ObjectFailures, how: Shown
) -> None:
    items = [item for _, some in found for item in some]
    if not form.is_table:
        if items or not (failures.some or how.one):
            form.print(items, one=how.one, show_headings=how.headings)
    elif items:
        _tables([(kind, some) for kind, some in found if some], columns, len(found) > 1, how.headings)
    elif not failures.some and not how.silent:
        printing.nothing_found(how.namespace)


def _of_manifests(
    names: list[str], namespace: str, recursive: bool, server: str | None, form: OutputFormat, show_headings: bool
) -> None:
    """The objects that manifests name, as they are in the cluster."""
    results = read_manifests(names, recursive=recursive, namespace=namespace, warnings=False)
    failures = ObjectFailures()
    found: dict[Kind, list[AnyObject]] = {}
    with connected(server) as client:
        for result in results:
            kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
            with failures.told(source=result.source):
                item = client.get(kind, metadata.name, metadata.namespace or DEFAULT_NAMESPACE)
                found.setdefault(kind, []).append(item)
    wide = form.form is OutputForm.wide
    how = Shown(len(results) == 1, "", show_headings)
    _print(list(found.items()), form, lambda kind: columns_of(kind, wide=wide), failures, how)
    failures.end()


def _found(
    client: Client,
    wanted: Sequence[Reference],
    namespace: str,
    selectors: tuple[str, str],
    failures: ObjectFailures,
    *,
    ignore_not_found: bool,
) -> Found:
    """The objects by kind, in the order in which the kinds were named."""
    found: dict[Kind, list[AnyObject]] = {}
    for reference in wanted:
        items = found.setdefault(reference.kind, [])
        with failures.told():
            if not reference.name:
                labels, fields = selectors
                items += client.list(reference.kind, namespace=namespace, label_selector=labels, field_selector=fields)
                continue
            try:
                items.append(client.get(reference.kind, reference.name, namespace))
            except ApiError as error:
                if not (ignore_not_found and error.code is grpc.StatusCode.NOT_FOUND):
                    raise
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


class ShownChanges:
    """Prints objects as they come and change."""

    def __init__(self, form: OutputFormat, columns: list[Column], show_headings: bool, with_types: bool) -> None:
        self._form = form
        self._columns = columns
        self._with_types = with_types
        headings = list(form.columns.headings) if form.columns else [column.heading for column in columns]
        self._headings = [["EVENT", *headings] if with_types else headings] if show_headings else []
        self._table = printing.GrowingTable(len(headings) + with_types)

    def show(self, items: Sequence[AnyObject], event: str = "ADDED") -> None:
        if self._form.is_table or self._form.columns is not None:
            now = time.time()
            rows = [self._cells(item, now) for item in items]
            self._table.print([*self._headings, *([event, *row] if self._with_types else row for row in rows)])
            self._headings = []
            return
        for item in items:
            if self._form.form is OutputForm.yaml:
                out("---")
            if self._with_types:
                out(event)
            self._form.print([item], one=True)

    def _cells(self, item: AnyObject, now: float) -> list[str]:
        if self._form.columns is not None:
            return self._form.columns.cells(write_object(kinds.wrap(item)))
        return cells(item, self._columns, now)


def _watch(
    client: Client, wanted: Reference, namespace: str, selectors: tuple[str, str], shown: ShownChanges, *, watch_only: bool
) -> None:
    label_selector, field_selector = selectors
    if wanted.name:
        # A name that is not there is an error; from then on the object may come and go.
        client.get(wanted.kind, wanted.name, namespace)
        field_selector = f"metadata.name={wanted.name}"
    listing = client.list_all(wanted.kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector)
    shown.show([] if watch_only else listing.objects)
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
                shown.show([event.object], event.type.name)
