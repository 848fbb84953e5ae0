"""apply, get, describe, delete: kubectl's verbs on objects."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import grpc
import typer

from rayched.api import kinds
from rayched.api.errors import FieldError
from rayched.api.kinds import AnyObject, Kind
from rayched.api.manifest import ReadResult, write_json, write_text
from rayched.cli import describing, printing
from rayched.cli.columns import cells, columns_of
from rayched.cli.connection import Namespace, Server, connected, report
from rayched.cli.manifests import read_manifests
from rayched.cli.printing import fail, note, out
from rayched.cli.references import Reference, one_reference, references
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.client.watch import EventType
from rayched.v1.services_pb2 import ApplyResponse

_ACTIONS = {ApplyResponse.CREATED: "created", ApplyResponse.CONFIGURED: "configured", ApplyResponse.UNCHANGED: "unchanged"}
_DELETE_WAIT_SECONDS = 0.1


class Output(enum.StrEnum):
    wide = "wide"
    yaml = "yaml"
    json = "json"
    name = "name"


Files = Annotated[list[str], typer.Option("--filename", "-f", help="File, directory or - for standard input; may be repeated.")]
Words = Annotated[list[str], typer.Argument(help="TYPE[,TYPE] [NAME...] or TYPE/NAME...")]
Selector = Annotated[str, typer.Option("--selector", "-l", help="Labels: app=web,tier!=db,env in (a,b)")]
FieldSelector = Annotated[str, typer.Option(help="Fields: spec.nodeName=node-001,status.phase!=Running")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Objects of all namespaces.")]
Recursive = Annotated[bool, typer.Option("--recursive", "-R", help="Directories with all that is below them.")]


def apply(
    filename: Files,
    namespace: Namespace = "",
    server: Server = None,
    recursive: Recursive = False,
    dry_run: Annotated[bool, typer.Option(help="Have everything judged and change nothing.")] = False,
) -> None:
    """Create objects, or change those that are there, as manifests say."""
    results = read_manifests(filename, recursive=recursive)
    for result in results:
        _place(result, namespace)
    suffix = " (server dry run)" if dry_run else ""
    with connected(server) as client, printing.progress("applying", len(results)) as bar:
        for result in results:
            label = _label(kinds.of(result.object), kinds.unwrap(result.object).metadata.name)
            try:
                response = client.apply(result.object, dry_run=dry_run)
            except ApiError as error:
                report(error, label)
            bar.advance(bar.task_ids[0])
            for warning in response.warnings:
                note(f"Warning: {label}: {warning}")
            # A name that was generated is known only now.
            name = kinds.unwrap(response.object).metadata.name
            out(f"{_label(kinds.of(result.object), name)} {_ACTIONS[response.action]}{suffix}")


def get(
    words: Words,
    namespace: Namespace = "default",
    server: Server = None,
    all_namespaces: AllNamespaces = False,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="wide, yaml, json or name")] = None,
    selector: Selector = "",
    field_selector: FieldSelector = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with changes as they come.")] = False,
) -> None:
    """Show objects."""
    wanted = references(words)
    if watch and (len({reference.kind for reference in wanted}) > 1 or len(wanted) > 1):
        fail("--watch follows one type of object, or one object")
    if any(reference.name for reference in wanted) and (selector or field_selector or all_namespaces):
        fail("a name cannot be combined with a selector or --all-namespaces")
    where = "" if all_namespaces else namespace
    with connected(server) as client:
        if watch:
            _watch(client, wanted[0], where, selector, field_selector, output)
            return
        found = _found(client, wanted, where, selector, field_selector)
        if output in (Output.yaml, Output.json):
            write = write_text if output is Output.yaml else write_json
            out(write([kinds.wrap(item) for items in found.values() for item in items]) if any(found.values()) else "")
            return
        if not any(found.values()):
            note("No resources found" + (f" in {where} namespace." if where and wanted[0].kind.namespaced else "."))
        for position, (kind, items) in enumerate((kind, items) for kind, items in found.items() if items):
            if position:
                out("")
            _show(kind, items, output, namespaces=all_namespaces, named=len(found) > 1)


def describe(words: Words, namespace: Namespace = "default", server: Server = None) -> None:
    """Show one object with all that belongs to it."""
    wanted = one_reference(words)
    with connected(server) as client:
        item = client.get(wanted.kind, wanted.name, namespace)
        out(describing.describe(client, item, time.time()))


def delete(
    words: Annotated[list[str] | None, typer.Argument(help="TYPE NAME... or TYPE/NAME...")] = None,
    filename: Annotated[list[str] | None, typer.Option("--filename", "-f", help="The objects of these manifests.")] = None,
    namespace: Namespace = "default",
    server: Server = None,
    selector: Selector = "",
    delete_all: Annotated[bool, typer.Option("--all", help="All objects of the type in the namespace.")] = False,
    grace_period: Annotated[int, typer.Option(help="Seconds to stop; -1: the pod's own. 0: at once.")] = -1,
    wait: Annotated[bool, typer.Option(help="Return when the objects are gone.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.")] = 60.0,
    ignore_not_found: Annotated[bool, typer.Option(help="What is not there is no error.")] = False,
) -> None:
    """Delete objects by name, selector or manifest."""
    with connected(server) as client:
        targets = list(_targets(client, words or [], filename or [], namespace, selector, delete_all))
        if not targets:
            note("No resources found")
        for kind, where, name in targets:
            try:
                client.delete(kind, name, where, grace_period_seconds=None if grace_period < 0 else grace_period)
            except ApiError as error:
                if not (ignore_not_found and error.code is grpc.StatusCode.NOT_FOUND):
                    report(error)
                continue
            out(f'{kind.singular} "{name}" deleted')
        if wait:
            deadline = time.monotonic() + timeout
            for kind, where, name in targets:
                _wait_until_gone(client, kind, where, name, deadline)


def _place(result: ReadResult, namespace: str) -> None:
    """The namespace of the command line, for objects that do not name one; naming two is an error."""
    kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
    if not kind.namespaced or not namespace:
        return
    if metadata.namespace and metadata.namespace != namespace:
        path = FieldError("metadata.namespace", f'"{metadata.namespace}" differs from --namespace {namespace}')
        fail(f"{kind.name} {metadata.name}: {path}")
    metadata.namespace = namespace


def _found(
    client: Client, wanted: Sequence[Reference], namespace: str, selector: str, field_selector: str
) -> dict[Kind, list[AnyObject]]:
    found: dict[Kind, list[AnyObject]] = {}
    for reference in wanted:
        items = found.setdefault(reference.kind, [])
        if reference.name:
            items.append(client.get(reference.kind, reference.name, namespace))
        else:
            items += client.list(reference.kind, namespace=namespace, label_selector=selector, field_selector=field_selector)
    return found


def _show(kind: Kind, items: list[AnyObject], output: Output | None, *, namespaces: bool, named: bool) -> None:
    if output is Output.name:
        for item in items:
            out(_label(kind, item.metadata.name))
        return
    columns = columns_of(kind, wide=output is Output.wide, namespaces=namespaces)
    now = time.time()
    rows = [cells(item, columns, now) for item in items]
    if named:
        place = 1 if namespaces and kind.namespaced else 0
        for row in rows:
            row[place] = f"{kind.singular}/{row[place]}"
    printing.plain_table([column.heading for column in columns], rows)


def _watch(client: Client, wanted: Reference, namespace: str, selector: str, field_selector: str, output: Output | None) -> None:
    if wanted.name:
        field_selector = f"metadata.name={wanted.name}"
    listing = client.list_all(wanted.kind, namespace=namespace, label_selector=selector, field_selector=field_selector)
    columns = columns_of(wanted.kind, wide=output is Output.wide, namespaces=not namespace)
    headings = [column.heading for column in columns]
    rows = [cells(item, columns, time.time()) for item in listing.objects]
    column_widths = printing.widths(headings, rows)
    structured = output in (Output.yaml, Output.json)

    def show(item: AnyObject) -> None:
        if structured:
            out(("---\n" + write_text([kinds.wrap(item)])) if output is Output.yaml else write_json([kinds.wrap(item)]))
        elif output is Output.name:
            out(_label(wanted.kind, item.metadata.name))
        else:
            out(printing.line(cells(item, columns, time.time()), column_widths))

    if output in (None, Output.wide):
        out(printing.line(headings, column_widths))
    for item in listing.objects:
        show(item)
    stream = client.watch(
        wanted.kind,
        namespace=namespace,
        label_selector=selector,
        field_selector=field_selector,
        start_revision=listing.revision + 1,
    )
    with stream:
        for event in stream:
            if event.object is not None and event.type is not EventType.BOOKMARK:
                show(event.object)


def _targets(
    client: Client, words: list[str], filenames: list[str], namespace: str, selector: str, delete_all: bool
) -> Iterator[tuple[Kind, str, str]]:
    """Kind, namespace and name of each object to delete."""
    if bool(words) == bool(filenames):
        fail("name what to delete: TYPE NAME, TYPE/NAME, or -f FILE")
    for result in read_manifests(filenames):
        kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
        yield kind, metadata.namespace or namespace, metadata.name
    for reference in references(words) if words else []:
        if reference.name:
            yield reference.kind, namespace, reference.name
        elif not selector and not delete_all:
            fail(f"{reference}: name the objects, or give a selector with -l, or --all")
        else:
            for item in client.list(reference.kind, namespace=namespace, label_selector=selector):
                yield reference.kind, item.metadata.namespace, item.metadata.name


def _wait_until_gone(client: Client, kind: Kind, namespace: str, name: str, deadline: float) -> None:
    while True:
        try:
            client.get(kind, name, namespace)
        except ApiError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return
            raise
        if time.monotonic() > deadline:
            fail(f"{_label(kind, name)} is still there; it has been asked to stop")
        time.sleep(_DELETE_WAIT_SECONDS)


def _label(kind: Kind, name: str) -> str:
    """kubectl's way to name an object: pod/web, replicaset.apps/web."""
    return f"{kind.singular}.{kind.group}/{name}" if kind.group else f"{kind.singular}/{name}"
